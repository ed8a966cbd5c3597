#include "server/rpc/health_service.h"

#include "proto/codec_health.h"
#include "server/route/leg_link.h"
#include "server/rpc/auth_call.h"
#include "server/rpc/catalogue.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Longest name of a service. Names of up to this length are accepted even if name_bytes_max is
 * less. */
#define SERVICE_NAME_BYTES_MAX 64

/* One call of Watch. */
struct eb_health_watch {
    struct eb_rpc_call *call;
    struct eb_list link;        /* in the list of the loop's watches */
    enum eb_health_status told; /* the last status sent; UNKNOWN if none was */
    char name[];
};

/* ---- health ---- */

static bool is_service(const char *name)
{
    const struct eb_method_table *table;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        if (strcmp(name, table->service) == 0) {
            return true;
        }
    }
    return name[0] == '\0';
}

/* The state that a status is derived from, and the caller that it is sent to. */
struct view {
    const struct eb_snapshot *snapshot;
    const struct eb_route_table *routes; /* as in struct eb_unary_request */
    const struct eb_principal *caller;   /* gets no status of models that it may not see */
    bool is_leaving;
    bool is_unready; /* concerns the server itself, but none of its services and models */
};

static enum eb_health_status find_health(const struct view *view, const char *name)
{
    bool is_ours = is_service(name);
    const struct eb_snapshot_model *model = is_ours ? NULL : eb_snapshot_find(view->snapshot, name);
    if (!is_ours && (!model || !eb_principal_may_see(view->caller, name))) {
        return EB_HEALTH_SERVICE_UNKNOWN;
    }
    bool is_unready = name[0] == '\0' && (view->is_unready || view->snapshot->not_ready);
    bool is_ready = is_ours ? !is_unready : eb_catalogue_is_complete(view->routes, model->served);
    return is_ready && !view->is_leaving ? EB_HEALTH_SERVING : EB_HEALTH_NOT_SERVING;
}

static struct view view_of(const struct eb_unary_request *unary)
{
    return (struct view){
        unary->snapshot, unary->routes, unary->caller, unary->is_leaving, unary->is_unready};
}

static uint32_t name_bytes_max(const struct eb_limits *limits)
{
    uint64_t of_models = limits->name_bytes_max;
    return (uint32_t)(of_models > SERVICE_NAME_BYTES_MAX ? of_models : SERVICE_NAME_BYTES_MAX);
}

/* ---- Check and List ---- */

static struct eb_outgoing *check_health(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    const char *name = eb_health_request_decode(
        unary->arena, unary->bytes, unary->size, name_bytes_max(unary->limits), error);
    if (!name) {
        return NULL;
    }
    struct view view = view_of(unary);
    enum eb_health_status status = find_health(&view, name);
    if (status == EB_HEALTH_SERVICE_UNKNOWN) {
        eb_error_set(
            error, EB_STATUS_NOT_FOUND, "no service or model \"%s\"; List shows all of them", name);
        return NULL;
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_health_response_bytes(status), error);
    if (answer) {
        eb_health_response_encode(status, eb_reply_body(answer));
    }
    return answer;
}

/* Lists the server, its services, and the models that the caller may see, and sets *count. Returns
 * NULL if the arena is full. */
static struct eb_wire_health *name_all(const struct eb_unary_request *unary, size_t *count)
{
    size_t service_count = eb_method_table_count();
    const struct eb_snapshot *snapshot = unary->snapshot;
    struct eb_wire_health *items =
        eb_arena_take(unary->arena, (1 + service_count + snapshot->count) * sizeof *items);
    if (!items) {
        return NULL;
    }
    *count = 0;
    items[(*count)++].name = "";
    for (size_t i = 0; i < service_count; i++) {
        items[(*count)++].name = eb_method_table_at(i)->service;
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        if (eb_principal_may_see(unary->caller, snapshot->models[i].name)) {
            items[(*count)++].name = snapshot->models[i].name;
        }
    }
    return items;
}

static struct eb_outgoing *list_health(const struct eb_unary_request *unary, struct eb_error *error)
{
    size_t count;
    if (!eb_empty_decode(unary->bytes, unary->size, error)) {
        return NULL;
    }
    struct eb_wire_health *items = name_all(unary, &count);
    if (!items) {
        return eb_unary_refuse_memory(error);
    }
    struct view view = view_of(unary);
    for (size_t i = 0; i < count; i++) {
        items[i].status = find_health(&view, items[i].name);
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_health_list_bytes(items, count), error);
    if (answer) {
        eb_health_list_encode(items, count, eb_reply_body(answer));
    }
    return answer;
}

/* ---- Watch ---- */

/* Sends the status if it has changed. If it cannot be sent now, the next tick sends it. A change of
 * the access rules can also change the status; the next tick sends that too. */
