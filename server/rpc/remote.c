#include "server/rpc/remote.h"

#include "proto/link/request_message.h"
#include "server/rpc/conn_state.h"
#include "server/rpc/remote_slice.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes that the arrays of a request's remote queries may take, beside its message and its answer:
 * for each index its part, number, position and weight, there and in the message of its leg. */
#define REMOTE_BYTES_PER_INDEX 96
#define REMOTE_BYTES_PER_BAG 96
#define REMOTE_BYTES_PER_FETCHED_ROW 40 /* more, for each row of a job that is only fetched */
#define REMOTE_BYTES_PER_QUERY 4096
#define REMOTE_BYTES_PER_PART 1024
#define REMOTE_BYTES_PER_LEG 4096
#define LEG_QUERIES_MAX 2048 /* most sub-queries of one leg */
/* Most slabs (route_slab_bytes) that the open legs of a request may ask for together. */
#define SLABS_OPEN_MAX 2
#define NO_LEG UINT32_MAX
/* Time kept for merging and sending: this fraction of what is left, but no more than 20 ms, which
 * a busy machine may need, and some time for each slice, since the last leg may complete many. */
#define MERGE_FRACTION 16
#define MERGE_NS_MAX UINT64_C(20000000)
#define SLICE_NS UINT64_C(200000)
/* Most time that a part server may have a caller wait before it sends a request again. */
#define PUSHBACK_MS_MAX 60000

bool eb_remote_refuse_memory(struct eb_lookup *lookup)
{
    return eb_plan_refuse_memory(&lookup->error, "the answers of part servers");
}

/* ---- splitting ---- */

/* Returns route_slab_bytes, but at most what an answer to a leg may have: that setting may have
 * been raised since the start. */
static uint64_t find_slab_bytes(const struct eb_lookup *lookup)
{
    uint64_t bytes_max = eb_leg_link_values_bytes_max(lookup->pool->legs);
    uint64_t slab_bytes = lookup->pool->limits.route_slab_bytes;
    return slab_bytes < bytes_max ? slab_bytes : bytes_max;
}

/* Returns the bytes that the remote arena may take: in proportion to what the request's other
 * limits allow. */
static size_t find_remote_bytes_max(const struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    size_t parts = plan->version->tables.part.parts;
    size_t rows_bytes = 0;
    for (const struct eb_plan_remote *remote = plan->remotes; remote; remote = remote->next) {
        const struct eb_bag_job *job = &plan->jobs[remote->number];
        size_t row_bytes = (size_t)job->table->row_elements * sizeof(uint64_t);
        /* A whole table's part sends a row for each bag. */
        size_t row_count = remote->row_count > job->bag_count ? remote->row_count : job->bag_count;
        rows_bytes += (row_count + parts + 2) * row_bytes;
        if (remote->is_fetched) {
            rows_bytes += remote->row_count * (size_t)REMOTE_BYTES_PER_FETCHED_ROW +
                          job->bag_count * (size_t)REMOTE_BYTES_PER_BAG;
        }
    }
    size_t list_bytes = plan->counts.index_count * REMOTE_BYTES_PER_INDEX +
                        plan->counts.result_rows * REMOTE_BYTES_PER_BAG;
    size_t slab_bytes = find_slab_bytes(lookup);
    /* Two slices that follow each other have more bytes than one may have. */
    size_t slice_count = plan->remote_count + 2 * rows_bytes / (slab_bytes / EB_SLICES_PER_SLAB);
    /* Each leg but the last of a part has half of the most bytes, in its request or its answer, or
     * the most slices. */
    size_t leg_count = parts + (rows_bytes + list_bytes) / (slab_bytes / 4 / parts + 1) +
                       parts * (slice_count / EB_SLICES_PER_LEG);
    return rows_bytes + list_bytes + leg_count * REMOTE_BYTES_PER_LEG +
           (slice_count + 1) * (REMOTE_BYTES_PER_QUERY + parts * REMOTE_BYTES_PER_PART);
}

/* Copies the plan's remote queries. */
static bool copy_queries(struct eb_remote *remote)
{
    const struct eb_plan *plan = &remote->lookup->plan;
    size_t number = plan->remote_count;
    remote->queries =
        eb_arena_take(&remote->lookup->remote_arena, number * sizeof *remote->queries);
    for (const struct eb_plan_remote *from = plan->remotes; remote->queries && from;
         from = from->next) {
        struct remote_query *query = &remote->queries[--number];
        *query = (struct remote_query){.plan = from, .job = plan->jobs[from->number]};
        query->job.out = NULL; /* No answer is laid out yet. */
    }
    remote->query_count = remote->queries ? plan->remote_count : 0;
    return remote->queries;
}

