#include "server/route/peer_watch.h"

#include "proto/link/dispatch_host.h"
#include "server/base/log.h"
#include "server/route/part_server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_NS UINT64_C(60000000000) /* between two warnings that a name has no address */
#define ROUNDS_MAX 8                    /* most rounds in a row before the loop handles I/O */
/* The content of a message is bounded by part_map.h to far less than this. */
#define MESSAGE_BYTES_MAX (4u << 20)

struct eb_peer_watch {
    struct eb_peer_watch_options options;
    struct eb_dispatch_host host;
    struct eb_part_map map;
    struct eb_part_servers shared;
    struct eb_part_server *servers[EB_PART_MAP_PEERS_MAX]; /* by the peer's number; NULL: free */
    uv_prepare_t before_sleep;
    uv_idle_t no_sleep;    /* active while a round must follow at once */
    struct eb_alarm alarm; /* to review all servers, because there was no memory for one */
    bool must_review_all;
    bool was_reviewed;     /* some server, since on_change was due last */
    uint64_t told_changes; /* map.changes when on_change was called last */
    bool told_all;         /* eb_peer_watch_has_all_answers then */
    uint64_t reported_ns;  /* when it was last logged that a name has no address */
    bool told_left_out;    /* it was logged that there are too many addresses */
    uint32_t open_count;   /* the handles above and the dispatcher, until they are closed */
    bool is_closing;
};

/* ---- callbacks of the dispatcher ---- */

static void on_watch_opened(void *context, const struct eb_error *why)
{
    (void)context; /* Servers are reviewed after on_watch_servers. */
    (void)why;
}

/* A connection was opened or lost, or names were resolved. It is not known whose. */
static void on_watch_servers(void *context, uint32_t connected, uint32_t known)
{
    struct eb_peer_watch *watch = context;
    (void)connected;
    (void)known;
    watch->must_review_all = true;
}

static void on_watch_peer_open(void *context, struct eb_peer *peer)
{
    (void)context;
    if (peer->user) {
        eb_part_server_on_open(peer->user);
    }
}

static void on_watch_peer_told(void *context, struct eb_peer *peer,
    const struct eb_wire_server *told, const struct eb_error *why)
{
    const struct eb_peer_watch *watch = context;
    if (peer->user && !watch->is_closing) {
        eb_part_server_on_told(peer->user, told, why);
    }
}

static void on_watch_peer_gone(void *context, struct eb_peer *peer)
{
    struct eb_peer_watch *watch = context;
    struct eb_part_server *server = peer->user;
    if (server) {
        eb_part_server_on_gone(server);
        watch->servers[server->number] = NULL;
    }
}

/* ---- reviews ---- */

static void on_memory_alarm(struct eb_alarm *alarm)
{
    EB_CONTAINER_OF(alarm, struct eb_peer_watch, alarm)->must_review_all = true;
}

/* Begins to watch the server at an address. Returns false if out of memory. */
static bool add_server(struct eb_peer_watch *watch, struct eb_peer *peer)
{
    uint32_t number = 0;
    /* There is a number: at most EB_PEER_SET_CONNECTIONS_MAX peers are known at a time. */
    while (watch->servers[number]) {
        number++;
        assert(number < EB_PART_MAP_PEERS_MAX);
    }
    peer->user = eb_part_server_create(&watch->shared, peer, number);
    watch->servers[number] = peer->user;
    return peer->user;
}

/* Reports that addresses are not used, once until all are used again. */
static void report_left_out(struct eb_peer_watch *watch)
{
    char reason[64];
    uint32_t left_out = watch->host.dispatcher.servers.left_out;
    if (left_out == 0) {
        watch->told_left_out = false;
    } else if (!watch->told_left_out && eb_part_servers_may_log(&watch->shared)) {
        watch->told_left_out = true;
        (void)snprintf(
            reason, sizeof reason, "at most %u addresses are used", EB_PEER_SET_CONNECTIONS_MAX);
        eb_log(EB_LOG_WARN, "part_servers_left_out", eb_log_count("count", left_out),
            eb_log_text("reason", reason),
            eb_log_text("remedy", "name only part servers in route, and one address of each"));
    }
}