static void tell_watch(struct eb_rpc_call *call)
{
    struct eb_health_watch *watch = call->watch;
    const struct eb_lookup_pool *lookups = &call->conn->loop->lookups;
    struct eb_error error;
    bool is_leaving = call->conn->loop->is_leaving || eb_loop_is_draining(lookups->loop);
    struct view view = {.snapshot = lookups->snapshot,
        .routes = lookups->legs ? eb_leg_link_routes(lookups->legs) : NULL,
        .caller = eb_auth_call_renew(call, &error),
        .is_leaving = is_leaving,
        .is_unready = call->conn->loop->is_unready};
    assert(view.caller); /* Access is EB_METHOD_FOR_ALL. */
    enum eb_health_status status = find_health(&view, watch->name);
    if (status == watch->told || call->is_finished ||
        eb_conn_waiting_bytes(call->conn->conn) >= EB_RPC_STREAMING_WAITING_BYTES_MAX) {
        return;
    }
    struct eb_outgoing *message =
        eb_reply_take(eb_loop_answer_pool(lookups->loop), eb_health_response_bytes(status));
    if (message) {
        eb_health_response_encode(status, eb_reply_body(message));
        eb_rpc_call_answer(call, message);
        eb_conn_mark(call->conn->conn);
        watch->told = status;
    }
}

/* Does nothing for a call whose request is not complete yet. */
static void tell_if_begun(struct eb_rpc_call *call)
{
    if (call->watch) {
        tell_watch(call);
    }
}

static void link_watch(struct eb_health_watch *watch, struct eb_rpc_call *call)
{
    struct eb_service_loop *loop = call->conn->loop;
    watch->call = call;
    eb_list_push(&loop->watches, &watch->link);
    call->watch = watch;
    call->conn->watch_count++;
}

static void forget_watch(struct eb_rpc_call *call)
{
    struct eb_health_watch *watch = call->watch;
    if (watch) {
        eb_list_remove(&watch->link);
        call->conn->watch_count--;
        call->watch = NULL;
        free(watch);
    }
}

/* Returns NULL with *error set if out of memory. */
static struct eb_health_watch *create_watch(const char *name, struct eb_error *error)
{
    size_t name_bytes = strlen(name) + 1;
    struct eb_health_watch *watch = calloc(1, sizeof *watch + name_bytes);
    if (watch) {
        memcpy(watch->name, name, name_bytes);
    } else {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
    }
    return watch;
}

/* Creates the watch that a message requests. Returns NULL with *error set if it cannot. */
static struct eb_health_watch *read_watch(
    struct eb_rpc_call *call, const struct eb_grpc_message *message, struct eb_error *error)
{
    struct eb_service_loop *loop = call->conn->loop;
    const struct eb_limits *limits = eb_rpc_conn_limits(call->conn);
    struct eb_health_watch *watch = NULL;
    eb_arena_reset(&loop->arena, limits->response_bytes_max);
    const char *name = eb_health_request_decode(
        &loop->arena, message->bytes, message->size, name_bytes_max(limits), error);
    if (name && call->conn->watch_count == EB_HEALTH_WATCHES_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "this connection watches %d names already; end one of these calls",
            EB_HEALTH_WATCHES_MAX);
    } else if (name) {
        watch = create_watch(name, error);
    }
    eb_arena_reset(&loop->arena, 0);
    return watch;
}

static void end_watch(struct eb_rpc_call *call)
{
    eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
        "the server is closing this connection; watch over another one, or on another server if "
        "this one is shutting down",
        0);
}

static void start_watch(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    struct eb_error error;
    struct eb_health_watch *watch = read_watch(call, message, &error);
    if (!watch) {
        eb_rpc_call_refuse(call, &error);
        return;
    }
    link_watch(watch, call);
    tell_watch(call);
    if (eb_loop_is_draining(eb_rpc_call_loop(call))) {
        end_watch(call);
    }
}

void eb_health_service_update(struct eb_service_loop *loop)
{
    for (struct eb_list *link = loop->watches.next; link != &loop->watches; link = link->next) {
        tell_watch(EB_CONTAINER_OF(link, struct eb_health_watch, link)->call);
    }
}

/* ---- methods ---- */

static const struct eb_method methods[] = {
    {"Check", EB_METHOD_UNARY, .answer = check_health},
    {"List", EB_METHOD_UNARY, .answer = list_health},
    {"Watch", EB_METHOD_SERVER_STREAMING, .start = start_watch, .on_tick = tell_if_begun,
        .on_notice = tell_if_begun, .on_drain = end_watch, .on_close = forget_watch},
};

const struct eb_method_table eb_health_service_methods = {
    .service = "grpc.health.v1.Health",
    .access = EB_METHOD_FOR_ALL,
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
