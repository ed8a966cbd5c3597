#include "server/rpc/service.h"

#include "server/rpc/admin_service.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_conn.h"

#include <assert.h>
#include <stdlib.h>

/* Times request_bytes_max: what one connection's kept messages may hold. */
#define KEPT_MESSAGES_MAX 2

/* ---- the end of calls ---- */

static void finish(struct eb_rpc_call *call, enum eb_status status, const char *text)
{
    eb_rpc_call_finish(call, status, text, 0);
}

/* A stream whose peer has sent all, or that is being drained, ends with its last answer. */
static void finish_stream_if_over(struct eb_rpc_call *call)
{
    if (call->method->kind != EB_METHOD_LOOKUP_STREAM || call->in_flight > 0) {
        return;
    }
    if (call->request_ended) {
        finish(call, EB_STATUS_OK, NULL);
    } else if (call->draining) {
        finish(call, EB_STATUS_UNAVAILABLE,
            "the server is shutting down; send what has no answer again, elsewhere");
    }
}

/* ---- answers ---- */

static const char no_memory_text[] =
    "no memory left for an answer (answer_memory_bytes); come again later";

/* An answer without results. NULL: no memory. */
static struct eb_outgoing *make_error(
    const struct eb_rpc_call *call, const struct eb_wire_response *response)
{
    struct eb_outgoing *made = eb_reply_take(
        eb_loop_answer_pool(call->conn->loop->home.loop), eb_lookup_response_bytes(response));
    if (made) {
        eb_lookup_response_encode(response, eb_reply_body(made), NULL);
    }
    return made;
}

static void answer_stream_error(struct eb_rpc_call *call, const struct eb_lookup *lookup)
{
    struct eb_wire_response response = {
        .request_id = lookup->request_id,
        .model = "",
        .error_code = (uint32_t)lookup->error.status,
        .error_message = lookup->error.text,
        .retry_after_ms = lookup->pushback_ms,
        .more = lookup->is_repeated, /* The answer of the other one. */
    };
    struct eb_outgoing *made = make_error(call, &response);
    if (made) {
        eb_rpc_call_answer(call, made);
    } else {
        finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text);
    }
}

/* What leaves in place of an answer that has waited beyond its deadline. */
static struct eb_outgoing *answer_late(
    struct eb_rpc_call *call, struct eb_grpc_call *grpc_call, const struct eb_reply_terms *terms)
{
    static const char text[] = "the deadline passed before the answer could be sent";
    struct eb_wire_response response = {
        .request_id = terms->request_id,
        .model = "",
        .error_code = EB_STATUS_DEADLINE_EXCEEDED,
        .error_message = text,
    };
    if (call->method->kind != EB_METHOD_LOOKUP_STREAM) {
        eb_grpc_call_restate(grpc_call, EB_STATUS_DEADLINE_EXCEEDED, text);
        return NULL;
    }
    if (terms->more) {
        return NULL; /* The last one says so. */
    }
    struct eb_outgoing *made = make_error(call, &response);
    if (made) {
        eb_reply_charge(made, &call->conn->answer_bytes);
    } else {
        finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text);
        eb_grpc_call_restate(grpc_call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text);
    }
    return made;
}

static struct eb_outgoing *on_turn(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message)
{
    const struct eb_reply_terms terms = eb_reply_find_terms(message);
    (void)context;
    if (uv_hrtime() < terms.deadline_ns) {
        return message;
    }
    eb_outgoing_drop(message);
    return answer_late(grpc_call->user, grpc_call, &terms);
}

/* A lookup's answer, or a part of it. */
static void send_result(struct eb_rpc_call *call, const struct eb_lookup *lookup,
    struct eb_outgoing *message, bool more)
{
    const struct eb_reply_terms terms = {
        .deadline_ns = lookup->deadline_ns, .request_id = lookup->request_id, .more = more};
    eb_reply_set_terms(message, &terms);
    eb_rpc_call_answer(call, message);
}

