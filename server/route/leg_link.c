#include "server/route/leg_link.h"

#include "proto/codec.h"
#include "server/formats/part_of.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Most attempts of a leg after the first one, within the budget of its part. */
#define LEG_RETRIES_MAX 4
/* Room for protobuf's part of an answer beside its values. */
#define ANSWER_BYTES_SPARE (1u << 20)
/* Memory that decoding may take in addition to four times the message: many small results take more
 * memory than bytes in the message. */
#define DECODE_BYTES_SPARE (16 * 1024 * 1024)

/* The calls to one part, of whatever version. */
struct leg_group {
    struct eb_dispatch_group dispatch;
    uint64_t held_bytes; /* of the legs that are not over */
    uint64_t refusals;   /* legs that were not taken because of part_bytes_max */
    uint64_t outcomes[EB_LEG_OUTCOMES];
    struct eb_histogram answers;
};

struct eb_leg_link {
    struct eb_dispatch_host host;
    struct eb_leg_link_options options; /* the texts of its `access` belong to `renewal` */
    struct eb_credentials credentials;
    struct eb_credentials_watch renewal;
    struct eb_route_table *routes;
    struct eb_list legs;
    /* Legs by request id: that of slot s is s + 1 + n * EB_LEGS_MAX. Numbers are used again as late
     * as possible, so that a late answer is never taken for that of another leg. */
    struct eb_leg **slots; /* [EB_LEGS_MAX] NULL: the slot is free, or only its id is taken */
    uint64_t *ids;         /* [EB_LEGS_MAX] the last id of each slot */
    uint32_t *free_slots;  /* a ring of free slots */
    uint32_t free_first;
    uint32_t free_count;
    struct eb_leg_totals totals;
    struct eb_arena arena;                  /* for the answer that is being decoded */
    struct leg_group *groups[EB_PARTS_MAX]; /* made when they are needed */
};

/* ---- ids ---- */

static uint32_t find_slot(uint64_t id)
{
    return (uint32_t)((id - 1) % EB_LEGS_MAX);
}

uint64_t eb_leg_link_take_id(struct eb_leg_link *link)
{
    if (link->free_count == 0) {
        return 0;
    }
    uint32_t slot = link->free_slots[link->free_first];
    link->free_first = (link->free_first + 1) % EB_LEGS_MAX;
    link->free_count--;
    link->ids[slot] += EB_LEGS_MAX;
    return link->ids[slot];
}

void eb_leg_link_give_id(struct eb_leg_link *link, uint64_t request_id)
{
    uint32_t slot = find_slot(request_id);
    assert(link->ids[slot] == request_id);
    link->slots[slot] = NULL;
    link->free_slots[(link->free_first + link->free_count) % EB_LEGS_MAX] = slot;
    link->free_count++;
}

/* ---- callbacks of the dispatcher ---- */

static struct eb_leg *leg_of(struct eb_dispatch_call *call)
{
    return EB_CONTAINER_OF(call, struct eb_leg, call);
}

static bool decode_leg_answer(void *context, const uint8_t *bytes, size_t size,
    struct eb_dispatch_answer *answer, struct eb_error *error)
{
    struct eb_leg_link *link = context;
    link->totals.received_bytes += size;
    eb_arena_reset(&link->arena, 4 * size + DECODE_BYTES_SPARE);
    struct eb_wire_response *response = eb_lookup_response_decode(&link->arena, bytes, size, error);
    if (!response) {
        return false;
    }
    *answer = (struct eb_dispatch_answer){.id = response->request_id,
        .status = eb_status_of_number(response->error_code),
        .retry_after_ms = response->retry_after_ms,
        .message = response};
    return true;
}

static struct eb_dispatch_call *find_leg_call(void *context, uint64_t id)
{
    struct eb_leg_link *link = context;
    struct eb_leg *leg = id == 0 || id == EB_PROBE_ID ? NULL : link->slots[find_slot(id)];
    return leg && leg->request_id == id ? &leg->call : NULL;
}

static bool accept_leg_answer(struct eb_dispatch_call *call, void *message, struct eb_error *error)
{
    struct eb_leg *leg = leg_of(call);
    const struct eb_wire_response *response = message;
    if (response->error_code != EB_STATUS_OK) {
        eb_error_set(
            error, eb_status_of_number(response->error_code), "%s", response->error_message);
        return false;
    }
    return leg->take(leg, response, error);
}

/* The arena has the message, until the next one is decoded. */
static void drop_leg_answer(void *context, void *message)
{
    (void)context;
    (void)message;
}

