#include "server/rpc/service.h"

#include "server/route/leg_link.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/auth_call.h"
#include "server/rpc/backpressure.h"
#include "server/rpc/health_service.h"
#include "server/rpc/infer_service.h"
#include "server/rpc/lookup.h"
#include "server/rpc/orca_service.h"
#include "server/rpc/outcome.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/route_count.h"
#include "server/rpc/rpc_call.h"
#include "server/rpc/watch_service.h"

#include <assert.h>
#include <stdlib.h>

/* Most bytes of messages that one connection's unary calls may hold, as a number of messages of the
 * largest size. Lookups and other calls are limited separately. */
#define HELD_MESSAGES_MAX 2

const struct eb_method_table *const eb_method_tables[] = {
    &eb_lookup_service_methods,
    &eb_admin_service_methods,
    &eb_health_service_methods,
    &eb_reflection_service_methods,
    &eb_reflection_service_alpha_methods,
    &eb_infer_service_methods,
    &eb_orca_service_methods,
    NULL,
};

/* ---- requests ---- */

/* Counts a call that is not a lookup if it was refused for lack of memory. `shortages` is the count
 * before the call was handled. */
static void account_memory(const struct eb_rpc_call *call, uint64_t shortages)
{
    bool is_refused = call->is_finished && call->call->status == EB_STATUS_RESOURCE_EXHAUSTED;
    if (is_refused && eb_lookup_pool_shortages(&call->conn->loop->lookups) != shortages) {
        eb_outcome_count_refusal(call->conn, EB_REFUSAL_MEMORY);
    }
}

/* Reports a request of a stream that was answered. */
static void report_answered(struct eb_rpc_call *call)
{
    struct eb_outcome outcome = {.subject = EB_OUTCOME_REQUEST,
        .status = EB_STATUS_OK,
        .conn = call->conn,
        .call = call,
        .method_index = call->method_index};
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
    eb_outcome_report(&outcome, EB_OUTCOME_GONE);
}

/* Answers a request at once and gives the message back. Returns false if the request has failed,
 * which ends the call. */
static bool answer_unary(struct eb_rpc_call *call, struct eb_grpc_message message)
{
    struct eb_service_loop *loop = call->conn->loop;
    uint64_t shortages = eb_lookup_pool_shortages(&call->conn->loop->lookups);
    struct eb_error error;
    struct eb_unary_request unary = {
        .snapshot = loop->lookups.snapshot,
        .routes = loop->lookups.legs ? eb_leg_link_routes(loop->lookups.legs) : NULL,
        .caller = eb_auth_call_renew(call, &error),
        .facts = &loop->service->facts,
        .limits = eb_rpc_conn_limits(call->conn),
        .arena = &loop->arena,
        .pool = eb_loop_answer_pool(loop->lookups.loop),
        .is_leaving = loop->is_leaving || eb_loop_is_draining(loop->lookups.loop),
        .is_unready = loop->is_unready,
        .bytes = message.bytes,
        .size = message.size,
    };
    eb_arena_reset(&loop->arena, eb_rpc_conn_limits(call->conn)->response_bytes_max);
    struct eb_outgoing *made = unary.caller ? call->method->answer(&unary, &error) : NULL;
    eb_arena_reset(&loop->arena, 0);
    eb_rpc_conn_give_message(call->conn, &message);
    if (made) {
        if (eb_rpc_call_is_stream(call)) {
            report_answered(call);
        }
        eb_rpc_call_answer(call, made);
        eb_conn_mark(call->conn->conn);
    } else {
        eb_rpc_call_refuse(call, &error);
        account_memory(call, shortages);
    }
    return made;
}

/* Starts a server-streaming call, if its caller may still make it. */
static void start_server_streaming(struct eb_rpc_call *call)
{
    uint64_t shortages = eb_lookup_pool_shortages(&call->conn->loop->lookups);
    struct eb_error error;
    if (eb_auth_call_renew(call, &error)) {
        struct eb_grpc_message message = eb_grpc_call_take_message(call->call);
        call->method->start(call, &message);
        eb_rpc_conn_give_message(call->conn, &message);
        account_memory(call, shortages);
    } else {
        eb_rpc_call_finish(call, error.status, error.text, 0);
    }
}