static void answer(struct eb_rpc_call *call, struct eb_lookup *lookup)
{
    bool stream = call->method->kind == EB_METHOD_LOOKUP_STREAM;
    if (lookup->answer) {
        send_result(call, lookup, lookup->answer, false);
        lookup->answer = NULL;
        if (!stream) {
            finish(call, EB_STATUS_OK, NULL);
        }
    } else if (!stream || lookup->undecodable) {
        eb_rpc_call_finish(call, lookup->error.status, lookup->error.text, lookup->pushback_ms);
    } else {
        answer_stream_error(call, lookup);
    }
    eb_conn_mark(call->conn->conn);
}

static void resume(struct eb_rpc_conn *conn);

/* Answers what is over and gives everything back. */
static void end_lookup(struct eb_lookup *lookup)
{
    struct eb_rpc_conn *conn = lookup->conn;
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_unlink(lookup);
    if (call) {
        answer(call, lookup);
        finish_stream_if_over(call);
    }
    eb_lookup_give(lookup);
    if (conn) {
        resume(conn);
    }
}

/* A part of a lookup's answer, others of which are still to come. */
static void answer_part(struct eb_lookup *lookup, struct eb_outgoing *part)
{
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_drop(lookup, eb_reply_held_bytes(part));
    if (!call || call->finished) {
        eb_outgoing_drop(part);
        return;
    }
    send_result(call, lookup, part, true);
    eb_conn_mark(call->conn->conn);
}

/* ---- requests ---- */

/* Drops the answer of what has this id, if that is still to come. */
static void withdraw(struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = eb_rpc_call_find(call, request_id);
    if (lookup) {
        eb_lookup_cancel(lookup);
        eb_rpc_call_forget(lookup);
        finish_stream_if_over(call);
    }
}

/* What comes before all else that may be wrong with a request: that it can be told from others. */
static void check_id(const struct eb_rpc_call *call, struct eb_lookup *lookup)
{
    if (call->method->kind != EB_METHOD_LOOKUP_STREAM) {
        if (lookup->withdraws) {
            eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
                "cancel is for streams; a unary call is cancelled by resetting it");
        }
    } else if (eb_rpc_call_find(call, lookup->request_id)) {
        lookup->is_repeated = true;
        eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
            "request_id %llu is in flight on this stream already",
            (unsigned long long)lookup->request_id);
    }
}

/* Whether a request that was read may be run. */
static bool check_load(const struct eb_rpc_conn *conn, struct eb_lookup *lookup)
{
    if (lookup->error.status == EB_STATUS_OK && lookup->is_batch &&
        eb_rpc_conn_is_full_of_batch(conn)) {
        eb_lookup_refuse_batch(lookup);
    }
    return lookup->error.status == EB_STATUS_OK;
}