/* Reports that a name has no address, at most once per minute. */
static void report_names(struct eb_peer_watch *watch)
{
    const struct eb_peer_set *set = &watch->host.dispatcher.servers;
    uint64_t now_ns = uv_hrtime();
    bool is_early = watch->reported_ns != 0 && now_ns < watch->reported_ns + REPORT_NS;
    if (set->resolve_error.status != EB_STATUS_OK && !is_early &&
        eb_part_servers_may_log(&watch->shared)) {
        watch->reported_ns = now_ns;
        eb_log(EB_LOG_WARN, "part_servers_unknown", eb_log_text("reason", set->resolve_error.text),
            eb_log_text("remedy", "check the names in route, and the name service"));
    }
}

static void mark_all_due(struct eb_peer_watch *watch)
{
    const struct eb_peer_set *set = &watch->host.dispatcher.servers;
    for (uint32_t i = 0; i < set->count; i++) {
        struct eb_peer *peer = set->peers[i];
        if (peer->user || add_server(watch, peer)) {
            eb_part_server_mark(peer->user);
        } else {
            eb_alarms_set(
                &watch->host.alarms, &watch->alarm, uv_hrtime() + EB_PART_SERVER_PAUSE_NS);
        }
    }
    report_names(watch);
    report_left_out(watch);
}

static bool must_review(const struct eb_peer_watch *watch)
{
    return watch->must_review_all || !eb_list_is_empty(&watch->shared.due);
}

/* Reviews the servers with which something has happened. */
static void review_due(struct eb_peer_watch *watch)
{
    struct eb_list due;
    struct eb_list *link = NULL;
    if (watch->must_review_all) {
        watch->must_review_all = false;
        mark_all_due(watch);
    }
    watch->was_reviewed = watch->was_reviewed || !eb_list_is_empty(&watch->shared.due);
    /* Servers that become due meanwhile have their turn in the next round. */
    eb_list_init(&due);
    eb_list_move(&due, &watch->shared.due);
    while ((link = eb_list_pop(&due))) {
        struct eb_part_server *server = EB_CONTAINER_OF(link, struct eb_part_server, link);
        if (!eb_part_server_review(server)) {
            eb_part_server_destroy(server);
        }
    }
}
/* ---- the loop ---- */

static void on_no_sleep(uv_idle_t *idle)
{
    (void)idle; /* It only keeps the loop from sleeping. */
}

/* Has a round follow before the loop sleeps. */
static void request_round(struct eb_peer_watch *watch)
{
    int rc = uv_idle_start(&watch->no_sleep, on_no_sleep);
    assert(rc == 0);
}

static void tell_change(struct eb_peer_watch *watch)
{
    bool has_all = watch->told_all;
    if (watch->was_reviewed) {
        watch->was_reviewed = false;
        has_all = eb_peer_watch_has_all_answers(watch);
    }
    if (watch->told_changes != watch->map.changes || watch->told_all != has_all) {
        watch->told_changes = watch->map.changes;
        watch->told_all = has_all;
        watch->options.on_change(watch->options.context);
    }
}

static void on_watch_before_sleep(uv_prepare_t *prepare)
{
    struct eb_peer_watch *watch = EB_CONTAINER_OF(prepare, struct eb_peer_watch, before_sleep);
    bool again = true;
    int rc = uv_idle_stop(&watch->no_sleep);
    assert(rc == 0);
    for (int i = 0; again && i < ROUNDS_MAX; i++) {
        review_due(watch);
        again = eb_dispatch_host_run(&watch->host) || must_review(watch);
    }
    if (again) {
        request_round(watch);
    }
    tell_change(watch);
}

/* ---- start and end ---- */

/* Counts what is closed. Calls on_closed when everything is. */
static void note_closed(struct eb_peer_watch *watch)
{
    if (--watch->open_count == 0) {
        watch->options.on_closed(watch->options.context);
    }
}