/* Starts a call that is not a stream and whose request is complete. */
static void start_ready(struct eb_rpc_call *call)
{
    struct eb_conn *conn = call->conn->conn;
    if (call->method->start) {
        start_server_streaming(call);
        (void)eb_conn_end_message(conn, uv_hrtime());
        return;
    }
    struct eb_grpc_message message = eb_grpc_call_take_message(call->call);
    if (call->method->codec) {
        eb_lookup_start(call, message, call->arrival_ns);
        return;
    }
    if (answer_unary(call, message)) {
        eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
    (void)eb_conn_end_message(conn, uv_hrtime());
}

/* Starts a call that is not a stream, refuses it, or lets it wait. Its request is complete. */
static void start_call(struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    enum eb_backpressure why = eb_backpressure_of_start(call);
    if (why == EB_BACKPRESSURE_LIMIT) {
        eb_outcome_count_refusal(call->conn, EB_REFUSAL_IN_FLIGHT);
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "this connection has too many requests in flight (in_flight_max)", 0);
        return;
    }
    if (why != EB_BACKPRESSURE_NONE) {
        call->is_waiting = true;
        conn->waiting_count++;
        return;
    }
    start_ready(call);
}

/* Resumes reading a stream. Returns whether it still has messages kept back, which are delivered
 * one after the other. */
static bool unpause(struct eb_rpc_call *call)
{
    call->is_paused = false;
    call->conn->paused_count--;
    eb_grpc_call_resume(call->call);
    return eb_grpc_call_has_kept(call->call);
}

/* Resumes, in order, the calls that wait until the connection may do more. Stops at the first
 * stream that still has messages kept back and moves it to the end of the queue: its next message,
 * or the next write, calls this function again. A call that is started here may end at once and
 * also call this function, so a nested call does nothing. */
static void resume_call(struct eb_rpc_conn *conn)
{
    if (conn->is_resuming || conn->paused_count + conn->waiting_count == 0 ||
        eb_conn_is_ending(conn->conn)) {
        return;
    }
    conn->is_resuming = true;
    for (struct eb_list *link = conn->calls.next;
         link != &conn->calls && eb_backpressure_of_conn(conn) == EB_BACKPRESSURE_NONE;
         link = link->next) {
        struct eb_rpc_call *call = EB_CONTAINER_OF(link, struct eb_rpc_call, link);
        if (call->is_waiting) {
            eb_rpc_call_end_waiting(call);
            start_ready(call);
        } else if (call->is_paused && !call->is_draining && !eb_backpressure_is_queue_full(call) &&
                   unpause(call)) {
            eb_list_remove(&call->link);
            eb_list_push(&conn->calls, &call->link);
            eb_conn_mark(conn->conn);
            break;
        }
    }
    conn->is_resuming = false;
}

/* ---- events of a connection's calls ---- */

static uint64_t call_deadline_ns(const struct eb_rpc_call *call)
{
    uint64_t now_ns = eb_conn_looked_ns(call->conn->conn);
    uint64_t timeout_us = eb_method_timeout_us(call->method, call->call->timeout_us,
        eb_rpc_conn_limits(call->conn)->deadline_max_ms * 1000);
    bool endless = timeout_us == 0 || timeout_us > (UINT64_MAX - now_ns) / 1000;
    return endless ? UINT64_MAX : now_ns + timeout_us * 1000;
}

/* Reports a call that is refused before it has a state. It is counted when it is closed. */
static void report_refused(
    struct eb_rpc_conn *conn, struct eb_grpc_call *grpc_call, const struct eb_error *error)
{
    struct eb_outcome outcome = {.subject = EB_OUTCOME_CALL,
        .status = error->status,
        .text = error->text,
        .conn = conn,
        .grpc_call = grpc_call};
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
}

/* Reports the status that the peer of a closed call was sent. */
static void report_closed(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call)
{
    struct eb_outcome outcome = {.subject = EB_OUTCOME_CALL,
        .status = eb_grpc_call_outcome(grpc_call),
        .conn = conn,
        .call = grpc_call->user,
        .grpc_call = grpc_call};
    eb_outcome_report(&outcome, EB_OUTCOME_GONE);
}