/* The owner takes the answer again if it comes again. */
static void discard_leg_answer(struct eb_dispatch_call *call)
{
    (void)call;
}

enum eb_leg_outcome eb_leg_outcome_of(const struct eb_leg *leg)
{
    switch (leg->error.status) {
    case EB_STATUS_OK: return EB_LEG_OK;
    case EB_STATUS_CANCELLED: return EB_LEG_CANCELLED;
    case EB_STATUS_UNAVAILABLE:
    case EB_STATUS_DEADLINE_EXCEEDED:
    case EB_STATUS_NOT_FOUND: return EB_LEG_UNREACHED;
    default: return EB_LEG_FAILED;
    }
}

static void on_leg_over(struct eb_dispatch_call *call)
{
    struct eb_leg *leg = leg_of(call);
    struct eb_leg_link *link = leg->link;
    struct leg_group *group = link->groups[leg->part];
    enum eb_leg_outcome outcome = eb_leg_outcome_of(leg);
    group->outcomes[outcome]++;
    group->held_bytes -= leg->held_bytes;
    if (outcome == EB_LEG_OK) {
        eb_histogram_add(&group->answers, call->answered_ns);
    }
    leg->retry_after_ms = call->retry_after_ms;
    eb_list_remove(&leg->node);
    eb_leg_link_give_id(link, leg->request_id);
    leg->on_over(leg);
}

static void on_link_opened(void *context, const struct eb_error *why)
{
    (void)context;
    (void)why; /* Servers that are not there yet may come at any time. */
}

static void on_link_servers(void *context, uint32_t connected, uint32_t known)
{
    (void)context;
    (void)connected;
    (void)known;
}

static void on_link_ended(void *context)
{
    (void)context; /* The loop ends when all handles are closed. */
}

static const struct eb_dispatch_handler leg_handler = {
    .decode = decode_leg_answer,
    .find = find_leg_call,
    .accept = accept_leg_answer,
    .drop = drop_leg_answer,
    .discard = discard_leg_answer,
    .on_over = on_leg_over,
    .on_opened = on_link_opened,
    .on_servers = on_link_servers,
    .on_ended = on_link_ended,
};

const struct eb_memory *eb_leg_link_memory(const struct eb_leg_link *link)
{
    return &link->options.memory;
}

uint32_t eb_leg_link_values_bytes_max(const struct eb_leg_link *link)
{
    return link->options.values_bytes_max;
}

/* ---- routes ---- */

/* Returns which servers have a leg's part, according to the present route table. */
static struct eb_peer_filter find_servers(const struct eb_leg *leg)
{
    static const uint64_t none[1];
    const struct eb_route_entry *entry =
        eb_route_table_find(leg->link->routes, leg->model, leg->version, leg->digest);
    const uint64_t *instances = none;
    size_t count = 0;
    if (entry && leg->part < entry->parts) {
        instances = eb_route_entry_instances(entry, leg->part, &count);
    }
    return (struct eb_peer_filter){
        .instances = count > 0 ? instances : none, .instance_count = count};
}

static const char no_server_text[] = "no server that has it is connected";

void eb_leg_link_set_routes(struct eb_leg_link *link, struct eb_route_table *table)
{
    struct eb_route_table *former = link->routes;
    struct eb_list lost; /* legs that no server can take any more */
    struct eb_list *next;
    if (!eb_list_is_empty(&link->legs)) {
        /* A server that is leaving still answers the legs that were given while it had the part. */
        (void)eb_dispatch_host_run(&link->host);
    }
    link->routes = table;
    eb_list_init(&lost);
    for (struct eb_list *node = link->legs.next; node != &link->legs; node = next) {
        struct eb_leg *leg = EB_CONTAINER_OF(node, struct eb_leg, node);
        next = node->next;
        leg->call.filter = find_servers(leg);
        if (leg->call.filter.instance_count == 0 && leg->call.state != EB_DISPATCH_SENT) {
            eb_list_remove(node);
            eb_list_push(&lost, node);
        }
    }
    eb_route_table_destroy(former);
    /* Ending a leg may end others of its owner. */
    while (!eb_list_is_empty(&lost)) {
        struct eb_leg *leg = EB_CONTAINER_OF(lost.next, struct eb_leg, node);
        eb_leg_link_abandon(leg, EB_STATUS_UNAVAILABLE, no_server_text);
    }
}

const struct eb_route_table *eb_leg_link_routes(const struct eb_leg_link *link)
{
    return link->routes;
}

/* ---- legs ---- */

