#include "server/router.h"

#include "proto/link/credentials_watch.h"
#include "server/base/log.h"
#include "server/net/loop.h"
#include "server/route/leg_link.h"
#include "server/route/model_flips.h"
#include "server/route/peer_watch.h"
#include "server/router_facts.h"
#include "server/rpc/service.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)
#define NS_PER_S UINT64_C(1000000000)
/* Time for TCP and TLS to a part server. */
#define CONNECT_TIMEOUT_NS (5 * NS_PER_S)
/* Part servers are near, and another one has the part: a host that is gone is given up soon. */
#define UNACKNOWLEDGED_MS_MAX 2000
/* The requests to one part may hold this fraction of a loop's answer memory. */
#define PART_FRACTION 4
/* Time until a step is tried again that has failed for lack of memory. */
#define RETRY_NS NS_PER_S
#define NAME_BYTES 256
/* Time without any part server until the router is not ready: another router may do better. */
#define LOST_NS (5 * NS_PER_S)

struct eb_router {
    const struct eb_config *config;
    char name[NAME_BYTES]; /* for the part servers' logs */
    struct eb_targets targets;
    struct eb_access access; /* borrows from the config */
    struct eb_credentials credentials;
    struct eb_credentials_watch renewal;
    struct eb_peer_watch *watch;
    struct eb_model_flips flips;
    struct eb_manager *manager;
    uint32_t loop_count;
    struct eb_loop **loops;
    struct eb_leg_link **links; /* [loop_count] */
    uv_timer_t timer;           /* the next step */
    uint64_t settle_until_ns;
    uint64_t told_changes; /* map->changes when the loops were last told */
    bool is_running;
    bool must_step; /* something has changed since the last step began */
    bool must_tell; /* what the loops know is not up to date */
    bool is_settled;
    bool was_ready;
    const char *not_ready; /* why it is not ready; NULL: it is */
    uint64_t lost_ns;      /* since when no part server has been connected; 0: one is */
    uint64_t flips_done;   /* of all models since the start */
    uint64_t back_outs;
    struct eb_router_listener listener;
    struct eb_router_instances instances;
};

/* ---- what the loops know ---- */

struct routes_mail {
    struct eb_mail mail;
    struct eb_loop *loop;
    struct eb_route_table *table;
    bool is_ready;
};

/* Runs on the loop's thread. */
static void deliver_routes(struct eb_mail *mail)
{
    struct routes_mail *routes = EB_CONTAINER_OF(mail, struct routes_mail, mail);
    eb_service_set_routes(routes->loop, routes->table);
    eb_service_set_ready(routes->loop, routes->is_ready);
    free(routes);
}

static uint64_t find_instance(const void *context, uint32_t peer)
{
    const struct eb_router *router = context;
    return eb_peer_watch_instance(router->watch, peer);
}

static struct eb_route_table *make_routes(const struct eb_router *router)
{
    return eb_model_flips_make_routes(&router->flips, find_instance, router);
}

static bool send_routes(struct eb_router *router, struct eb_loop *loop)
{
    struct routes_mail *routes = malloc(sizeof *routes);
    struct eb_route_table *table = routes ? make_routes(router) : NULL;
    if (!table) {
        free(routes);
        return false;
    }
    *routes = (struct routes_mail){{.deliver = deliver_routes}, loop, table, !router->not_ready};
    eb_mailbox_post(eb_loop_mailbox(loop), &routes->mail);
    return true;
}

/* Sends the loops new route tables if there is something new. Returns false if out of memory. */
static bool tell_loops(struct eb_router *router)
{
    uint64_t changes = eb_peer_watch_map(router->watch)->changes;
    if (!router->must_tell && changes == router->told_changes) {
        return true;
    }
    for (uint32_t i = 0; i < router->loop_count; i++) {
        if (!send_routes(router, router->loops[i])) {
            return false;
        }
    }
    router->must_tell = false;
    router->told_changes = changes;
    return true;
}

/* ---- readiness and stats ---- */

static bool is_any_served(const struct eb_router *router)
{
    bool is_any = false;
    for (size_t i = 0; i < router->flips.count; i++) {
        is_any |= router->flips.models[i].served != 0;
    }
    return is_any;
}

/* Returns why the router is not ready, or NULL. A lost part must not take all routers out of the
 * balancer, so once the router has been ready only the loss of all part servers counts. */