static void refuse_service(
    struct eb_rpc_conn *conn, struct eb_grpc_call *grpc_call, const struct eb_error *error)
{
    if (conn) {
        report_refused(conn, grpc_call, error);
    }
    grpc_call->user = NULL;
    eb_grpc_call_finish(grpc_call, error->status, error->text, 0);
}

/* Returns NULL if the call is refused. */
static struct eb_rpc_call *open_call(struct eb_rpc_conn *conn, struct eb_grpc_call *grpc_call)
{
    struct eb_method_entry entry = eb_method_find(grpc_call->path);
    struct eb_error error;
    if (!entry.method) {
        eb_method_refuse(grpc_call->path, &error);
        refuse_service(conn, grpc_call, &error);
        return NULL;
    }
    if (entry.table->check && conn && !entry.table->check(conn, &error)) {
        refuse_service(conn, grpc_call, &error);
        return NULL;
    }
    struct eb_rpc_call *call = conn ? calloc(1, sizeof *call) : NULL;
    if (!call) {
        eb_error_set(&error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
        refuse_service(conn, grpc_call, &error);
        return NULL;
    }
    *call = (struct eb_rpc_call){
        .call = grpc_call, .conn = conn, .method = entry.method, .method_index = entry.index};
    if (!entry.method->codec) {
        eb_grpc_call_limit_message(grpc_call, EB_UNARY_BYTES_MAX);
    }
    if (!eb_rpc_call_is_stream(call)) {
        eb_grpc_call_expect_one(
            grpc_call, entry.method->codec ? &conn->held_lookups : &conn->held_unary);
    }
    call->deadline_ns = call_deadline_ns(call);
    grpc_call->user = call;
    eb_list_push(&conn->calls, &call->link);
    enum eb_method_access access = entry.method->is_probe ? EB_METHOD_FOR_ALL : entry.table->access;
    if (!eb_auth_call_begin(call, access, &error)) {
        eb_rpc_call_finish(call, error.status, error.text, 0);
    }
    return call;
}

static void on_call(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_conn *conn = eb_conn_user(context);
    struct eb_rpc_call *call = open_call(conn, grpc_call);
    if (conn) {
        conn->loop->counters->calls++;
    }
    if (!call) {
        return;
    }
    if (eb_rpc_call_is_stream(call) && eb_loop_is_draining(eb_rpc_conn_loop(conn))) {
        call->is_draining = true;
        eb_rpc_call_finish_if_over(call);
    }
    if (eb_backpressure_of_stream(call) != EB_BACKPRESSURE_NONE) {
        eb_backpressure_pause_call(call);
    }
}

static void on_refusal(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_conn *conn = eb_conn_user(context);
    if (conn) {
        struct eb_outcome outcome = {.subject = EB_OUTCOME_REQUEST,
            .status = grpc_call->status,
            .text = grpc_call->reason,
            .conn = conn,
            .grpc_call = grpc_call,
            .method_index = eb_method_find(grpc_call->path).index};
        conn->loop->counters->calls++;
        eb_outcome_report(&outcome, EB_OUTCOME_READY);
        eb_outcome_report(&outcome, EB_OUTCOME_GONE);
    }
}

/* Returns when a message was complete. `arrived_ms` is the session's time of its arrival. If the
 * message was kept back since then, returns the end of that millisecond. Otherwise returns when the
 * time slice last read the clock: after the message before, or when reading began. */
static uint64_t find_arrival_ns(const struct eb_rpc_conn *conn, uint64_t arrived_ms)
{
    uint64_t now_ns = eb_conn_looked_ns(conn->conn);
    uint64_t end_ns = (arrived_ms + 1) * 1000000;
    bool is_new = arrived_ms >= eb_loop_now_ms(eb_rpc_conn_loop(conn));
    return is_new || end_ns > now_ns ? now_ns : end_ns;
}

/* Handles one message of a stream. */
static void on_service_message(
    void *context, struct eb_grpc_call *grpc_call, struct eb_grpc_message message)
{
    struct eb_rpc_call *call = grpc_call->user;
    struct eb_rpc_conn *conn = eb_conn_user(context);
    if (!call || call->is_finished) {
        eb_rpc_conn_give_message(conn, &message);
        return;
    }
    if (call->is_draining) {
        call->has_dropped = true;
        eb_rpc_conn_give_message(conn, &message);
        return;
    }
    if (call->method->codec) {
        eb_lookup_start(call, message, find_arrival_ns(conn, message.arrived_ms));
    } else {
        (void)answer_unary(call, message);
        (void)eb_conn_end_message(conn->conn, uv_hrtime());
        eb_backpressure_pause_queue_full(conn);
    }
    if (eb_backpressure_of_conn(conn) != EB_BACKPRESSURE_NONE) {
        eb_backpressure_pause_conn(conn);
    }
}

static void on_request_end(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_call *call = grpc_call->user;
    (void)context;
    if (!call || call->is_finished) {
        return;
    }
    call->is_request_ended = true;
    eb_rpc_call_finish_if_over(call);
}

/* Handles the complete request of a call that is not a stream. */
static void on_request(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_call *call = grpc_call->user;
    (void)context;
    if (call->is_finished) {
        return;
    }
    call->arrival_ns = find_arrival_ns(call->conn, grpc_call->message_ms);
    start_call(call);
}

/* Decompression costs CPU, so it is charged to the connection's time slice. */
static void on_inflated(void *context)
{
    (void)eb_conn_end_message(context, uv_hrtime());
}

/* Reports the end of a call that the service did not finish: the session or the peer has ended
 * it. */
static void report_ended(struct eb_rpc_call *call)
{
    const struct eb_grpc_call *grpc_call = call->call;
    struct eb_outcome outcome = {.subject = EB_OUTCOME_CALL,
        .status = grpc_call->status,
        .text = grpc_call->reason,
        .conn = call->conn,
        .call = call,
        .grpc_call = grpc_call};
    if (call->is_finished) {
        return;
    }
    if (grpc_call->status == EB_STATUS_OK) {
        outcome.status = eb_rpc_call_is_stream(call) ? EB_STATUS_OK : EB_STATUS_CANCELLED;
        outcome.text = eb_outcome_given_up_text;
    }
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
}

static void on_call_close(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_call *call = grpc_call->user;
    struct eb_rpc_conn *conn = eb_conn_user(context);
    if (conn) {
        report_closed(conn, grpc_call);
    }
    if (!call) {
        return;
    }
    eb_lookup_forget_call(call);
    report_ended(call);
    if (call->method->on_close) {
        call->method->on_close(call);
    }
    if (call->is_paused) {
        conn->paused_count--;
    }
    eb_rpc_call_end_waiting(call);
    eb_list_remove(&call->link);
    free(call);
}

/* ---- events of a connection ---- */

static void on_conn_open(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = calloc(1, sizeof *state);
    if (!state) {
        eb_conn_close(conn, "out of memory");
        return;
    }
    eb_list_init(&state->lookups);
    eb_list_init(&state->calls);
    state->conn = conn;
    state->loop = eb_loop_user(eb_conn_loop(conn));
    state->held_lookups.bytes_max =
        HELD_MESSAGES_MAX * eb_rpc_conn_limits(state)->request_bytes_max;
    state->held_unary.bytes_max = HELD_MESSAGES_MAX * EB_UNARY_BYTES_MAX;
    eb_conn_set_user(conn, state);
}

static void expire_calls(struct eb_rpc_call *call)
{
    if (!call->is_finished && call->method->codec) {
        eb_outcome_count_refusal(call->conn, EB_REFUSAL_EXPIRED);
    }
    eb_rpc_call_finish(call, EB_STATUS_DEADLINE_EXCEEDED,
        call->command ? "the call's deadline passed; its command continues"
                      : "the call's deadline passed",
        0);
}

/* Ends the calls whose deadline has passed. A call that waits for its peer has no other event. */
static void on_conn_tick(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    uint64_t now_ns = uv_hrtime();
    for (struct eb_list *link = state->calls.next; link != &state->calls; link = link->next) {
        struct eb_rpc_call *call = EB_CONTAINER_OF(link, struct eb_rpc_call, link);
        if (now_ns >= call->deadline_ns) {
            expire_calls(call);
        } else if (call->method->on_tick) {
            call->method->on_tick(call);
        }
    }
}

static void on_conn_written(struct eb_conn *conn)
{
    resume_call(eb_conn_user(conn));
}

static bool has_conn_kept(const struct eb_conn *conn)
{
    const struct eb_rpc_conn *state = eb_conn_user(conn);
    return state->paused_count + state->waiting_count > 0;
}

static void on_conn_sent(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    struct eb_sent_times *sent = &state->loop->sent;
    if (sent->count > 0) {
        eb_sent_times_settle(sent, eb_conn_looked_ns(conn));
    }
}

static void on_conn_notice(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    for (struct eb_list *link = state->calls.next; link != &state->calls; link = link->next) {
        struct eb_rpc_call *call = EB_CONTAINER_OF(link, struct eb_rpc_call, link);
        if (call->method->on_notice) {
            call->method->on_notice(call);
        }
    }
}

static void on_conn_drain(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    for (struct eb_list *link = state->calls.next; link != &state->calls; link = link->next) {
        struct eb_rpc_call *call = EB_CONTAINER_OF(link, struct eb_rpc_call, link);
        if (eb_rpc_call_is_stream(call)) {
            call->is_draining = true;
            eb_rpc_call_finish_if_over(call);
        } else if (call->method->on_drain) {
            call->method->on_drain(call);
        }
    }
}

static void on_conn_close(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    if (!state) {
        return;
    }
    assert(eb_list_is_empty(&state->calls));
    struct eb_list *link;
    while ((link = eb_list_pop(&state->lookups))) {
        EB_CONTAINER_OF(link, struct eb_lookup, link)->conn = NULL;
    }
    free(state);
}

/* ---- loops ---- */

/* Takes over the settings. The loop gets its share of the access log's lines. */
static void take_settings(struct eb_service_loop *state, const struct eb_service_settings *settings)
{
    const struct eb_limits *limits = &settings->limits;
    uint64_t lines_max = limits->access_log_per_s_max / state->service->facts.loops;
    state->lookups.limits = *limits;
    eb_access_log_set(&state->access_log, settings->access_log, (uint32_t)limits->access_log_sample,
        lines_max > 0 ? (uint32_t)lines_max : 1);
}

static void *on_loop_open(struct eb_loop *loop)
{
    const struct eb_service *service = eb_loop_options(loop)->service;
    assert(eb_method_count() < EB_COUNTERS_METHODS_MAX);
    struct eb_service_loop *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    uint64_t now_ns = uv_hrtime();
    state->service = service;
    state->auth = eb_auth_hold(service->auth);
    state->counters = eb_loop_counters(loop);
    state->sent.counters = state->counters;
    eb_list_init(&state->watches);
    eb_list_init(&state->model_watches);
    eb_lookup_pool_init(&state->lookups, &service->lookups, loop, service->snapshot);
    eb_arena_init(&state->arena, &state->lookups.answer_memory);
    take_settings(state, &service->settings);
    eb_table_counters_init(&state->tables, now_ns);
    eb_table_counters_swap(&state->tables, service->snapshot, now_ns);
    return state;
}

static bool on_loop_tick(struct eb_loop *loop)
{
    eb_orca_service_publish(eb_loop_user(loop));
    return eb_outcome_tick(eb_loop_user(loop));
}

static void on_loop_later(struct eb_loop *loop)
{
    eb_watch_service_update(eb_loop_user(loop));
}

static void on_loop_before_sleep(struct eb_loop *loop)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    if (state->lookups.legs) {
        eb_lookup_pool_sweep(&state->lookups);
        if (eb_leg_link_run(state->lookups.legs)) {
            eb_loop_stay_awake(loop);
        }
    }
}

