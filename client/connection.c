#include "client/connection.h"

#include <assert.h>
#include <stdio.h>

#define NS_PER_US 1000
/* Calls are not sent while so many bytes wait to leave: kept by the dispatcher, one whose time is
 * over costs neither side anything. */
#define UNWRITTEN_BYTES_MAX ((size_t)64 << 10)
/* A server from which nothing has come for so long, while what is sent does not leave, is taken for
 * dead when a call's time is over. */
#define SILENCE_NS_MAX UINT64_C(1000000000)

static const char lookup_path[] = "/embag.v1.EmbeddingBag/Lookup";
static const char stream_path[] = "/embag.v1.EmbeddingBag/LookupStream";
static const char models_path[] = "/embag.v1.EmbeddingBag/ListModels";

/* ---- the session's calls ---- */

/* Calls that the server has before it, as far as is known. */
static uint32_t count_sent(const struct eb_connection *connection)
{
    return connection->calls.count + connection->late_count;
}

/* Refusals are quick, and say nothing of how long an answer takes. */
static void count_answer(struct eb_connection *connection, bool was_served)
{
    if (was_served) {
        connection->has_answered = true;
        eb_pace_answer(&connection->pace, count_sent(connection), connection->last_read_ns);
    }
}

static void on_message(void *context, struct eb_grpc_client_call *stream, void *user,
    const uint8_t *bytes, size_t size)
{
    struct eb_connection *connection = context;
    struct eb_call *call = user;
    if (stream != connection->stream) {
        if (call->unary == stream) {
            connection->config->handler->on_message(call, bytes, size);
        } /* Else it was given up earlier. */
        return;
    }
    if (!connection->is_unsound && !connection->config->handler->on_stream_message(
                                       connection, bytes, size, &connection->stream_end)) {
        connection->is_unsound = true;
        connection->is_dirty = true;
        eb_grpc_client_cancel(stream);
    }
}

static void end_stream(struct eb_connection *connection, const struct eb_error *error)
{
    connection->stream = NULL;
    connection->late_count = 0;
    connection->is_stream_over = true;
    if (connection->is_unsound) {
        return;
    }
    connection->stream_end = *error;
    if (error->status == EB_STATUS_OK) {
        eb_error_set(&connection->stream_end, EB_STATUS_UNAVAILABLE, "the server ended the stream");
    }
}

static void on_finish(
    void *context, struct eb_grpc_client_call *stream, void *user, const struct eb_error *error)
{
    struct eb_connection *connection = context;
    struct eb_call *call = user;
    if (connection->is_ending) {
        return;
    }
    if (stream == connection->stream) {
        end_stream(connection, error);
    } else if (call->unary == stream) {
        call->unary = NULL;
        eb_calls_remove(&connection->calls, call);
        count_answer(connection, error->status == EB_STATUS_OK);
        connection->config->handler->on_end(call, error, eb_grpc_client_pushback_ms(stream));
    }
}

static const struct eb_grpc_client_handler session_handler = {on_message, on_finish};

/* ---- the transport ---- */

static void on_open(void *context)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
    connection->last_read_ns = uv_hrtime();
    connection->config->handler->on_open(connection->config->context, connection);
}

static bool on_bytes(void *context, const uint8_t *bytes, size_t count)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
    connection->last_read_ns = uv_hrtime();
    bool sound = eb_grpc_client_receive(connection->session, bytes, count);
    connection->has_spoken |= sound;
    return sound;
}

static void on_written(void *context)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
}

static void explain(const struct eb_connection *connection, struct eb_error *why)
{
    const struct eb_transport *transport = &connection->transport;
    const char *reason = eb_grpc_client_reason(connection->session);
    if (!transport->was_open) {
        *why = transport->failure;
        return;
    }
    eb_error_set(why, EB_STATUS_UNAVAILABLE, "the connection to %s was lost: %s",
        connection->config->authority, reason[0] != '\0' ? reason : transport->failure.text);
}

static void drop_calls(struct eb_connection *connection, bool all, const struct eb_error *why)
{
    struct eb_call *next = NULL;
    for (struct eb_call *call = connection->calls.first; call != NULL; call = next) {
        next = call->after;
        if (all || call->unary == NULL) {
            call->unary = NULL;
            eb_calls_remove(&connection->calls, call);
            connection->config->handler->on_drop(call, why);
        }
    }
}

/* The session goes first, so that no request is part of it when its call is dropped. */
static void on_close(void *context)
{
    struct eb_connection *connection = context;
    struct eb_error why;
    explain(connection, &why);
    connection->is_ending = true;
    eb_grpc_client_destroy(connection->session);
    connection->session = NULL;
    connection->stream = NULL;
    connection->is_stream_over = false;
    connection->is_dirty = false;
    drop_calls(connection, true, &why);
    assert(connection->calls.count == 0);
    connection->config->handler->on_close(connection->config->context, connection, &why);
}

static const struct eb_transport_handler transport_handler = {
    on_open, on_bytes, on_written, on_close};

bool eb_connection_open(struct eb_connection *connection, uint64_t deadline_ns)
{
    const struct eb_connection_config *config = connection->config;
    assert(connection->session == NULL);
    connection->session = eb_grpc_client_create(
        config->authority, &config->limits, config->memory, &session_handler, connection);
    if (connection->session == NULL) {
        return false;
    }
    connection->is_ending = false;
    connection->is_unsound = false;
    connection->has_spoken = false;
    connection->has_answered = false;
    connection->late_count = 0;
    connection->pace = (struct eb_pace){0};
    connection->transport.handler = &transport_handler;
    connection->transport.context = connection;
    eb_transport_open(&connection->transport, deadline_ns);
    return true;
}