static const char *find_not_ready(struct eb_router *router, uint64_t now_ns)
{
    router->was_ready |= router->is_settled && is_any_served(router);
    if (eb_peer_watch_has_any(router->watch)) {
        router->lost_ns = 0;
    } else if (router->lost_ns == 0) {
        router->lost_ns = now_ns;
    }
    if (!router->was_ready) {
        return router->is_settled ? "no model is served yet"
                                  : "not all part servers have said what they have";
    }
    bool is_lost = router->lost_ns != 0 && now_ns >= router->lost_ns + LOST_NS;
    return is_lost ? "no part server is connected" : NULL;
}

/* Finds out whether the router is ready. Returns when to do so again at the latest. */
static uint64_t check_ready(struct eb_router *router, uint64_t now_ns)
{
    const char *not_ready = find_not_ready(router, now_ns);
    if (not_ready != router->not_ready) {
        router->must_tell |= !not_ready != !router->not_ready;
        router->not_ready = not_ready;
    }
    return router->was_ready && router->lost_ns != 0 && !not_ready ? router->lost_ns + LOST_NS
                                                                   : EB_FLIP_NEVER;
}

/* Tells the stats what the router knows. If out of memory, the next step does. */
static void tell_stats(struct eb_router *router)
{
    struct eb_route_facts *facts =
        eb_router_facts_make(&router->flips, router->watch, &router->instances);
    if (facts) {
        facts->not_ready = router->not_ready;
        facts->replicas = (uint32_t)router->config->limits.flip_replicas;
        facts->flips = router->flips_done;
        facts->back_outs = router->back_outs;
        router->listener.on_facts(router->listener.context, facts);
    }
}

/* ---- decisions ---- */

static size_t count_claims(const struct eb_router *router)
{
    size_t count = 0;
    for (size_t i = 0; i < router->flips.count; i++) {
        count += router->flips.models[i].flip.claim_count;
    }
    return count;
}

/* Claims what all flips claim. Returns false if out of memory. */
static bool claim_all(struct eb_router *router)
{
    size_t room = count_claims(router);
    size_t count = 0;
    struct eb_peer_watch_claim *claims = calloc(room + 1, sizeof *claims);
    if (!claims) {
        return false;
    }
    for (size_t i = 0; i < router->flips.count; i++) {
        const struct eb_flips_model *model = &router->flips.models[i];
        for (size_t k = 0; k < model->flip.claim_count; k++) {
            const struct eb_flip_claim *claim = &model->flip.claims[k];
            claims[count++] = (struct eb_peer_watch_claim){
                model->name, claim->number, claim->digest, claim->is_served};
        }
    }
    bool is_good = eb_peer_watch_claim(router->watch, claims, count);
    free(claims);
    return is_good;
}

static void log_flip(const struct eb_flips_model *model)
{
    if (model->flip.served != model->former) {
        eb_log(EB_LOG_INFO, "flipped", eb_log_text("model", model->name),
            eb_log_count("from", model->former), eb_log_count("to", model->flip.served));
    }
}

/* Sends the choices of the models that go back to a lower version to the loops, or those of all
 * others. */
static void serve_choices(struct eb_router *router, bool goes_back)
{
    for (size_t i = 0; i < router->flips.count; i++) {
        const struct eb_flips_model *model = &router->flips.models[i];
        if ((model->flip.served < model->former) == goes_back) {
            log_flip(model);
            eb_manager_route(router->manager, &model->choice);
        }
    }
}

static void set_router_timer(struct eb_router *router, uint64_t due_ns, uint64_t now_ns);

/* Takes all flips forward, and counts what they did. The counts outlive their models. Returns when
 * to step again at the latest. */
static uint64_t step_flips(struct eb_router *router, const struct eb_flips_terms *terms)
{
    for (size_t i = 0; i < router->flips.count; i++) {
        router->flips_done -= router->flips.models[i].flip.flips;
        router->back_outs -= router->flips.models[i].flip.back_outs;
    }
    uint64_t due_ns = eb_model_flips_step(&router->flips, terms);
    for (size_t i = 0; i < router->flips.count; i++) {
        router->flips_done += router->flips.models[i].flip.flips;
        router->back_outs += router->flips.models[i].flip.back_outs;
    }
    return due_ns;
}

static uint64_t find_pin_end_ns(void *context, const char *model, uint64_t number)
{
    return eb_manager_pin_end_ms(context, model, number) * NS_PER_MS;
}

