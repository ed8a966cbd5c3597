/* One connection to the server: a transport, the HTTP/2 session on it, and the calls that were sent
 * over it. Calls share one LookupStream, or are unary calls of their own. When the token changes, a
 * new LookupStream replaces the former one, because a stream keeps the token that it began with.
 * The former one lasts until its calls are answered.
 * Thread: the loop's. Memory: a closed connection holds none. Calls are linked while they are sent;
 * they and their requests belong to their owner. */
#pragma once

#include "client/calls.h"
#include "client/transport.h"
#include "client/window.h"
#include "proto/grpc_client.h"

struct eb_connection_handler {
    void (*on_open)(void *context, struct eb_connection *connection);
    /* The connection is closed and holds nothing any more. *why is UNAVAILABLE, or
     * RESOURCE_EXHAUSTED if out of memory. */
    void (*on_close)(void *context, struct eb_connection *connection, const struct eb_error *why);
    /* A message of the stream. Returns false with *error set if it is malformed; then the stream
     * must end. */
    bool (*on_stream_message)(struct eb_connection *connection, const uint8_t *bytes, size_t size,
        struct eb_error *error);
    /* A message of a unary call, which has not ended yet. */
    void (*on_message)(struct eb_call *call, const uint8_t *bytes, size_t size);
    /* The end of a unary call, which is no longer the connection's. */
    void (*on_end)(struct eb_call *call, const struct eb_error *error, uint32_t pushback_ms);
    /* A call left the connection unanswered, because the connection was lost or the stream has
     * ended. Its request may be sent again. */
    void (*on_drop)(struct eb_call *call, const struct eb_error *why);
};

/* Settings that all connections of a client share. */
struct eb_connection_config {
    const struct eb_connection_handler *handler;
    void *context; /* passed to on_open and on_close */
    struct eb_grpc_client_identity identity;
    struct eb_grpc_client_limits limits;
    const struct eb_memory *memory;
    bool is_unpaced; /* sends calls even if their answers will likely be late */
};

/* A LookupStream. A zeroed one has not begun. */
struct eb_connection_stream {
    struct eb_grpc_client_call *call; /* NULL: it has not begun, or has ended */
    bool is_over;                     /* it has ended as `end` says; its calls are yet to be told */
    bool is_unsound;                  /* this side has ended it; `end` says why */
    struct eb_error end;
};

struct eb_connection {
    /* Set by the owner, like the first fields of the transport. */
    const struct eb_connection_config *config;
    void *context; /* the owner's */
    struct eb_transport transport;
    struct eb_grpc_client *session; /* NULL if the connection is closed */
    struct eb_connection_stream stream;
    struct eb_connection_stream former; /* gets no more calls */
    struct eb_call_list calls;
    bool is_dirty;     /* there is something to write */
    bool is_ending;    /* the session is being destroyed */
    bool has_spoken;   /* the server has sent valid HTTP/2 */
    bool has_answered; /* the server has answered a call, not just refused it */
    struct eb_window windows[EB_CALL_PRIORITIES];
    uint64_t asked_ns; /* send time of the first call since the last read; 0: none in flight */
    uint64_t last_read_ns;
};

/* Opens a closed connection; on_open or on_close follows. Returns false if out of memory; then
 * neither follows. */
bool eb_connection_open(struct eb_connection *connection, uint64_t deadline_ns);
/* Closes the connection: on_drop for each of its calls follows, then on_close. Does nothing if it
 * is closed. */
void eb_connection_close(struct eb_connection *connection);

/* Returns whether calls may be sent over the connection at all. */
bool eb_connection_is_usable(const struct eb_connection *connection);
/* Returns whether a call of that priority should be sent now: the connection is usable, few bytes
 * wait to be written, and few enough calls are in flight for answers to be in time. */
bool eb_connection_takes(const struct eb_connection *connection, enum eb_call_priority priority);
/* Returns whether a call that was sent now would likely be answered in time. */
bool eb_connection_is_in_time(
    const struct eb_connection *connection, const struct eb_call *call, uint64_t now_ns);
/* Sends a call over a usable connection: as a unary call if call->is_unary, else on the stream.
 * Returns false if it cannot; then the connection has not taken the call. */
bool eb_connection_send(struct eb_connection *connection, struct eb_call *call, uint64_t now_ns);
/* Removes a call that was sent on the stream: the message just read answers or refuses it. */
void eb_connection_answered(struct eb_connection *connection, struct eb_call *call,
    enum eb_status status, uint32_t retry_after_ms);
/* Notes that the message just read answers a call that is no longer the connection's. */
void eb_connection_answered_late(struct eb_connection *connection);
/* Removes a sent call that nobody needs any more, and tells the server. */
void eb_connection_withdraw(struct eb_connection *connection, struct eb_call *call);
/* Removes a sent call whose deadline has passed; the server knows that deadline. Closes the
 * connection if its server seems dead. */
void eb_connection_expire(struct eb_connection *connection, struct eb_call *call, uint64_t now_ns);
/* Closes the connection if its server owes late answers and seems dead. Called when the deadline of
 * a call that was not sent has passed: if the window is full of late calls, no more calls are sent,
 * and so none can expire and show that the server is dead. */
void eb_connection_check(struct eb_connection *connection, uint64_t now_ns);
/* Sends later calls on a new stream, with the current token. Calls that were sent on the former
 * stream are answered there. */
void eb_connection_renew_stream(struct eb_connection *connection);
/* Returns whether eb_connection_settle has calls to tell. */
bool eb_connection_must_settle(const struct eb_connection *connection);
/* Tells the calls of a stream that has ended, and closes a connection that takes no more calls and
 * has none. */
void eb_connection_settle(struct eb_connection *connection);
/* Writes what there is to write. */
void eb_connection_flush(struct eb_connection *connection);