void eb_connection_close(struct eb_connection *connection)
{
    if (connection->session != NULL) {
        eb_transport_close(&connection->transport);
    }
}

/* ---- calls ---- */

bool eb_connection_is_usable(const struct eb_connection *connection)
{
    return connection->session != NULL && connection->transport.state == EB_TRANSPORT_OPEN &&
           !connection->is_stream_over && eb_grpc_client_is_usable(connection->session);
}

static uint64_t find_left_ns(const struct eb_call *call, uint64_t now_ns)
{
    return call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;
}

bool eb_connection_has_room(const struct eb_connection *connection)
{
    return eb_grpc_client_unwritten_bytes(connection->session) < UNWRITTEN_BYTES_MAX;
}

bool eb_connection_is_in_time(
    const struct eb_connection *connection, const struct eb_call *call, uint64_t now_ns)
{
    return eb_pace_is_in_time(
        &connection->pace, count_sent(connection), find_left_ns(call, now_ns));
}

static struct eb_grpc_client_call *start_unary(
    struct eb_connection *connection, struct eb_call *call, uint64_t timeout_us)
{
    const char *path = call->kind == EB_CALL_LOOKUP ? lookup_path : models_path;
    call->unary = eb_grpc_client_start(connection->session, path, timeout_us, call);
    return call->unary;
}

static struct eb_grpc_client_call *start_stream(struct eb_connection *connection)
{
    if (connection->stream == NULL) {
        connection->is_unsound = false;
        connection->stream = eb_grpc_client_start(connection->session, stream_path, 0, NULL);
    }
    return connection->stream;
}

bool eb_connection_send(struct eb_connection *connection, struct eb_call *call, uint64_t now_ns)
{
    uint64_t timeout_us = find_left_ns(call, now_ns) / NS_PER_US + 1;
    call->unary = NULL;
    struct eb_grpc_client_call *stream =
        call->is_unary ? start_unary(connection, call, timeout_us) : start_stream(connection);
    if (stream == NULL) {
        return false;
    }
    if (call->kind == EB_CALL_LOOKUP) {
        eb_lookup_call_set_timeout(call->request, timeout_us);
    }
    if (count_sent(connection) == 0) {
        eb_pace_begin(&connection->pace, now_ns);
    }
    call->connection = connection;
    eb_calls_append(&connection->calls, call);
    eb_outgoing_hold(call->request);
    eb_grpc_client_write(stream, call->request, call->is_unary);
    connection->is_dirty = true;
    return true;
}

/* Whether the request still waits to leave although the server has had the time to take it. */
static bool is_stuck(const struct eb_connection *connection, const struct eb_call *call)
{
    return call->request->holds > 1 && uv_hrtime() - connection->last_read_ns > SILENCE_NS_MAX;
}

void eb_connection_answered(struct eb_connection *connection, struct eb_call *call, bool was_served)
{
    if (call != NULL) {
        eb_calls_remove(&connection->calls, call);
    } else if (connection->late_count > 0) {
        connection->late_count--;
    }
    count_answer(connection, was_served);
}

/* Without memory the server computes an answer that nobody waits for. */
static void ask_to_forget(struct eb_connection *connection, const struct eb_call *call)
{
    struct eb_outgoing *request =
        eb_lookup_call_encode_cancel(call->id, connection->config->memory);
    if (request != NULL) {
        eb_grpc_client_write(connection->stream, request, false);
        connection->is_dirty = true;
    }
}

/* An answer that comes all the same is known as late by its number. The server still has the call
 * before it when it does not know, or is about to find out, that its time is over. */
void eb_connection_withdraw(struct eb_connection *connection, struct eb_call *call)
{
    eb_calls_remove(&connection->calls, call);
    if (call->unary != NULL) {
        eb_grpc_client_cancel(call->unary);
        call->unary = NULL;
        connection->is_dirty = true;
    } else if (uv_hrtime() >= call->deadline_ns) {
        connection->late_count++;
    } else if (connection->stream != NULL) {
        ask_to_forget(connection, call);
    }
    if (is_stuck(connection, call)) {
        eb_connection_close(connection);
    }
}

void eb_connection_settle(struct eb_connection *connection)
{
    if (connection->session == NULL) {
        return;
    }
    if (connection->is_stream_over) {
        connection->is_stream_over = false;
        drop_calls(connection, false, &connection->stream_end);
    }
    if (connection->transport.state == EB_TRANSPORT_OPEN && connection->calls.count == 0 &&
        !eb_grpc_client_is_usable(connection->session)) {
        eb_connection_close(connection);
    }
}

/* As far as it goes: a session holds more back while output waits. */
void eb_connection_flush(struct eb_connection *connection)
{
    if (!connection->is_dirty || connection->transport.state != EB_TRANSPORT_OPEN) {
        return;
    }
    connection->is_dirty = false;
    struct eb_send_queue *queue = eb_grpc_client_queue(connection->session);
    bool alive = true;
    do {
        alive = eb_grpc_client_send(connection->session);
        if (eb_send_queue_bytes(queue) == 0) {
            break;
        }
        eb_transport_write(&connection->transport, queue);
    } while (eb_send_queue_bytes(queue) == 0);
    if (!alive) {
        eb_connection_close(connection);
    }
}