/* Takes all models forward, and tells everybody. */
static void step_router(struct eb_router *router)
{
    uint64_t now_ns = uv_hrtime();
    router->must_step = false;
    bool has_answers = eb_peer_watch_has_all_answers(router->watch);
    struct eb_flips_terms terms = {
        .replicas = (uint32_t)router->config->limits.flip_replicas,
        .has_all_answers = has_answers,
        .settle_until_ns = router->settle_until_ns,
        .now_ns = now_ns,
        .next_wait_ns = router->config->limits.next_wait_s * NS_PER_S,
        .find_pin_end_ns = router->config->limits.pin_ttl_s > 0 ? find_pin_end_ns : NULL,
        .context = router->manager,
    };
    router->is_settled = router->is_settled || has_answers || now_ns >= router->settle_until_ns;
    uint64_t due_ns = step_flips(router, &terms);
    if (!router->is_settled && router->settle_until_ns < due_ns) {
        due_ns = router->settle_until_ns;
    }
    bool is_good = claim_all(router);
    uint64_t ready_ns = check_ready(router, now_ns);
    due_ns = ready_ns < due_ns ? ready_ns : due_ns;
    /* Before the loops serve a version, they must know where it is. But a version that has lost a
     * part is left before they know of the loss: a server that is leaving answers for a while, and
     * where the lower version is they know already. */
    serve_choices(router, true);
    is_good = tell_loops(router) && is_good;
    serve_choices(router, false);
    if (!router->must_step) { /* Otherwise models have changed meanwhile, and are not judged yet. */
        tell_stats(router);
    }
    if (!is_good && now_ns + RETRY_NS < due_ns) {
        due_ns = now_ns + RETRY_NS;
    }
    set_router_timer(router, router->must_step ? now_ns : due_ns, now_ns);
}

static void on_router_timer(uv_timer_t *timer)
{
    step_router(timer->data);
}

