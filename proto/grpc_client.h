/* The client's side of one HTTP/2 connection that speaks gRPC. As grpc_server.h: bytes in, bytes
 * out, no sockets and no clock.
 * Thread: one at a time. Memory: calls, answers and output from the eb_memory given. Callbacks come
 * from eb_grpc_client_receive, _send and _destroy. */
#pragma once

#include "proto/send_queue.h"
#include "proto/status.h"

#include <stdint.h>

struct eb_grpc_client_limits {
    uint32_t response_bytes_max; /* one message; a larger one ends the call: RESOURCE_EXHAUSTED */
};

struct eb_grpc_client_call; /* opaque */
struct eb_grpc_client;      /* opaque */

struct eb_grpc_client_handler {
    /* One whole message; bytes are borrowed for the call, from those received where it lies in them
     * as a whole. */
    void (*on_message)(void *context, struct eb_grpc_client_call *call, void *user,
        const uint8_t *bytes, size_t size);
    /* The call is over and `call` no longer valid. An answer that is no gRPC answer (HTTP error,
     * no grpc-status, reset, connection gone) is translated as gRPC's documents say. */
    void (*on_finish)(
        void *context, struct eb_grpc_client_call *call, void *user, const struct eb_error *error);
};

/* What every call says of its server and its caller. Texts are borrowed for the session's life. */
struct eb_grpc_client_identity {
    const char *authority;
    const char *authorization; /* the header's value; NULL: none */
    bool is_secure;            /* it is https */
};

/* `identity` is copied. NULL: no memory. */
struct eb_grpc_client *eb_grpc_client_create(const struct eb_grpc_client_identity *identity,
    const struct eb_grpc_client_limits *limits, const struct eb_memory *memory,
    const struct eb_grpc_client_handler *handler, void *context);
/* Ends every call with UNAVAILABLE and frees the session. Accepts NULL. */
void eb_grpc_client_destroy(struct eb_grpc_client *client);

/* Begins a call. `timeout_us` 0: none. NULL: no memory, or the connection takes no new calls. */
struct eb_grpc_client_call *eb_grpc_client_start(
    struct eb_grpc_client *client, const char *path, uint64_t timeout_us, void *user);
/* Sends one message (see eb_outgoing) and takes the creator's hold. `last`: and ends our side. */
void eb_grpc_client_write(struct eb_grpc_client_call *call, struct eb_outgoing *message, bool last);
/* Withdraws the call; on_finish follows with CANCELLED at the next send. */
void eb_grpc_client_cancel(struct eb_grpc_client_call *call);

/* What the server has asked for in grpc-retry-pushback-ms, for on_finish: 0: nothing; UINT32_MAX:
 * not to try again, or something that is no number. */
uint32_t eb_grpc_client_pushback_ms(const struct eb_grpc_client_call *call);

/* As in grpc_server.h. */
bool eb_grpc_client_receive(struct eb_grpc_client *client, const uint8_t *bytes, size_t count);
bool eb_grpc_client_send(struct eb_grpc_client *client);
struct eb_send_queue *eb_grpc_client_queue(struct eb_grpc_client *client);
/* Bytes of messages, and of what is in the queue, that have not been written. */
size_t eb_grpc_client_unwritten_bytes(const struct eb_grpc_client *client);
/* Whether new calls may be started: no GOAWAY, no error. */
bool eb_grpc_client_is_usable(const struct eb_grpc_client *client);
const char *eb_grpc_client_reason(const struct eb_grpc_client *client);