static void on_loop_close(struct eb_loop *loop)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    if (state->lookups.legs) {
        eb_leg_link_close(state->lookups.legs);
    }
    (void)eb_access_log_report(&state->access_log, UINT64_MAX);
    eb_lookup_pool_deinit(&state->lookups);
    eb_table_counters_deinit(&state->tables);
    eb_arena_deinit(&state->arena);
    eb_auth_drop(state->auth);
    free(state);
}

struct eb_snapshot *eb_service_swap(struct eb_loop *loop, struct eb_snapshot *snapshot)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    struct eb_snapshot *former = state->lookups.snapshot;
    state->lookups.snapshot = snapshot;
    eb_feature_memo_forget_versions(&state->lookups.memo);
    eb_table_counters_swap(&state->tables, snapshot, uv_hrtime());
    eb_health_service_update(state);
    eb_watch_service_update(state);
    return former;
}

void eb_service_set(struct eb_loop *loop, const struct eb_service_settings *settings)
{
    take_settings(eb_loop_user(loop), settings);
}

void eb_service_set_legs(struct eb_loop *loop, struct eb_leg_link *legs)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    state->lookups.legs = legs;
    state->is_unready = true;
}

void eb_service_set_routes(struct eb_loop *loop, struct eb_route_table *table)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    eb_leg_link_set_routes(state->lookups.legs, table);
    eb_health_service_update(state);
}