/* Returns false with lookup->error set if memory is short. */
static bool split_queries(struct eb_remote *remote)
{
    struct eb_lookup *lookup = remote->lookup;
    bool is_good = copy_queries(remote) && eb_remote_slices_begin(remote) &&
                   eb_route_legs_group(remote->items, remote->slice_count, &remote->caps,
                       &lookup->remote_arena, &remote->legs);
    if (!is_good && lookup->error.status == EB_STATUS_OK) {
        return eb_remote_refuse_memory(lookup);
    }
    return is_good;
}

/* ---- legs ---- */

void eb_remote_blame_part(
    const struct eb_remote *remote, const struct eb_leg *leg, struct eb_error *error)
{
    enum eb_status status = leg->error.status;
    if (status == EB_STATUS_INVALID_ARGUMENT || status == EB_STATUS_OUT_OF_RANGE ||
        status == EB_STATUS_CANCELLED) {
        status = EB_STATUS_INTERNAL;
    } else if (status == EB_STATUS_NOT_FOUND || status == EB_STATUS_FAILED_PRECONDITION ||
               status == EB_STATUS_UNAUTHENTICATED || status == EB_STATUS_PERMISSION_DENIED) {
        status = EB_STATUS_UNAVAILABLE;
    }
    eb_error_set(error, status,
        "part %" PRIu32 " of %" PRIu32 " of model \"%s\" version %" PRIu64 ": %s", leg->part,
        remote->lookup->version->tables.part.parts, leg->model, leg->version, leg->error.text);
}

/* Ends the lookup with the error of a leg. */
static void fail_for_part(struct eb_remote *remote, const struct eb_leg *leg)
{
    struct eb_lookup *lookup = remote->lookup;
    eb_remote_blame_part(remote, leg, &lookup->error);
    lookup->pushback_ms =
        leg->retry_after_ms < PUSHBACK_MS_MAX ? leg->retry_after_ms : PUSHBACK_MS_MAX;
}

bool eb_remote_is_left_out(const struct eb_remote *remote, const struct eb_leg *leg)
{
    return remote->lookup->request->allow_incomplete && eb_leg_outcome_of(leg) == EB_LEG_UNREACHED;
}

/* Returns whether only the results that need a leg fail with it. */
static bool fails_only_results(const struct eb_remote *remote, const struct eb_leg *leg)
{
    const struct eb_wire_request *request = remote->lookup->request;
    return request->errors_per_query && !request->concat &&
           leg->error.status != EB_STATUS_RESOURCE_EXHAUSTED;
}

static void abandon_legs(struct eb_remote *remote, const char *text)
{
    remote->is_ending = true;
    for (uint32_t i = 0; i < remote->legs.count; i++) {
        if (remote->sent[i].is_open) {
            eb_leg_link_abandon(&remote->sent[i].leg, EB_STATUS_CANCELLED, text);
        }
    }
    remote->is_ending = false;
}

static void end_if_over(struct eb_remote *remote)
{
    if (remote->open_count == 0 && !remote->is_ending) {
        struct eb_lookup *lookup = remote->lookup;
        lookup->pool->on_remote_over(lookup);
    }
}

static bool send_legs(struct eb_remote *remote);

/* Leaves out the rows of a leg. */
static bool leave_out(struct eb_remote *remote, const struct remote_leg *sent)
{
    bool is_good = true;
    for (uint32_t i = 0; i < sent->route->query_count && is_good; i++) {
        const struct eb_route_leg_query *query = &sent->route->queries[i];
        is_good = eb_route_merge_leave_out(
            &remote->items[query->item].merge, query->sub, &remote->lookup->remote_arena);
    }
    return is_good;
}

static void note_failed(struct eb_remote *remote, const struct remote_leg *sent)
{
    for (uint32_t i = 0; i < sent->route->query_count; i++) {
        remote->slices[sent->route->queries[i].item].has_failed = true;
    }
}

/* Does what a leg that is over means for the results. Returns false with lookup->error set if the
 * lookup fails. */
static bool settle_leg(struct eb_remote *remote, const struct remote_leg *sent)
{
    const struct eb_leg *leg = &sent->leg;
    bool is_good = true;
    if (leg->error.status != EB_STATUS_OK) {
        if (eb_remote_is_left_out(remote, leg)) {
            is_good = leave_out(remote, sent);
        } else if (fails_only_results(remote, leg)) {
            note_failed(remote, sent);
        } else {
            fail_for_part(remote, leg);
            return false;
        }
    }
    return (is_good && eb_remote_slices_note_over(remote, sent)) ||
           eb_remote_refuse_memory(remote->lookup);
}