static void on_watch_ended(void *context)
{
    note_closed(context);
}

static void on_prepare_closed(uv_handle_t *handle)
{
    note_closed(EB_CONTAINER_OF(handle, struct eb_peer_watch, before_sleep));
}

static void on_idle_closed(uv_handle_t *handle)
{
    note_closed(EB_CONTAINER_OF(handle, struct eb_peer_watch, no_sleep));
}

/* There are no lookups, so the callbacks for these are missing. */
static const struct eb_dispatch_handler watch_handler = {
    .on_message = eb_part_server_on_message,
    .on_over = eb_part_server_on_over,
    .on_opened = on_watch_opened,
    .on_servers = on_watch_servers,
    .on_ended = on_watch_ended,
    .on_peer_open = on_watch_peer_open,
    .on_peer_gone = on_watch_peer_gone,
    .on_peer_told = on_watch_peer_told,
};

static void configure_host(struct eb_peer_watch *watch)
{
    const struct eb_peer_watch_options *options = &watch->options;
    watch->host.calls_max = EB_PART_SERVER_CALLS * EB_PART_MAP_PEERS_MAX;
    watch->host.alarms_max = EB_PART_MAP_PEERS_MAX + 1;
    watch->host.dispatcher =
        (struct eb_dispatcher){.options = {.targets = options->targets,
                                   .credentials = options->credentials,
                                   .connect_timeout_ns = options->connect_timeout_ns,
                                   .unacknowledged_ms_max = options->unacknowledged_ms_max,
                                   .resolve_interval_ns = options->resolve_interval_ns,
                                   .connections = 1,
                                   .asks_instances = true,
                                   .answer_bytes_max = MESSAGE_BYTES_MAX,
                                   .is_unary = true,
                                   .is_unpaced = true},
            .handler = &watch_handler,
            .context = watch};
}

int eb_peer_watch_open(
    struct eb_peer_watch **watch, const struct eb_peer_watch_options *options, uv_loop_t *loop)
{
    static_assert(EB_PEER_SET_CONNECTIONS_MAX <= EB_PART_MAP_PEERS_MAX, "each peer has a number");
    struct eb_peer_watch *created = calloc(1, sizeof *created);
    *watch = created;
    if (!created) {
        return UV_ENOMEM;
    }
    created->options = *options;
    created->alarm.ring = on_memory_alarm;
    created->shared = (struct eb_part_servers){.dispatcher = &created->host.dispatcher,
        .alarms = &created->host.alarms,
        .map = &created->map,
        .connect_timeout_ns = options->connect_timeout_ns,
        .random = uv_hrtime() ^ (uintptr_t)created};
    eb_list_init(&created->shared.due);
    if (!eb_part_map_init(&created->map, EB_PART_MAP_PEERS_MAX) ||
        !eb_peer_request_encode(&created->shared.request, options->router, NULL, 0)) {
        return UV_ENOMEM;
    }
    configure_host(created);
    int rc = eb_dispatch_host_open(&created->host, loop);
    if (rc != 0) {
        return rc;
    }
    created->open_count = 3;
    rc = uv_prepare_init(loop, &created->before_sleep);
    assert(rc == 0);
    rc = uv_prepare_start(&created->before_sleep, on_watch_before_sleep);
    assert(rc == 0);
    rc = uv_idle_init(loop, &created->no_sleep);
    assert(rc == 0);
    request_round(created);
    return 0;
}

void eb_peer_watch_close(struct eb_peer_watch *watch)
{
    assert(!watch->is_closing);
    watch->is_closing = true;
    for (uint32_t i = 0; i < EB_PART_MAP_PEERS_MAX; i++) {
        if (watch->servers[i]) {
            eb_part_server_end_calls(watch->servers[i]);
        }
    }
    /* Those that are forgotten. */
    for (struct eb_list *link = watch->shared.due.next; link != &watch->shared.due;
         link = link->next) {
        eb_part_server_end_calls(EB_CONTAINER_OF(link, struct eb_part_server, link));
    }
    uv_close((uv_handle_t *)&watch->before_sleep, on_prepare_closed);
    uv_close((uv_handle_t *)&watch->no_sleep, on_idle_closed);
    eb_dispatch_host_close(&watch->host);
}

