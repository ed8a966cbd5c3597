#include "server/rpc/watch_service.h"

#include "server/rpc/auth_call.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"
#include "server/rpc/watch_claims.h"

#include <stdlib.h>
#include <string.h>

/* One call of WatchModels. */
struct eb_model_watch {
    struct eb_rpc_call *call;
    struct eb_list link;            /* in the list of the loop's watches */
    struct eb_watch_claims *claims; /* NULL if it has none */
};

/* ---- holdings ---- */

static void describe_part(
    const struct eb_part_choice *part, bool is_owned, struct eb_wire_holding *holding)
{
    holding->parts = part->parts;
    holding->owned_part_count = is_owned && part->parts > 0;
    holding->owned_parts = &part->part;
}

/* Sets the fields that say which part of a version's content this server, whose part is `part`,
 * has. Before a version is loaded, they are known only if it is in parts. */
static void describe_content(const struct eb_part_choice *part,
    const struct eb_snapshot_version *version, struct eb_wire_holding *holding)
{
    bool is_to_load = version->state == EB_VERSION_LOADING || version->state == EB_VERSION_FAILED;
    if (version->loaded) {
        const struct eb_table_set *tables = &version->loaded->tables;
        holding->digest = tables->part.parts > 0 ? tables->manifest : tables->digest;
        describe_part(&tables->part, !tables->is_router, holding);
    } else if (is_to_load && version->manifest != 0) {
        holding->digest = version->manifest;
        describe_part(part, true, holding);
    }
}

/* Describes a version of a server with the part `part`. Leaves out its error text if it has more
 * than *left_bytes, from which it subtracts the text's bytes. */
static struct eb_wire_holding describe_holding(const struct eb_part_choice *part,
    const struct eb_snapshot_model *model, const struct eb_snapshot_version *version,
    size_t *left_bytes)
{
    struct eb_wire_holding holding = {.model = model->name,
        .version = version->number,
        .state = (int32_t)version->state,
        .error = version->failure ? version->failure : "",
        .served_by_router = version->is_served_by_router,
        .claimed = version->is_claimed};
    size_t error_bytes = strlen(holding.error);
    if (error_bytes > *left_bytes) {
        holding.error = "";
    } else {
        *left_bytes -= error_bytes;
    }
    describe_content(part, version, &holding);
    return holding;
}

/* Returns at most EB_WATCH_HOLDINGS_MAX versions. The first call, with `items` NULL, only counts
 * them. A directory whose name is not a version number cannot be claimed and is left out. */
static size_t list_holdings(const struct eb_service_loop *loop, const struct eb_principal *caller,
    struct eb_wire_holding *items)
{
    const struct eb_snapshot *snapshot = loop->lookups.snapshot;
    size_t left_bytes = EB_WATCH_ERROR_BYTES_MAX;
    size_t count = 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct eb_snapshot_model *model = &snapshot->models[i];
        bool is_seen = eb_principal_may_see(caller, model->name);
        for (size_t k = 0; is_seen && k < model->version_count; k++) {
            const struct eb_snapshot_version *version = &model->versions[k];
            if (version->number == 0 || count == EB_WATCH_HOLDINGS_MAX) {
                continue;
            }
            if (items) {
                items[count] =
                    describe_holding(&loop->service->facts.part, model, version, &left_bytes);
            }
            count++;
        }
    }
    return count;
}

/* Returns the message for one caller, or NULL if no memory is left for it. Resets the loop's
 * arena. */
static struct eb_outgoing *make_holdings(
    struct eb_service_loop *loop, const struct eb_principal *caller)
{
    size_t count = list_holdings(loop, caller, NULL);
    struct eb_outgoing *message = NULL;
    size_t items_bytes = (count + 1) * sizeof(struct eb_wire_holding);
    eb_arena_reset(&loop->arena, eb_arena_round(items_bytes));
    struct eb_wire_holding *items = eb_arena_take(&loop->arena, items_bytes);
    if (items) {
        struct eb_wire_holdings holdings = {
            .count = list_holdings(loop, caller, items),
            .items = items,
            .draining = loop->is_leaving || eb_loop_is_draining(loop->lookups.loop),
            .instance = loop->service->facts.instance,
            .level = EB_WATCH_LEVEL,
        };
        message =
            eb_reply_take(eb_loop_answer_pool(loop->lookups.loop), eb_holdings_bytes(&holdings));
        if (message) {
            eb_holdings_encode(&holdings, eb_reply_body(message));
        }
    }
    eb_arena_reset(&loop->arena, 0);
    return message;
}

