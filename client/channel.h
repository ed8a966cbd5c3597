/* Unary gRPC calls, one after the other, to one server: a transport with an HTTP/2 session on it,
 * connected when it is needed.
 * Thread: one at a time, any. Memory: the session's from the heap. */
#pragma once

#include "client/transport.h"
#include "proto/grpc_client.h"

/* One call and what is to become of its answer. */
struct eb_channel_call {
    const char *path;            /* "/embag.v1.EmbeddingBag/Lookup" */
    struct eb_outgoing *request; /* taken, whatever happens */
    uint64_t deadline_ns;        /* of uv_hrtime() */
    /* The answer; bytes are borrowed for the call. Called at most once. false: *error is set, and
     * the call ends with it. */
    bool (*on_answer)(void *context, const uint8_t *bytes, size_t size, struct eb_error *error);
    void *context;
};

struct eb_channel {
    struct eb_transport transport;
    struct eb_endpoint endpoint;
    const char *authority; /* of the address, borrowed */
    uint64_t connect_timeout_ns;
    struct eb_grpc_client_limits limits;
    struct eb_grpc_client *session; /* NULL: not connected */
    const struct eb_channel_call *call;
    struct eb_grpc_client_call *stream; /* of the call under way; NULL: none, or it is over */
    bool answered;
    struct eb_error result; /* of the call, once its stream is over */
};

/* A request of `size` bytes, its gRPC prefix written; the message goes to its bytes +
 * EB_GRPC_PREFIX_BYTES. NULL: no memory. */
struct eb_outgoing *eb_channel_request_create(uint32_t size);

/* Connects for the first time. endpoint, authority, connect_timeout_ns and limits are set by the
 * caller, the rest is zero. false: *error is set and nothing is left to undo. */
bool eb_channel_open(struct eb_channel *channel, struct eb_error *error);
void eb_channel_close(struct eb_channel *channel);

/* Makes a call, connecting once more first where the connection has been lost. Not EB_STATUS_OK:
 * *error is set. */
enum eb_status eb_channel_call(
    struct eb_channel *channel, const struct eb_channel_call *call, struct eb_error *error);