void eb_peer_watch_destroy(struct eb_peer_watch *watch)
{
    struct eb_list *link = NULL;
    if (!watch) {
        return;
    }
    /* All servers are forgotten by this, and due. */
    eb_dispatch_host_deinit(&watch->host);
    while ((link = eb_list_pop(&watch->shared.due))) {
        eb_part_server_destroy(EB_CONTAINER_OF(link, struct eb_part_server, link));
    }
    eb_part_map_deinit(&watch->map);
    eb_peer_request_free(&watch->shared.request);
    free(watch);
}

/* ---- for the owner ---- */

struct eb_part_map *eb_peer_watch_map(struct eb_peer_watch *watch)
{
    return &watch->map;
}

uint64_t eb_peer_watch_instance(const struct eb_peer_watch *watch, uint32_t peer)
{
    assert(peer < EB_PART_MAP_PEERS_MAX);
    return watch->servers[peer] ? watch->servers[peer]->mapped : 0;
}

const char *eb_peer_watch_address(const struct eb_peer_watch *watch, uint32_t peer)
{
    assert(peer < EB_PART_MAP_PEERS_MAX);
    return watch->servers[peer] ? watch->servers[peer]->address : "";
}

bool eb_peer_watch_has_all_answers(const struct eb_peer_watch *watch)
{
    const struct eb_peer_set *set = &watch->host.dispatcher.servers;
    bool is_unresolved = set->resolver.is_open && set->resolver.ended_ns == 0;
    if (is_unresolved || set->resolve_error.status != EB_STATUS_OK) {
        return false;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_part_server *server = set->peers[i]->user;
        if (!server || !server->has_answered) {
            return false;
        }
    }
    return true;
}

bool eb_peer_watch_has_any(const struct eb_peer_watch *watch)
{
    return watch->map.connected_count > 0;
}

/* Has all servers reviewed before the loop sleeps. */
static void review_soon(struct eb_peer_watch *watch)
{
    if (!watch->is_closing) {
        watch->must_review_all = true;
        request_round(watch);
    }
}

static void log_left_out(size_t count)
{
    char reason[64];
    (void)snprintf(
        reason, sizeof reason, "a router may send at most %u claims", EB_WATCH_CLAIMS_MAX);
    eb_log(EB_LOG_WARN, "claims_left_out", eb_log_count("count", count),
        eb_log_text("reason", reason),
        eb_log_text("remedy", "serve fewer models, or remove labels and holds of versions that "
                              "are not needed"));
}

bool eb_peer_watch_claim(
    struct eb_peer_watch *watch, const struct eb_peer_watch_claim *claims, size_t count)
{
    struct eb_peer_request request;
    if (!eb_peer_request_encode(&request, watch->options.router, claims, count)) {
        return false;
    }
    if (request.left_out != watch->shared.request.left_out && request.left_out > 0 &&
        eb_part_servers_may_log(&watch->shared)) {
        log_left_out(request.left_out);
    }
    bool is_same = request.size == watch->shared.request.size &&
                   memcmp(request.bytes, watch->shared.request.bytes, request.size) == 0;
    eb_peer_request_free(&watch->shared.request);
    watch->shared.request = request;
    if (!is_same) {
        watch->shared.claims++;
        review_soon(watch);
    }
    return true;
}

void eb_peer_watch_renew(struct eb_peer_watch *watch, bool is_token_new)
{
    eb_dispatcher_renew(&watch->host.dispatcher, is_token_new);
    for (uint32_t i = 0; i < EB_PART_MAP_PEERS_MAX; i++) {
        if (watch->servers[i]) {
            eb_part_server_renew(watch->servers[i]);
        }
    }
    watch->shared.claims += is_token_new;
    review_soon(watch);
}