static void start_lookup(
    struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns)
{
    struct eb_rpc_conn *conn = call->conn;
    /* Until it is run nothing else takes from the pool or gives. */
    const struct eb_buffer_pool *pool = eb_loop_answer_pool(conn->loop->home.loop);
    const uint64_t taken_bytes = pool->taken_bytes;
    const uint64_t message_bytes = eb_buffer_pool_rounded(message.taken_bytes);
    struct eb_lookup *lookup = eb_lookup_take(&conn->loop->home);
    if (!lookup) {
        eb_rpc_conn_give_message(conn, &message);
        finish(call, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; come again later");
        return;
    }
    const bool is_stream = call->method->kind == EB_METHOD_LOOKUP_STREAM;
    lookup->may_be_in_parts = is_stream;
    const bool is_request =
        eb_lookup_read(lookup, message, arrival_ns, call->deadline_ns) || !lookup->undecodable;
    if (is_request && is_stream && lookup->withdraws) {
        withdraw(call, lookup->request_id);
        eb_lookup_give(lookup);
        return;
    }
    if (is_request) {
        check_id(call, lookup);
    }
    const bool is_good = check_load(conn, lookup);
    eb_rpc_conn_link(lookup, call);
    if (!is_good || eb_lookup_run(lookup)) {
        end_lookup(lookup);
    } else {
        eb_rpc_conn_hold(lookup, message_bytes + pool->taken_bytes - taken_bytes);
    }
}

static void answer_catalogue(struct eb_rpc_call *call)
{
    struct eb_service_loop *loop = call->conn->loop;
    struct eb_error error;
    struct eb_catalogue_call asked = {
        .snapshot = loop->home.snapshot,
        .facts = &loop->service->facts,
        .arena = &loop->arena,
        .pool = eb_loop_answer_pool(loop->home.loop),
        .bytes = call->message.bytes,
        .size = call->message.size,
    };
    eb_arena_reset(&loop->arena, eb_rpc_conn_limits(call->conn)->response_bytes_max);
    struct eb_outgoing *made = call->method->answer(&asked, &error);
    eb_arena_reset(&loop->arena, 0);
    eb_rpc_call_drop_message(call);
    if (!made) {
        finish(call, error.status, error.text);
        return;
    }
    eb_rpc_call_answer(call, made);
    finish(call, EB_STATUS_OK, NULL);
}

/* A unary call whose request is whole. */
static void start_ready(struct eb_rpc_call *call)
{
    if (call->method->kind == EB_METHOD_CATALOGUE) {
        answer_catalogue(call);
        return;
    }
    if (call->method->kind == EB_METHOD_COMMAND) {
        eb_admin_service_start(call);
        return;
    }
    struct eb_grpc_message message = call->message;
    call->message = (struct eb_grpc_message){0};
    call->conn->kept_bytes -= message.size;
    start_lookup(call, message, call->arrival_ns);
}

static void start_unary(struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    if (!call->has_message) {
        finish(call, EB_STATUS_UNIMPLEMENTED, "a unary call needs one message; there was none");
        return;
    }
    if (eb_rpc_conn_is_crowded(conn)) {
        eb_rpc_call_drop_message(call);
        finish(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "this connection has too many requests being worked on (in_flight_max)");
        return;
    }
    if (eb_conn_spend_turn(conn->conn) || eb_rpc_conn_is_full(conn)) {
        call->parked = true;
        conn->parked_count++;
        return;
    }
    start_ready(call);
}

/* Reads a stream further. Returns whether it has kept messages back, which come one after the
 * other. */
static bool unpause(struct eb_rpc_call *call)
{
    call->paused = false;
    call->conn->paused_count--;
    eb_grpc_call_resume(call->call);
    return eb_grpc_call_has_kept(call->call);
}

/* Goes on with what waited for the connection to be less busy, in order, up to the first stream
 * that has kept messages back: that goes to the end of the line, and they, or the next write, ask
 * again. What is started here may be over at once and ask again too: one pass at a time is enough.
 */
static void resume(struct eb_rpc_conn *conn)
{
    if (conn->resuming || conn->paused_count + conn->parked_count == 0 ||
        eb_conn_is_ending(conn->conn)) {
        return;
    }
    conn->resuming = true;
    for (struct eb_rpc_call *call = conn->calls; call && !eb_rpc_conn_is_busy(conn);
         call = call->next) {
        if (call->parked) {
            eb_rpc_call_unpark(call);
            start_ready(call);
            (void)eb_conn_spend_turn(conn->conn);
        } else if (call->paused && !call->draining && unpause(call)) {
            eb_rpc_call_unlink(call);
            eb_rpc_call_append(call);
            eb_conn_mark(conn->conn);
            break;
        }
    }
    conn->resuming = false;
}

/* ---- events of a connection's calls ---- */

static uint64_t call_deadline_ns(const struct eb_rpc_call *call)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t timeout_us = eb_method_timeout_us(call->method, call->call->timeout_us,
        eb_rpc_conn_limits(call->conn)->deadline_max_ms * 1000);
    bool endless = timeout_us == 0 || timeout_us > (UINT64_MAX - now_ns) / 1000;
    return endless ? UINT64_MAX : now_ns + timeout_us * 1000;
}