void eb_service_set_ready(struct eb_loop *loop, bool is_ready)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    state->is_unready = !is_ready;
    eb_health_service_update(state);
}

void eb_service_leave(struct eb_loop *loop)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    state->is_leaving = true;
    eb_health_service_update(state);
    eb_watch_service_update(state);
}

void eb_service_count(struct eb_loop *loop, struct eb_loop_stats *out)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    const struct eb_buffer_pool *receive_pool = eb_loop_receive_pool(loop);
    const struct eb_buffer_pool *answer_pool = eb_loop_answer_pool(loop);
    out->counters = *eb_loop_counters(loop);
    out->slow_count = eb_slow_list_copy(&state->slow, eb_loop_now_ms(loop), out->slow);
    out->counters.receive_shortages = receive_pool->refusals;
    out->counters.answer_shortages = answer_pool->refusals;
    out->connections = eb_loop_conn_count(loop);
    out->handshakes = eb_loop_handshake_count(loop);
    out->receive_bytes = receive_pool->taken_bytes;
    out->answer_bytes = answer_pool->taken_bytes;
    out->tables = eb_table_counters_copy(&state->tables, uv_hrtime());
    out->is_router = state->lookups.legs;
    out->route = out->is_router ? eb_route_count(state->lookups.legs) : NULL;
}