static void set_router_timer(struct eb_router *router, uint64_t due_ns, uint64_t now_ns)
{
    if (due_ns == EB_FLIP_NEVER) {
        uv_timer_stop(&router->timer);
        return;
    }
    uint64_t wait_ms = due_ns > now_ns ? (due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
    uv_timer_start(&router->timer, on_router_timer, wait_ms, 0);
}

/* Has a step follow soon: not at once, because the caller may be at work on what the step reads. */
static void step_soon(struct eb_router *router)
{
    if (router->is_running && router->manager) {
        router->must_step = true; /* even if a step is under way, which sets the timer at its end */
        uv_timer_start(&router->timer, on_router_timer, 0, 0);
    }
}

bool eb_router_is_settled(const void *context)
{
    const struct eb_router *router = context;
    return router->is_settled && !router->must_step;
}

void eb_router_on_models(void *context, const struct eb_routed_model *models, size_t count)
{
    struct eb_router *router = context;
    if (!eb_model_flips_take(&router->flips, models, count)) {
        eb_log(EB_LOG_WARN, "out_of_memory", eb_log_text("what", "the router's models"),
            eb_log_text("remedy", "free some memory; the next scan tries again"));
    }
    router->must_tell = true;
    step_soon(router);
}

static void on_peers_change(void *context)
{
    step_soon(context);
}

static void on_peers_closed(void *context)
{
    (void)context; /* Main's loop ends when all handles are closed. */
}

/* ---- start and end ---- */

static void on_router_read(void *context, struct eb_credentials_change change)
{
    struct eb_router *router = context;
    if (change.is_token_new || change.is_tls_new) {
        eb_peer_watch_renew(router->watch, change.is_token_new);
    }
}

/* Reads addresses and credentials. */
static bool read_router_access(struct eb_router *router, struct eb_error *error)
{
    const struct eb_config *config = router->config;
    struct eb_file_list files = {.files = NULL};
    router->access = (struct eb_access){
        .tls_ca = config->route_tls_ca,
        .tls_cert = config->route_tls_cert,
        .tls_key = config->route_tls_key,
        .token_file = config->route_token_file,
    };
    if (!eb_targets_parse(config->route, &router->targets, error)) {
        return false;
    }
    if (!eb_credentials_open(
            &router->credentials, &router->access, &router->targets, &files, error)) {
        eb_file_list_deinit(&files);
        return false;
    }
    if (!eb_credentials_watch_init(
            &router->renewal, &router->credentials, &router->access, &router->targets, &files)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    router->renewal.on_read = on_router_read;
    router->renewal.context = router;
    return true;
}

struct eb_router *eb_router_open(
    const struct eb_config *config, const struct eb_router_listener *listener)
{
    struct eb_error error;
    struct eb_router *router = calloc(1, sizeof *router);
    if (!router) {
        eb_log_fail_start("route", "out of memory", "free some memory");
        return NULL;
    }
    router->config = config;
    router->listener = *listener;
    if (gethostname(router->name, sizeof router->name - 1) != 0) {
        router->name[0] = '\0';
    }
    if (!read_router_access(router, &error)) {
        eb_log_fail_start("route", error.text,
            "correct route, route_tls_ca, route_tls_cert, route_tls_key or route_token_file");
        eb_router_destroy(router);
        return NULL;
    }
    return router;
}

bool eb_router_attach(struct eb_router *router, struct eb_loop **loops, uint32_t count)
{
    const struct eb_limits *limits = &router->config->limits;
    /* The sums of a part have more bytes than the results if these are of a shorter type. */
    uint64_t values_bytes = limits->response_bytes_max > limits->route_slab_bytes
                                ? limits->response_bytes_max
                                : limits->route_slab_bytes;
    uint64_t memory_bytes = limits->answer_memory_bytes / count; /* of one loop */
    struct eb_leg_link_options options = {
        .targets = &router->targets,
        .access = router->access,
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
        .unacknowledged_ms_max = UNACKNOWLEDGED_MS_MAX,
        .resolve_interval_ns = limits->route_resolve_ms * NS_PER_MS,
        .hedge_delay_min_ns = limits->hedge_delay_min_us * NS_PER_US,
        .hedge_percent = (uint32_t)limits->hedge_percent,
        .part_bytes_max = memory_bytes / PART_FRACTION,
        .values_bytes_max = (uint32_t)values_bytes,
    };
    struct eb_error error;
    router->links = calloc(count, sizeof(struct eb_leg_link *));
    if (!router->links) {
        eb_log_fail_start("route", "out of memory", "free some memory");
        return false;
    }
    router->loops = loops;
    for (; router->loop_count < count; router->loop_count++) {
        struct eb_loop *loop = loops[router->loop_count];
        options.memory = eb_buffer_pool_memory(eb_loop_answer_pool(loop));
        struct eb_leg_link **link = &router->links[router->loop_count];
        if (!eb_leg_link_open(&options, eb_loop_uv(loop), link, &error)) {
            if (*link) {
                router->loop_count++; /* It is destroyed once its handles are closed. */
            }
            eb_log_fail_start("route", error.text, "free some memory or descriptors");
            return false;
        }
        eb_service_set_legs(loop, *link);
        struct eb_route_table *table = make_routes(router);
        if (!table) {
            router->loop_count++; /* The link is closed with its loop. */
            eb_log_fail_start("route", "out of memory", "free some memory");
            return false;
        }
        eb_service_set_routes(loop, table);
        eb_service_set_ready(loop, !router->not_ready);
    }
    router->told_changes = eb_peer_watch_map(router->watch)->changes;
    step_soon(router);
    return true;
}

int eb_router_start(struct eb_router *router, uv_loop_t *uv)
{
    const struct eb_limits *limits = &router->config->limits;
    struct eb_peer_watch_options options = {
        .targets = &router->targets,
        .credentials = &router->credentials,
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
        .unacknowledged_ms_max = UNACKNOWLEDGED_MS_MAX,
        .resolve_interval_ns = limits->route_resolve_ms * NS_PER_MS,
        .router = router->name,
        .on_change = on_peers_change,
        .on_closed = on_peers_closed,
        .context = router,
    };
    int rc = eb_peer_watch_open(&router->watch, &options, uv);
    if (rc != 0) {
        return rc;
    }
    rc = eb_credentials_watch_start(&router->renewal, uv);
    if (rc != 0) {
        eb_peer_watch_close(router->watch);
        return rc;
    }
    router->flips.map = eb_peer_watch_map(router->watch);
    router->settle_until_ns = uv_hrtime() + limits->route_settle_ms * NS_PER_MS;
    uv_timer_init(uv, &router->timer);
    router->timer.data = router;
    router->is_running = true;
    (void)check_ready(router, uv_hrtime());
    tell_stats(router);
    return 0;
}

void eb_router_set_manager(struct eb_router *router, struct eb_manager *manager)
{
    router->manager = manager;
    step_soon(router);
}

void eb_router_stop(struct eb_router *router)
{
    if (router->is_running) {
        router->is_running = false;
        uv_close((uv_handle_t *)&router->timer, NULL);
        eb_credentials_watch_stop(&router->renewal);
        eb_peer_watch_close(router->watch);
    }
}

void eb_router_destroy(struct eb_router *router)
{
    if (!router) {
        return;
    }
    for (uint32_t i = 0; i < router->loop_count; i++) {
        eb_leg_link_destroy(router->links[i]);
    }
    free(router->links);
    eb_model_flips_deinit(&router->flips);
    eb_peer_watch_destroy(router->watch);
    eb_credentials_watch_deinit(&router->renewal);
    eb_credentials_close(&router->credentials);
    eb_targets_free(&router->targets);
    free(router);
}