static void on_call(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_conn *conn = eb_conn_user(context);
    const struct eb_method *method = eb_method_find(grpc_call->path);
    struct eb_rpc_call *call = method && conn ? calloc(1, sizeof *call) : NULL;
    if (!call) {
        char text[EB_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "no method \"%s\"; this server has " EB_METHOD_NAMES,
            grpc_call->path);
        grpc_call->user = NULL;
        eb_grpc_call_finish(grpc_call,
            method ? EB_STATUS_RESOURCE_EXHAUSTED : EB_STATUS_UNIMPLEMENTED,
            method ? "no memory left; come again later" : text, 0);
        return;
    }
    call->call = grpc_call;
    call->conn = conn;
    call->method = method;
    call->deadline_ns = call_deadline_ns(call);
    eb_rpc_call_append(call);
    grpc_call->user = call;
    struct eb_error error;
    if (method->is_admin && !eb_admin_service_check(conn, &error)) {
        finish(call, error.status, error.text);
    }
    if (method->kind == EB_METHOD_LOOKUP_STREAM && eb_loop_is_draining(conn->loop->home.loop)) {
        call->draining = true;
        finish_stream_if_over(call);
    }
    if (eb_rpc_conn_is_busy(conn)) {
        eb_rpc_call_pause(call);
    }
}

/* Until the peer ends its side. A peer that never does holds no more than its window would. */
static void keep_message(struct eb_rpc_call *call, struct eb_grpc_message message)
{
    struct eb_rpc_conn *conn = call->conn;
    call->has_message = true;
    call->message = message;
    call->arrival_ns = uv_hrtime();
    conn->kept_bytes += message.size;
    if (conn->kept_bytes > KEPT_MESSAGES_MAX * eb_rpc_conn_limits(conn)->request_bytes_max) {
        finish(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "too many bytes of calls that have a message and are not ended");
        eb_rpc_call_drop_message(call);
    }
}

/* When a stream's message was complete: when the one before it had been dealt with, or reading
 * began, but where the stream was not read further. */
static uint64_t find_arrival_ns(
    const struct eb_rpc_conn *conn, const struct eb_grpc_message *message)
{
    const uint64_t now_ns = eb_conn_looked_ns(conn->conn);
    const uint64_t end_ns = (message->arrived_ms + 1) * 1000000;
    const bool is_new = message->arrived_ms >= eb_loop_now_ms(conn->loop->home.loop);
    return is_new || end_ns > now_ns ? now_ns : end_ns;
}

static void on_message(
    void *context, struct eb_grpc_call *grpc_call, struct eb_grpc_message message)
{
    struct eb_rpc_call *call = grpc_call->user;
    struct eb_rpc_conn *conn = eb_conn_user(context);
    if (!call || call->finished || call->draining) {
        eb_rpc_conn_give_message(conn, &message);
        return;
    }
    if (call->method->kind != EB_METHOD_LOOKUP_STREAM) {
        if (call->has_message) {
            eb_rpc_conn_give_message(conn, &message);
            finish(
                call, EB_STATUS_UNIMPLEMENTED, "a unary call takes one message; there were more");
            return;
        }
        keep_message(call, message);
        return;
    }
    start_lookup(call, message, find_arrival_ns(conn, &message));
    (void)eb_conn_spend_turn(conn->conn);
    if (eb_rpc_conn_is_busy(conn)) {
        eb_rpc_conn_pause(conn);
    }
}

