/* The client's side of one HTTP/2 connection that speaks gRPC. Like grpc_server.h: bytes in, bytes
 * out, no sockets and no clock.
 * Thread: one at a time. Memory: calls, answers and output come from the given eb_memory. Callbacks
 * are called from eb_grpc_client_receive, _send and _destroy. */
#pragma once

#include "proto/send_queue.h"
#include "proto/status.h"

#include <stdint.h>

struct eb_grpc_client_limits {
    uint32_t response_bytes_max; /* limit on a message; a larger one gives RESOURCE_EXHAUSTED */
};

struct eb_grpc_client_call; /* opaque */
struct eb_grpc_client;      /* opaque */

struct eb_grpc_client_handler {
    /* One whole message. The bytes are borrowed until the callback returns. They are part of the
     * received bytes if these contain the whole message. */
    void (*on_message)(void *context, struct eb_grpc_client_call *call, void *user,
        const uint8_t *bytes, size_t size);
    /* The call is over and `call` is no longer valid. An answer that is not a gRPC answer (HTTP
     * error, no grpc-status, reset, connection gone) is translated by the rules of gRPC's
     * documents. */
    void (*on_finish)(
        void *context, struct eb_grpc_client_call *call, void *user, const struct eb_error *error);
};

/* Facts about the server and the caller that are sent with every call. Texts are borrowed for the
 * session's life. */
struct eb_grpc_client_identity {
    const char *authority;
    const char *authorization; /* the header's value; NULL: none */
    bool is_secure;            /* the scheme is https */
};

/* Copies `identity`. Returns NULL if out of memory. */
struct eb_grpc_client *eb_grpc_client_create(const struct eb_grpc_client_identity *identity,
    const struct eb_grpc_client_limits *limits, const struct eb_memory *memory,
    const struct eb_grpc_client_handler *handler, void *context);
/* Ends every call with UNAVAILABLE and frees the session. Accepts NULL. */
void eb_grpc_client_destroy(struct eb_grpc_client *client);

/* Begins a call, without a timeout if `timeout_us` is 0. Returns NULL if out of memory or if the
 * connection takes no new calls. */
struct eb_grpc_client_call *eb_grpc_client_start(
    struct eb_grpc_client *client, const char *path, uint64_t timeout_us, void *user);
/* Sends one message (see eb_outgoing) and takes the creator's hold on it. Ends our side if `last`
 * is true. */
void eb_grpc_client_write(struct eb_grpc_client_call *call, struct eb_outgoing *message, bool last);
/* Ends this side of the call after the messages written so far. */
void eb_grpc_client_end_write(struct eb_grpc_client_call *call);
/* Cancels the call. on_finish follows with CANCELLED at the next send. */
void eb_grpc_client_cancel(struct eb_grpc_client_call *call);
/* Cancels the call for an owner who may be gone by then: `user` is NULL in what follows. */
void eb_grpc_client_abandon(struct eb_grpc_client_call *call);

/* Returns the value of grpc-retry-pushback-ms, for use in on_finish. Returns 0 if the server sent
 * none, and UINT32_MAX if the call must not be tried again or the value is not a number. */
uint32_t eb_grpc_client_pushback_ms(const struct eb_grpc_client_call *call);

/* These do the same as the functions of the same names in grpc_server.h. */
bool eb_grpc_client_receive(struct eb_grpc_client *client, const uint8_t *bytes, size_t count);
bool eb_grpc_client_send(struct eb_grpc_client *client);
struct eb_send_queue *eb_grpc_client_queue(struct eb_grpc_client *client);
/* Returns the number of bytes, in messages and in the queue, that are not written yet. */
size_t eb_grpc_client_unwritten_bytes(const struct eb_grpc_client *client);
/* Returns whether new calls may be started: no GOAWAY, no error. */
bool eb_grpc_client_is_usable(const struct eb_grpc_client *client);
const char *eb_grpc_client_reason(const struct eb_grpc_client *client);