static void list_methods(struct eb_stats *stats)
{
    const struct eb_method_table *table;
    assert(eb_method_count() < EB_COUNTERS_METHODS_MAX);
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++) {
            stats->methods[stats->method_count++] =
                (struct eb_stats_method){table->service, table->methods[k].name};
        }
    }
    stats->methods[stats->method_count++] = (struct eb_stats_method){"", ""};
}

const struct eb_stats_provider eb_service_stats = {
    .mailbox = eb_loop_mailbox, .gather = eb_service_count, .list_methods = list_methods};

void eb_service_attach(struct eb_loop_options *options)
{
    options->events = (struct eb_conn_events){
        .calls = {.on_call = on_call,
            .on_refusal = on_refusal,
            .on_message = on_service_message,
            .on_request_end = on_request_end,
            .on_request = on_request,
            .on_inflated = on_inflated,
            .on_drop_if_expired = eb_lookup_drop_if_expired,
            .on_close = on_call_close},
        .on_open = on_conn_open,
        .on_tick = on_conn_tick,
        .on_written = on_conn_written,
        .has_waiting = has_conn_kept,
        .on_sent = on_conn_sent,
        .on_notice = on_conn_notice,
        .on_drain = on_conn_drain,
        .on_close = on_conn_close,
    };
    options->on_loop_open = on_loop_open;
    options->on_loop_tick = on_loop_tick;
    options->on_loop_later = on_loop_later;
    options->on_loop_before_sleep = on_loop_before_sleep;
    options->on_loop_close = on_loop_close;
}