static void on_remote_leg_over(struct eb_leg *leg)
{
    struct remote_leg *sent = EB_CONTAINER_OF(leg, struct remote_leg, leg);
    struct eb_remote *remote = sent->remote;
    struct eb_lookup *lookup = remote->lookup;
    bool is_failing = lookup->error.status != EB_STATUS_OK || remote->is_ending;
    sent->is_open = false;
    remote->open_count--;
    remote->open_bytes -= sent->route->answer_bytes_max;
    remote->parts[leg->part].open_count--;
    if (!is_failing) {
        lookup->shortages = eb_lookup_pool_shortages(lookup->pool);
    }
    if (!is_failing && (!settle_leg(remote, sent) || !send_legs(remote))) {
        abandon_legs(remote, "the rest of the request has failed");
    }
    end_if_over(remote);
}

static bool take_remote_answer(
    struct eb_leg *leg, const struct eb_wire_response *response, struct eb_error *error)
{
    const struct remote_leg *sent = EB_CONTAINER_OF(leg, struct remote_leg, leg);
    struct eb_remote *remote = sent->remote;
    if (eb_route_leg_take(sent->route, remote->items, &remote->version, response, error)) {
        return true;
    }
    if (error->status == EB_STATUS_FAILED_PRECONDITION) {
        error->status = EB_STATUS_NOT_FOUND; /* Another server may have the right files. */
    }
    return false;
}

/* Returns the trace that the lookup's message names, or else its call's. */
static const struct eb_trace_parent *find_lookup_trace(const struct eb_lookup *lookup)
{
    static const struct eb_trace_parent none;
    if (lookup->trace) {
        return lookup->trace;
    }
    return lookup->call ? lookup->call->call->trace : &none;
}

/* Makes the message of a leg. Returns NULL if out of memory. */
static struct eb_outgoing *make_leg_message(
    struct eb_remote *remote, const struct remote_leg *sent, uint64_t request_id)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_wire_request request = {
        .request_id = request_id,
        .priority = lookup->is_batch,
        .is_timed = true,
    };
    char trace[EB_TRACE_PARENT_BYTES];
    request.traceparent_bytes = eb_trace_parent_format(find_lookup_trace(lookup), trace);
    request.traceparent = trace;
    if (!eb_route_leg_fill(
            sent->route, remote->items, &remote->version, &lookup->remote_arena, &request)) {
        return NULL;
    }
    struct eb_outgoing *message = eb_request_message_create(
        eb_leg_link_memory(remote->link), 0, eb_lookup_request_bytes(&request));
    if (message) {
        eb_lookup_request_encode(&request, message->bytes + EB_GRPC_PREFIX_BYTES);
    }
    return message;
}

/* Returns the deadline of legs: some time before that of the lookup, in which the answers that have
 * come are merged. */
static uint64_t find_leg_deadline(const struct eb_remote *remote)
{
    const struct eb_lookup *lookup = remote->lookup;
    uint64_t now_ns = uv_hrtime();
    uint64_t left_ns = lookup->deadline_ns > now_ns ? lookup->deadline_ns - now_ns : 0;
    uint64_t merge_ns = left_ns / MERGE_FRACTION;
    uint64_t merge_ns_max = MERGE_NS_MAX + remote->is_sliced * remote->slice_count * SLICE_NS;
    return lookup->deadline_ns - (merge_ns < merge_ns_max ? merge_ns : merge_ns_max);
}