/* Sends the holdings. If they cannot be sent now, the next tick sends them. Does nothing for a call
 * whose request is not complete yet. */
void eb_watch_service_tell(struct eb_rpc_call *call)
{
    struct eb_error error;
    if (!call->models || call->is_finished ||
        eb_conn_waiting_bytes(call->conn->conn) >= EB_WATCH_WAITING_BYTES_MAX) {
        return;
    }
    const struct eb_principal *caller = eb_auth_call_renew(call, &error);
    if (!caller) {
        eb_rpc_call_finish(call, error.status, error.text, 0);
        return;
    }
    struct eb_outgoing *message = make_holdings(call->conn->loop, caller);
    if (message) {
        eb_rpc_call_answer(call, message);
        eb_conn_mark(call->conn->conn);
    }
}

void eb_watch_service_update(struct eb_service_loop *loop)
{
    uint64_t now_ms = eb_loop_now_ms(loop->lookups.loop);
    uint64_t due_ms = loop->holdings_told_ms + EB_WATCH_INTERVAL_MS;
    if (eb_list_is_empty(&loop->model_watches)) {
        return;
    }
    if (now_ms < due_ms) {
        eb_loop_call_later(loop->lookups.loop, due_ms - now_ms);
        return;
    }
    loop->holdings_told_ms = now_ms;
    struct eb_list *next;
    for (struct eb_list *link = loop->model_watches.next; link != &loop->model_watches;
         link = next) {
        next = link->next;
        eb_watch_service_tell(EB_CONTAINER_OF(link, struct eb_model_watch, link)->call);
    }
}

/* ---- beginning and end ---- */

/* Begins the watch that a decoded request asks for. Returns NULL with *error set if it is
 * refused. */
static struct eb_model_watch *create_model_watch(
    struct eb_rpc_call *call, const struct eb_wire_watch_request *request, struct eb_error *error)
{
    if (call->conn->model_watch_count == EB_WATCHES_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "this connection has %d calls of WatchModels already; end one of them", EB_WATCHES_MAX);
        return NULL;
    }
    const struct eb_principal *caller = eb_auth_call_renew(call, error);
    struct eb_model_watch *watch = caller ? calloc(1, sizeof *watch) : NULL;
    if (caller && !watch) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
    }
    if (watch && !eb_watch_claims_begin(call->conn->loop, caller, request, &watch->claims, error)) {
        free(watch);
        return NULL;
    }
    return watch;
}

void eb_watch_service_start(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    struct eb_service_loop *loop = call->conn->loop;
    const struct eb_limits *limits = eb_rpc_conn_limits(call->conn);
    struct eb_error error;
    eb_arena_reset(&loop->arena, limits->response_bytes_max);
    const struct eb_wire_watch_request *request = eb_watch_request_decode(
        &loop->arena, message->bytes, message->size, (uint32_t)limits->name_bytes_max, &error);
    struct eb_model_watch *watch = request ? create_model_watch(call, request, &error) : NULL;
    eb_arena_reset(&loop->arena, 0);
    if (!watch) {
        eb_rpc_call_refuse(call, &error);
        return;
    }
    watch->call = call;
    eb_list_push(&loop->model_watches, &watch->link);
    call->models = watch;
    call->conn->model_watch_count++;
    eb_watch_service_tell(call);
    if (eb_loop_is_draining(loop->lookups.loop)) {
        eb_watch_service_end(call);
    }
}

void eb_watch_service_end(struct eb_rpc_call *call)
{
    eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
        "the server is closing this connection; watch over another one, or on another server if "
        "this one is shutting down",
        0);
}

void eb_watch_service_forget(struct eb_rpc_call *call)
{
    struct eb_model_watch *watch = call->models;
    if (watch) {
        eb_list_remove(&watch->link);
        call->conn->model_watch_count--;
        call->models = NULL;
        eb_watch_claims_end(watch->claims);
        free(watch);
    }
}
