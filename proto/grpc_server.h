/* The server's side of one HTTP/2 connection that speaks gRPC: bytes in, calls and messages out;
 * answers in, bytes out. No sockets, no clock: time is passed in.
 *
 * Thread: one at a time. Memory: message buffers and output come from the eb_memory given; state
 * of its own from the heap, bounded by the limits. Callbacks are called from eb_grpc_server_receive,
 * _tick, _send and _destroy and may call any eb_grpc_call_ function, but neither of those. */
#pragma once

#include "proto/send_queue.h"
#include "proto/status.h"

/* Caps of one connection. */
struct eb_grpc_server_limits {
    uint32_t request_bytes_max;     /* one message; a larger one: RESOURCE_EXHAUSTED */
    uint32_t streams_max;           /* open calls at once (SETTINGS_MAX_CONCURRENT_STREAMS) */
    uint32_t header_fields_max;     /* of one request; more: RESOURCE_EXHAUSTED */
    uint32_t header_bytes_max;      /* names and values of one request together */
    uint32_t outbound_bytes_max;    /* waiting output at which the connection is given up */
    uint32_t message_stall_ms_max;  /* a message that makes no progress for so long ends its call */
    uint32_t reset_budget;          /* streams a peer may reset beyond those it lets end */
};

/* One call. Valid from on_call until on_close has returned. */
struct eb_grpc_call {
    const char *path;    /* "/embag.v1.EmbeddingBag/Lookup" */
    uint64_t timeout_us; /* grpc-timeout; 0: none was given */
    void *user;          /* the handler's */
};

/* A message of the peer's. Its bytes come from the connection's eb_memory and are the receiver's to
 * give back (eb_grpc_message_give), also after the call or the connection is gone. */
struct eb_grpc_message {
    uint8_t *bytes; /* never NULL */
    size_t size;
    size_t taken_bytes; /* as it was asked of the memory */
};

struct eb_grpc_server_handler {
    /* A call's headers are complete and in order. */
    void (*on_call)(void *context, struct eb_grpc_call *call);
    /* One whole message; the receiver takes it. Not called while the call is paused. */
    void (*on_message)(void *context, struct eb_grpc_call *call, struct eb_grpc_message message);
    /* The peer has ended its side, after the last on_message. */
    void (*on_request_end)(void *context, struct eb_grpc_call *call);
    /* The call is over: all sent, reset or the connection is going. Always the last callback of a
     * call for which on_call was called. */
    void (*on_close)(void *context, struct eb_grpc_call *call);
};

struct eb_grpc_server; /* opaque */

/* NULL: no memory. All pointers are borrowed for the session's life. */
struct eb_grpc_server *eb_grpc_server_create(const struct eb_grpc_server_limits *limits,
    const struct eb_memory *memory, const struct eb_grpc_server_handler *handler, void *context);
/* Closes every call (on_close) and frees the session. Accepts NULL. */
void eb_grpc_server_destroy(struct eb_grpc_server *server);

/* Bytes from the peer, in any portions. `now_ms` is any steady clock. false: the connection is
 * over (no HTTP/2, a violation, out of memory): send what is waiting, then close. */
bool eb_grpc_server_receive(
    struct eb_grpc_server *server, const uint8_t *bytes, size_t count, uint64_t now_ms);
/* Lets time pass: ends calls whose message makes no progress. */
void eb_grpc_server_tick(struct eb_grpc_server *server, uint64_t now_ms);

/* Moves what may be sent now into the queue of bytes to write. Called once before each write.
 * false: the connection is over. */
bool eb_grpc_server_send(struct eb_grpc_server *server);
/* The bytes to write: peek, write, drop. */
struct eb_send_queue *eb_grpc_server_queue(struct eb_grpc_server *server);
/* Whether the session has nothing more to read or to send: the connection can be closed. */
bool eb_grpc_server_is_done(const struct eb_grpc_server *server);
/* Why the connection is over, for the log; "" where it is not. */
const char *eb_grpc_server_reason(const struct eb_grpc_server *server);
/* Whether the client's preface and first SETTINGS have arrived. */
bool eb_grpc_server_is_open(const struct eb_grpc_server *server);
/* Whether a header block has begun and not ended. */
bool eb_grpc_server_is_in_headers(const struct eb_grpc_server *server);
size_t eb_grpc_server_call_count(const struct eb_grpc_server *server);

/* Drain: a GOAWAY notice, a ping's round trip, then the final GOAWAY with the last call's id; calls
 * that arrived by then are served, later ones refused. May be called twice. */
void eb_grpc_server_drain(struct eb_grpc_server *server);

/* Sends one message and takes the creator's hold on it, whether or not the call is still alive. */
void eb_grpc_call_answer(struct eb_grpc_call *call, struct eb_outgoing *message);
/* Ends the call with trailers, after the messages given so far; trailers only where there were
 * none. `text` may be NULL. `pushback_ms` above 0 sends grpc-retry-pushback-ms. What the peer still
 * sends on the call is dropped. Later calls on a finished call do nothing. */
void eb_grpc_call_finish(
    struct eb_grpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* Keeps further messages back (they fill the call's window) until resumed. */
void eb_grpc_call_pause(struct eb_grpc_call *call);
/* Lets messages through again, from the next eb_grpc_server_receive, _tick or _send on. */
void eb_grpc_call_resume(struct eb_grpc_call *call);
/* Gives a message's memory back to `memory` and credits nothing else. */
void eb_grpc_message_give(const struct eb_memory *memory, struct eb_grpc_message *message);
