#include "client/channel.h"

#include "proto/grpc_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define NS_PER_US 1000

static void release_request(struct eb_outgoing *request)
{
    free(request);
}

struct eb_outgoing *eb_channel_request_create(uint32_t size)
{
    size_t total = (size_t)size + EB_GRPC_PREFIX_BYTES;
    struct eb_outgoing *request = malloc(sizeof *request + total);
    if (request == NULL) {
        return NULL;
    }
    *request = (struct eb_outgoing){
        .bytes = (uint8_t *)(request + 1), .size = total, .holds = 1, .release = release_request};
    eb_grpc_prefix_write(request->bytes, size);
    return request;
}

static bool on_bytes(void *context, const uint8_t *bytes, size_t count)
{
    struct eb_channel *channel = context;
    return eb_grpc_client_receive(channel->session, bytes, count);
}

static void on_message(void *context, struct eb_grpc_client_call *stream, void *user,
    const uint8_t *bytes, size_t size)
{
    (void)user;
    struct eb_channel *channel = context;
    if (stream != channel->stream || channel->result.status != EB_STATUS_OK) {
        return;
    }
    if (channel->answered) {
        eb_error_set(&channel->result, EB_STATUS_INTERNAL, "the server answered more than once");
        return;
    }
    channel->answered = true;
    bool good = channel->call->on_answer(channel->call->context, bytes, size, &channel->result);
    assert(good == (channel->result.status == EB_STATUS_OK));
}

static void on_finish(
    void *context, struct eb_grpc_client_call *stream, void *user, const struct eb_error *error)
{
    (void)user;
    struct eb_channel *channel = context;
    if (stream != channel->stream) {
        return; /* A call that was given up earlier. */
    }
    channel->stream = NULL;
    if (error->status != EB_STATUS_OK) {
        channel->result = *error;
    } else if (channel->result.status == EB_STATUS_OK && !channel->answered) {
        eb_error_set(&channel->result, EB_STATUS_INTERNAL, "the server sent no answer");
    }
}

static const struct eb_grpc_client_handler handler = {on_message, on_finish};

/* Moves what the session wants to say into the socket, as far as it goes: a session holds more back
 * while output waits. */
static void flush(struct eb_channel *channel)
{
    struct eb_send_queue *queue = eb_grpc_client_queue(channel->session);
    bool alive = true;
    do {
        alive = eb_grpc_client_send(channel->session);
        if (eb_send_queue_bytes(queue) == 0) {
            break;
        }
        eb_transport_write(&channel->transport, queue);
    } while (eb_send_queue_bytes(queue) == 0);
    if (!alive) {
        eb_transport_close(&channel->transport);
    }
}

static bool is_connected(const struct eb_channel *channel)
{
    return channel->transport.state == EB_TRANSPORT_OPEN;
}

/* The transport first: it may be writing from the session's queue. */
static void disconnect(struct eb_channel *channel)
{
    eb_transport_close(&channel->transport);
    eb_grpc_client_destroy(channel->session);
    channel->session = NULL;
}

static bool connect_session(
    struct eb_channel *channel, uint64_t deadline_ns, struct eb_error *error)
{
    channel->session = eb_grpc_client_create(
        channel->authority, &channel->limits, &eb_memory_heap, &handler, channel);
    if (channel->session == NULL) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for a connection");
        return false;
    }
    uint64_t connect_deadline_ns = uv_hrtime() + channel->connect_timeout_ns;
    if (connect_deadline_ns > deadline_ns) {
        connect_deadline_ns = deadline_ns;
    }
    if (!eb_transport_open(&channel->transport, &channel->endpoint, connect_deadline_ns, error)) {
        disconnect(channel);
        return false;
    }
    return true;
}

/* Hears what was said since the last call, and connects where that is not a usable connection. */
static bool prepare(struct eb_channel *channel, uint64_t deadline_ns, struct eb_error *error)
{
    if (channel->session != NULL) {
        eb_transport_drain(&channel->transport);
        if (is_connected(channel) && eb_grpc_client_is_usable(channel->session)) {
            return true;
        }
        disconnect(channel);
    }
    return connect_session(channel, deadline_ns, error);
}

bool eb_channel_open(struct eb_channel *channel, struct eb_error *error)
{
    int rc = eb_transport_init(&channel->transport, on_bytes, channel);
    if (rc != 0) {
        eb_error_set(
            error, EB_STATUS_RESOURCE_EXHAUSTED, "cannot make an event loop: %s", uv_strerror(rc));
        return false;
    }
    if (!connect_session(channel, UINT64_MAX, error)) {
        eb_transport_deinit(&channel->transport);
        return false;
    }
    flush(channel);
    return true;
}

void eb_channel_close(struct eb_channel *channel)
{
    disconnect(channel);
    eb_transport_deinit(&channel->transport);
}

/* Begins the call on a usable connection and takes its request. */
static void start(struct eb_channel *channel, const struct eb_channel_call *call)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t left_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;
    channel->call = call;
    channel->answered = false;
    channel->result = (struct eb_error){.status = EB_STATUS_OK};
    channel->stream =
        eb_grpc_client_start(channel->session, call->path, left_ns / NS_PER_US + 1, NULL);
    if (channel->stream == NULL) {
        eb_outgoing_drop(call->request);
        eb_error_set(&channel->result, EB_STATUS_UNAVAILABLE,
            "the connection to %s takes no more calls", channel->authority);
        return;
    }
    eb_grpc_client_write(channel->stream, call->request, true);
    flush(channel);
}

/* Ends the call under way as a lost connection's; the session goes with it. */
static void end_lost(struct eb_channel *channel)
{
    char why[128];
    const char *reason = eb_grpc_client_reason(channel->session);
    (void)snprintf(
        why, sizeof why, "%s", reason[0] != '\0' ? reason : uv_strerror(channel->transport.status));
    disconnect(channel);
    eb_error_set(&channel->result, EB_STATUS_UNAVAILABLE, "the connection to %s was lost: %s",
        channel->authority, why);
}

/* Withdraws the call under way: its time is over. */
static void end_expired(struct eb_channel *channel)
{
    eb_grpc_client_cancel(channel->stream);
    channel->stream = NULL;
    flush(channel);
    /* A peer that does not take what is sent would collect one request after another. */
    if (!is_connected(channel) || eb_send_queue_bytes(eb_grpc_client_queue(channel->session)) > 0) {
        disconnect(channel);
    }
    eb_error_set(&channel->result, EB_STATUS_DEADLINE_EXCEEDED, "no answer within the deadline");
}

enum eb_status eb_channel_call(
    struct eb_channel *channel, const struct eb_channel_call *call, struct eb_error *error)
{
    if (!prepare(channel, call->deadline_ns, error)) {
        eb_outgoing_drop(call->request);
        if (uv_hrtime() >= call->deadline_ns) {
            error->status = EB_STATUS_DEADLINE_EXCEEDED;
        }
        return error->status;
    }
    start(channel, call);
    while (channel->stream != NULL && is_connected(channel) && uv_hrtime() < call->deadline_ns) {
        eb_transport_wait(&channel->transport, call->deadline_ns);
        if (is_connected(channel)) {
            flush(channel);
        }
    }
    if (channel->stream != NULL && !is_connected(channel)) {
        end_lost(channel);
    } else if (channel->stream != NULL) {
        end_expired(channel);
    }
    channel->call = NULL;
    *error = channel->result;
    return error->status;
}