static void on_request_end(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_call *call = grpc_call->user;
    (void)context;
    if (!call || call->finished) {
        return;
    }
    call->request_ended = true;
    if (call->method->kind == EB_METHOD_LOOKUP_STREAM) {
        finish_stream_if_over(call);
    } else {
        start_unary(call);
    }
}

static void on_call_close(void *context, struct eb_grpc_call *grpc_call)
{
    struct eb_rpc_call *call = grpc_call->user;
    struct eb_rpc_conn *conn = eb_conn_user(context);
    if (!call) {
        return;
    }
    for (struct eb_lookup *lookup = conn->lookups; call->in_flight > 0; lookup = lookup->next) {
        if (lookup->call == call) {
            eb_rpc_call_forget(lookup);
            eb_lookup_cancel(lookup);
        }
    }
    eb_admin_service_forget(call);
    eb_rpc_call_drop_message(call);
    conn->paused_count -= call->paused;
    eb_rpc_call_unpark(call);
    eb_rpc_call_unlink(call);
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
    state->conn = conn;
    state->loop = eb_loop_user(eb_conn_loop(conn));
    eb_conn_set_user(conn, state);
}

/* A call that waits for its peer has no other event when its deadline passes. */
static void on_conn_tick(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    uint64_t now_ns = uv_hrtime();
    for (struct eb_rpc_call *call = state->calls; call; call = call->next) {
        if (now_ns >= call->deadline_ns) {
            finish(call, EB_STATUS_DEADLINE_EXCEEDED,
                call->command ? "the call's deadline passed; its command goes on"
                              : "the call's deadline passed");
            eb_rpc_call_drop_message(call);
            eb_rpc_call_unpark(call);
        }
    }
}

static void on_conn_written(struct eb_conn *conn)
{
    resume(eb_conn_user(conn));
}

static void on_conn_drain(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    for (struct eb_rpc_call *call = state->calls; call; call = call->next) {
        if (call->method->kind == EB_METHOD_LOOKUP_STREAM) {
            call->draining = true;
            finish_stream_if_over(call);
        }
    }
}

static void on_conn_close(struct eb_conn *conn)
{
    struct eb_rpc_conn *state = eb_conn_user(conn);
    if (!state) {
        return;
    }
    assert(!state->calls);
    for (struct eb_lookup *lookup = state->lookups; lookup; lookup = lookup->next) {
        lookup->conn = NULL;
    }
    free(state);
}

/* ---- loops ---- */

static void *on_loop_open(struct eb_loop *loop)
{
    const struct eb_service *service = eb_loop_options(loop)->service;
    struct eb_service_loop *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    state->service = service;
    state->home = (struct eb_lookup_home){
        .context = &service->lookups,
        .loop = loop,
        .snapshot = service->snapshot,
        .answer_memory = eb_buffer_pool_memory(eb_loop_answer_pool(loop)),
        .on_finish = end_lookup,
        .on_part = answer_part,
    };
    eb_arena_init(&state->arena, &state->home.answer_memory);
    return state;
}

static void on_loop_close(struct eb_loop *loop)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    eb_lookup_home_deinit(&state->home);
    eb_arena_deinit(&state->arena);
    free(state);
}

struct eb_snapshot *eb_service_swap(struct eb_loop *loop, struct eb_snapshot *snapshot)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    struct eb_snapshot *former = state->home.snapshot;
    state->home.snapshot = snapshot;
    return former;
}

void eb_service_attach(struct eb_loop_options *options)
{
    options->events = (struct eb_conn_events){
        .calls = {.on_call = on_call,
            .on_message = on_message,
            .on_request_end = on_request_end,
            .on_turn = on_turn,
            .on_close = on_call_close},
        .on_open = on_conn_open,
        .on_tick = on_conn_tick,
        .on_written = on_conn_written,
        .on_drain = on_conn_drain,
        .on_close = on_conn_close,
    };
    options->on_loop_open = on_loop_open;
    options->on_loop_close = on_loop_close;
}