/* Makes a leg and sends it. Returns false if there is no memory, or if there are too many legs. */
static bool send_remote_leg(struct eb_remote *remote, uint32_t number)
{
    struct eb_lookup *lookup = remote->lookup;
    struct remote_leg *sent = &remote->sent[number];
    uint64_t id = eb_leg_link_take_id(remote->link);
    *sent = (struct remote_leg){.remote = remote, .route = &remote->legs.legs[number]};
    struct remote_part *part = &remote->parts[sent->route->part];
    struct eb_outgoing *message = id == 0 ? NULL : make_leg_message(remote, sent, id);
    sent->leg = (struct eb_leg){
        .model = remote->version.model,
        .version = remote->version.version,
        .digest = remote->version.digest,
        .part = sent->route->part,
        .source = lookup->conn,
        .is_batch = lookup->is_batch,
        .is_further = part->has_sent,
        .deadline_ns = remote->leg_deadline_ns,
        .request = message,
        .request_id = id,
        .held_bytes = sent->route->answer_bytes_max + (message ? message->size : 0),
        .take = take_remote_answer,
        .on_over = on_remote_leg_over,
    };
    if (message && eb_leg_link_send(remote->link, &sent->leg)) {
        sent->is_open = true;
        remote->open_count++;
        remote->open_bytes += sent->route->answer_bytes_max;
        part->open_count++;
        part->has_sent = true;
        return true;
    }
    if (message) {
        eb_outgoing_drop(message);
    }
    if (id != 0) {
        eb_leg_link_give_id(remote->link, id);
    }
    if (sent->leg.error.status != EB_STATUS_OK) {
        fail_for_part(remote, &sent->leg);
        return false;
    }
    if (id == 0) {
        lookup->pushback_ms = EB_LEG_RETRY_AFTER_MS;
        eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "a loop of this router has %d requests to part servers in flight, its most; retry in "
            "%d ms",
            EB_LEGS_MAX, EB_LEG_RETRY_AFTER_MS);
        return false;
    }
    return eb_remote_refuse_memory(lookup);
}

/* Returns whether every part that has a leg is at some server. If not, sets lookup->error, unless
 * only some results fail. */
static bool check_parts_there(struct eb_remote *remote)
{
    struct eb_lookup *lookup = remote->lookup;
    const struct eb_route_version *version = &remote->version;
    const struct eb_route_entry *entry = eb_route_table_find(
        eb_leg_link_routes(remote->link), version->model, version->version, version->digest);
    for (uint32_t i = 0; i < remote->legs.count; i++) {
        uint32_t part = remote->legs.legs[i].part;
        size_t count = 0;
        if (entry && part < entry->parts) {
            (void)eb_route_entry_instances(entry, part, &count);
        }
        if (count == 0 && !lookup->request->errors_per_query &&
            !lookup->request->allow_incomplete) {
            eb_error_set(&lookup->error, EB_STATUS_UNAVAILABLE,
                "part %" PRIu32 " of %" PRIu32 " of model \"%s\" version %" PRIu64
                ": no server that has it is connected",
                part, lookup->version->tables.part.parts, version->model, version->version);
            return false;
        }
    }
    return true;
}

/* Returns whether the next leg to a part may be sent, if no query is cut into slices: if the
 * answers of all open legs then fit into SLABS_OPEN_MAX slabs. One leg to each part always may, so
 * that a part that does not answer holds nothing back but its own legs. */
static bool may_send_uncut(const struct eb_remote *remote, const struct remote_part *part)
{
    uint64_t bytes_max = SLABS_OPEN_MAX * remote->slab_bytes;
    return part->open_count == 0 ||
           remote->open_bytes + remote->legs.legs[part->next].answer_bytes_max <= bytes_max;
}

/* Returns whether it may be sent if some are cut. The answers of all open legs fit into a slab, and
 * so do the rows of all slices, but the oldest slice waits for nothing. If the answer may do
 * without some rows or results, a part that does not answer holds nothing back. */
static bool may_send_cut(const struct eb_remote *remote, const struct remote_part *part)
{
    const struct eb_wire_request *request = remote->lookup->request;
    const struct eb_route_leg *leg = &remote->legs.legs[part->next];
    if (part->open_count == 0 &&
        (request->allow_incomplete || (request->errors_per_query && !request->concat))) {
        return true;
    }
    return eb_remote_slices_may_open(remote, leg) &&
           (part->open_count == 0 ||
               remote->open_bytes + leg->answer_bytes_max <= remote->slab_bytes);
}

static bool may_send(const struct eb_remote *remote, const struct remote_part *part)
{
    return part->next != NO_LEG &&
           (remote->is_sliced ? may_send_cut(remote, part) : may_send_uncut(remote, part));
}

/* Sends the next leg to a part. Returns false with lookup->error set if it cannot be sent. */
static bool send_next(struct eb_remote *remote, struct remote_part *part)
{
    uint32_t number = part->next;
    part->next = remote->sent[number].next;
    if (!eb_remote_slices_open(remote, &remote->legs.legs[number])) {
        return eb_remote_refuse_memory(remote->lookup);
    }
    return send_remote_leg(remote, number);
}