/* Returns the group of a part. Returns NULL if out of memory. */
static struct leg_group *find_leg_group(struct eb_leg_link *link, uint32_t part)
{
    struct leg_group *group = link->groups[part];
    if (!group) {
        group = calloc(1, sizeof *group);
        if (group) {
            eb_dispatch_group_init(&group->dispatch, EB_RESEND_LEAST_ROUTER,
                link->options.hedge_percent, link->options.hedge_delay_min_ns);
        }
        link->groups[part] = group;
    }
    return group;
}

bool eb_leg_link_send(struct eb_leg_link *link, struct eb_leg *leg)
{
    assert(leg->part < EB_PARTS_MAX);
    struct leg_group *group = find_leg_group(link, leg->part);
    if (!group) {
        eb_error_set(&leg->error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    if (group->held_bytes > 0 && !leg->is_further &&
        group->held_bytes + leg->held_bytes > link->options.part_bytes_max) {
        group->refusals++;
        leg->retry_after_ms = EB_LEG_RETRY_AFTER_MS;
        eb_error_set(&leg->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "too many requests wait for it; retry in %d ms", EB_LEG_RETRY_AFTER_MS);
        return false;
    }
    group->held_bytes += leg->held_bytes;
    leg->link = link;
    leg->retry_after_ms = 0;
    struct eb_peer_filter filter = find_servers(leg);
    link->slots[find_slot(leg->request_id)] = leg;
    eb_list_push(&link->legs, &leg->node);
    leg->call = (struct eb_dispatch_call){
        .group = &group->dispatch,
        .id = leg->request_id,
        .request = leg->request,
        .deadline_ns = leg->deadline_ns,
        .priority = leg->is_batch ? EB_PRIORITY_BATCH : EB_PRIORITY_INTERACTIVE,
        .source = leg->source,
        .names_version = true,
        .has_replicas = true,
        .changes_server = filter.instance_count == 0, /* It is not sent, nor tried again. */
        .filter = filter,
        .error = &leg->error,
    };
    leg->request = NULL;
    eb_dispatcher_take(&link->host.dispatcher, &leg->call);
    return true;
}

void eb_leg_link_abandon(struct eb_leg *leg, enum eb_status status, const char *text)
{
    eb_dispatcher_abandon(&leg->call, status, text);
}

bool eb_leg_link_run(struct eb_leg_link *link)
{
    /* No answer is being read, and the last one may have taken much memory. */
    eb_arena_reset(&link->arena, 0);
    return eb_dispatch_host_run(&link->host);
}

/* ---- counts ---- */

#define X(name, text)                                                                              \
    static_assert((int)EB_LEG_RESEND_##name == (int)EB_RESEND_##name, "one order of reasons");
EB_LEG_RESEND_LIST(X)
#undef X
static_assert((int)EB_LEG_RESENDS == (int)EB_RESEND_REASONS, "every reason has a name");
static_assert(EB_LEG_ADDRESS_BYTES >= EB_ADDRESS_TEXT_BYTES, "every address fits");

void eb_leg_link_note_slab_wait(struct eb_leg_link *link)
{
    link->totals.slab_waits++;
}

void eb_leg_link_note_unreached(struct eb_leg_link *link, uint64_t indices)
{
    link->totals.unreached += indices;
}

void eb_leg_link_count(const struct eb_leg_link *link, uint32_t part, struct eb_leg_counters *sum)
{
    const struct leg_group *group = link->groups[part];
    if (!group) {
        return;
    }
    const struct eb_dispatch_counters *sent = &group->dispatch.counters;
    struct eb_leg_counters counters = {
        .refusals = group->refusals,
        .hedges_won = sent->hedges_won,
        .hedges_lost = sent->hedges_lost,
        .sent_bytes = sent->sent_bytes,
        .answers = group->answers,
    };
    memcpy(counters.outcomes, group->outcomes, sizeof counters.outcomes);
    memcpy(counters.resends, sent->resent, sizeof counters.resends);
    eb_leg_counters_merge(sum, &counters);
}

struct eb_leg_totals eb_leg_link_totals(const struct eb_leg_link *link)
{
    return link->totals;
}

uint32_t eb_leg_link_peer_count(const struct eb_leg_link *link)
{
    return link->host.dispatcher.servers.count;
}

bool eb_leg_link_describe_peer(
    const struct eb_leg_link *link, uint32_t index, struct eb_leg_peer *out)
{
    const struct eb_peer *peer = link->host.dispatcher.servers.peers[index];
    bool is_connected = eb_peer_is_usable(peer);
    if (peer->is_twin || (!peer->is_listed && !is_connected)) {
        return false;
    }
    *out = (struct eb_leg_peer){
        .instance = peer->last_instance,
        .is_connected = is_connected,
        .is_suspect = peer->replica.suspicion.is_suspect,
        .is_ejected = peer->replica.ejection.is_out,
        .latency_ns = eb_peak_latency_now(&peer->replica.latency, uv_hrtime()),
        .sent = peer->sent,
        .failed = peer->failed,
    };
    eb_address_format(&peer->address, out->address);
    return true;
}

/* ---- start and end ---- */

static bool take_link_memory(struct eb_leg_link *link)
{
    link->slots = calloc(EB_LEGS_MAX, sizeof(struct eb_leg *));
    link->ids = calloc(EB_LEGS_MAX, sizeof *link->ids);
    link->free_slots = calloc(EB_LEGS_MAX, sizeof *link->free_slots);
    if (!link->slots || !link->ids || !link->free_slots) {
        return false;
    }
    for (uint32_t i = 0; i < EB_LEGS_MAX; i++) {
        link->ids[i] = i + 1;
        link->free_slots[i] = i;
    }
    link->free_count = EB_LEGS_MAX;
    return true;
}

static void on_link_read(void *context, struct eb_credentials_change change)
{
    struct eb_leg_link *link = context;
    if (change.is_token_new || change.is_tls_new) {
        eb_dispatcher_renew(&link->host.dispatcher, change.is_token_new);
    }
}

/* Reads the files and prepares their watch. */
static bool open_link_access(struct eb_leg_link *link, struct eb_error *error)
{
    const struct eb_leg_link_options *options = &link->options;
    struct eb_file_list files = {.files = NULL};
    if (!eb_credentials_open(
            &link->credentials, &options->access, options->targets, &files, error)) {
        eb_file_list_deinit(&files);
        return false;
    }
    if (!eb_credentials_watch_init(
            &link->renewal, &link->credentials, &options->access, options->targets, &files)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    link->renewal.on_read = on_link_read;
    link->renewal.context = link;
    return true;
}

static int open_link_handles(struct eb_leg_link *link, uv_loop_t *loop)
{
    int rc = eb_dispatch_host_open(&link->host, loop);
    if (rc == 0) {
        rc = eb_credentials_watch_start(&link->renewal, loop);
        if (rc != 0) {
            eb_dispatch_host_close(&link->host);
        }
    }
    return rc;
}

bool eb_leg_link_open(const struct eb_leg_link_options *options, uv_loop_t *loop,
    struct eb_leg_link **out, struct eb_error *error)
{
    struct eb_leg_link *link = calloc(1, sizeof *link);
    *out = link;
    if (!link) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    link->options = *options;
    eb_list_init(&link->legs);
    eb_arena_init(&link->arena, &eb_memory_heap);
    link->host = (struct eb_dispatch_host){.calls_max = EB_LEGS_MAX,
        .dispatcher = {.options = {.targets = options->targets,
                           .credentials = &link->credentials,
                           .connect_timeout_ns = options->connect_timeout_ns,
                           .unacknowledged_ms_max = options->unacknowledged_ms_max,
                           .resolve_interval_ns = options->resolve_interval_ns,
                           .connections = 1,
                           .asks_instances = true,
                           .retries_max = LEG_RETRIES_MAX,
                           .answer_bytes_max = options->values_bytes_max + ANSWER_BYTES_SPARE},
            .handler = &leg_handler,
            .context = link}};
    if (!open_link_access(link, error)) {
        return false;
    }
    int rc = take_link_memory(link) ? open_link_handles(link, loop) : UV_ENOMEM;
    if (rc != 0) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "%s", uv_strerror(rc));
    }
    return rc == 0;
}

void eb_leg_link_close(struct eb_leg_link *link)
{
    assert(eb_list_is_empty(&link->legs));
    eb_credentials_watch_stop(&link->renewal);
    eb_dispatch_host_close(&link->host);
}

void eb_leg_link_destroy(struct eb_leg_link *link)
{
    if (!link) {
        return;
    }
    eb_dispatch_host_deinit(&link->host);
    eb_credentials_watch_deinit(&link->renewal);
    eb_credentials_close(&link->credentials);
    for (uint32_t i = 0; i < EB_PARTS_MAX; i++) {
        free(link->groups[i]);
    }
    eb_route_table_destroy(link->routes);
    eb_arena_deinit(&link->arena);
    free(link->slots);
    free(link->ids);
    free(link->free_slots);
    free(link);
}