/* Ends the legs of a part that are not sent, because their answers would come too late. */
static bool expire_legs(struct eb_remote *remote, struct remote_part *part)
{
    bool is_good = true;
    while (part->next != NO_LEG && is_good) {
        const struct eb_route_leg *route = &remote->legs.legs[part->next];
        struct remote_leg *late = &remote->sent[part->next];
        part->next = late->next;
        *late = (struct remote_leg){.remote = remote,
            .route = route,
            .leg = {.model = remote->version.model,
                .version = remote->version.version,
                .part = route->part}};
        eb_error_set(&late->leg.error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before it could be asked");
        remote->sent_count++;
        is_good = settle_leg(remote, late);
    }
    return is_good;
}

/* Ends the legs that are not sent once their deadline has passed. */
static bool expire_all(struct eb_remote *remote)
{
    uint32_t part_count = remote->lookup->version->tables.part.parts;
    bool is_late =
        remote->sent_count < remote->legs.count && uv_hrtime() >= remote->leg_deadline_ns;
    bool is_good = true;
    for (uint32_t p = 0; is_late && p < part_count && is_good; p++) {
        is_good = expire_legs(remote, &remote->parts[p]);
    }
    return is_good;
}

/* Sends as many of the next legs as may be open, to the parts in turn. If one cannot be sent,
 * returns false with lookup->error set, and gives up those that are open. */
static bool send_legs(struct eb_remote *remote)
{
    uint32_t part_count = remote->lookup->version->tables.part.parts;
    if (!expire_all(remote)) {
        abandon_legs(remote, "another leg came too late");
        return false;
    }
    for (bool is_any = true; is_any;) {
        is_any = false;
        for (uint32_t p = 0; p < part_count; p++) {
            if (!may_send(remote, &remote->parts[p])) {
                continue;
            }
            if (!send_next(remote, &remote->parts[p])) {
                abandon_legs(remote, "another leg could not be sent");
                return false;
            }
            remote->sent_count++;
            is_any = true;
        }
    }
    if (remote->sent_count < remote->legs.count && !remote->has_waited) {
        remote->has_waited = true;
        eb_leg_link_note_slab_wait(remote->link);
    }
    return true;
}

/* Lists the legs of each part. Returns false with lookup->error set if out of memory. */
static bool list_legs(struct eb_remote *remote)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_arena *arena = &lookup->remote_arena;
    uint32_t part_count = lookup->version->tables.part.parts;
    remote->sent = eb_arena_take(arena, remote->legs.count * sizeof *remote->sent);
    remote->parts = eb_arena_take(arena, part_count * sizeof *remote->parts);
    if (!remote->sent || !remote->parts) {
        return eb_remote_refuse_memory(lookup);
    }
    for (uint32_t p = 0; p < part_count; p++) {
        remote->parts[p] = (struct remote_part){.next = NO_LEG};
    }
    for (uint32_t i = remote->legs.count; i > 0; i--) {
        struct remote_part *part = &remote->parts[remote->legs.legs[i - 1].part];
        remote->sent[i - 1].is_open = false;
        remote->sent[i - 1].next = part->next;
        part->next = i - 1;
    }
    return true;
}

bool eb_remote_prepare(struct eb_lookup *lookup)
{
    struct eb_arena *arena = &lookup->remote_arena;
    uint64_t slab_bytes = find_slab_bytes(lookup);
    eb_arena_reset(arena, find_remote_bytes_max(lookup));
    struct eb_remote *remote = eb_arena_take(arena, sizeof *remote);
    if (!remote) {
        return eb_remote_refuse_memory(lookup);
    }
    *remote = (struct eb_remote){.lookup = lookup,
        .link = lookup->pool->legs,
        .memory = &lookup->pool->answer_memory,
        .slab_bytes = slab_bytes,
        .caps = {.request_bytes = slab_bytes / 2,
            .answer_bytes = slab_bytes,
            .queries = LEG_QUERIES_MAX},
        .version = {
            lookup->version->model, lookup->version->version, lookup->version->tables.manifest}};
    lookup->remote = remote;
    return split_queries(remote) && check_parts_there(remote) && list_legs(remote);
}

bool eb_remote_send(struct eb_lookup *lookup)
{
    lookup->remote->leg_deadline_ns = find_leg_deadline(lookup->remote);
    return send_legs(lookup->remote);
}

bool eb_remote_is_open(const struct eb_lookup *lookup)
{
    return lookup->remote->open_count > 0;
}

void eb_remote_abandon(struct eb_lookup *lookup)
{
    struct eb_remote *remote = lookup->remote;
    if (lookup->error.status == EB_STATUS_OK) {
        eb_error_set(&lookup->error, EB_STATUS_CANCELLED, "the request was cancelled");
    }
    abandon_legs(remote, "the request was cancelled");
    end_if_over(remote);
}

void eb_remote_free(struct eb_lookup *lookup)
{
    eb_remote_slices_free(lookup->remote);
    lookup->remote = NULL;
}
