/* One connection to a server: a transport, the HTTP/2 session on it, and the attempts that were
 * sent over it. They share one LookupStream, or are unary calls of their own. When the token
 * changes, a new LookupStream replaces the former one, because a stream keeps the token that it
 * began with. The former one lasts until its attempts are answered.
 * Thread: the loop's. Memory: a closed connection holds none. Attempts are linked while they are
 * sent; they and their requests belong to their owner. */
#pragma once

#include "proto/grpc_client.h"
#include "proto/link/attempt.h"
#include "proto/link/transport.h"
#include "proto/link/window.h"

/* Request id of probes, which no attempt has. */
#define EB_PROBE_ID UINT64_MAX

/* Callbacks for what happens to attempts. */
struct eb_connection_handler {
    /* A message or the end of a call has come. Called before the functions below. */
    void (*on_heard)(struct eb_connection *connection);
    /* A message of the stream. Returns false with *error set if it is malformed; then the stream
     * must end. */
    bool (*on_stream_message)(struct eb_connection *connection, const uint8_t *bytes, size_t size,
        struct eb_error *error);
    /* A message of a unary attempt, which has not ended yet. */
    void (*on_message)(struct eb_attempt *attempt, const uint8_t *bytes, size_t size);
    /* The end of a unary attempt, which is no longer the connection's. */
    void (*on_end)(struct eb_attempt *attempt, const struct eb_error *error, uint32_t pushback_ms);
    /* An attempt left the connection unanswered, because the connection was lost or the stream has
     * ended. Its request may be sent again. */
    void (*on_drop)(struct eb_attempt *attempt, const struct eb_error *why);
};

/* Settings that all connections to a server share. */
struct eb_connection_config {
    const struct eb_connection_handler *handler;
    void (*on_open)(void *context, struct eb_connection *connection);
    /* The connection is closed and holds nothing any more. *why is UNAVAILABLE, or
     * RESOURCE_EXHAUSTED if out of memory. */
    void (*on_close)(void *context, struct eb_connection *connection, const struct eb_error *why);
    void *context; /* passed to on_open and on_close */
    struct eb_grpc_client_identity identity;
    struct eb_grpc_client_limits limits;
    const struct eb_memory *memory;
    bool is_unpaced; /* sends requests even if their answers will likely be late */
};

/* A LookupStream. A zeroed one has not begun. */
struct eb_connection_stream {
    struct eb_grpc_client_call *call; /* NULL: it has not begun, or has ended */
    bool is_over;    /* it has ended as `end` says; its attempts are yet to be told */
    bool is_unsound; /* this side has ended it; `end` says why */
    struct eb_error end;
};

struct eb_connection {
    /* Set by the owner, like the first fields of the transport. */
    const struct eb_connection_config *config;
    void *context; /* the owner's */
    struct eb_transport transport;
    struct eb_grpc_client *session; /* NULL if the connection is closed */
    struct eb_connection_stream stream;
    struct eb_connection_stream former; /* gets no more attempts */
    struct eb_attempt_list attempts;
    struct eb_grpc_client_call *probe; /* a unary probe that is not answered yet; NULL: none */
    bool is_dirty;                     /* there is something to write */
    bool is_ending;                    /* the session is being destroyed */
    bool has_spoken;                   /* the server has sent valid HTTP/2 */
    bool has_answered;                 /* the server has answered a request, not just refused it */
    struct eb_window windows[EB_PRIORITY_COUNT];
    uint64_t asked_ns; /* send time of the first request since the last read; 0: none in flight */
    uint64_t last_read_ns;
};

/* Opens a closed connection; on_open or on_close follows. Returns false if out of memory; then
 * neither follows. */
bool eb_connection_open(struct eb_connection *connection, uint64_t deadline_ns);
/* Closes the connection: on_drop for each of its attempts follows, then on_close. Does nothing if
 * it is closed. */
void eb_connection_close(struct eb_connection *connection);

/* Returns whether requests may be sent over the connection at all. */
bool eb_connection_is_usable(const struct eb_connection *connection);
/* Returns whether a request of that priority should be sent now: the connection is usable, few
 * bytes wait to be written, and few enough requests are in flight for answers to be in time. */
bool eb_connection_takes(const struct eb_connection *connection, enum eb_priority priority);
/* Returns whether an attempt that was sent now would likely be answered in time. */
bool eb_connection_is_in_time(
    const struct eb_connection *connection, const struct eb_attempt *attempt, uint64_t now_ns);
/* Sends an attempt over a usable connection: as a unary call if attempt->is_unary, else on the
 * stream. Returns false if it cannot; then the connection has not taken the attempt. */
bool eb_connection_send(
    struct eb_connection *connection, struct eb_attempt *attempt, uint64_t now_ns);
/* Removes an attempt that was sent on the stream: the message just read answers or refuses it. */
void eb_connection_answered(struct eb_connection *connection, struct eb_attempt *attempt,
    enum eb_status status, uint32_t retry_after_ms);
/* Notes that the message just read answers an attempt that is no longer the connection's. */
void eb_connection_answered_late(struct eb_connection *connection);
/* Removes a sent attempt that nobody needs any more, and tells the server. */
void eb_connection_withdraw(struct eb_connection *connection, struct eb_attempt *attempt);
/* Removes a sent attempt whose deadline has passed; the server knows that deadline. Closes the
 * connection if its server seems dead. */
void eb_connection_expire(
    struct eb_connection *connection, struct eb_attempt *attempt, uint64_t now_ns);
/* Closes the connection if its server owes late answers and seems dead. Called when the deadline of
 * a call that was not sent has passed: if the window is full of late attempts, no more are sent,
 * and so none can expire and show that the server is dead. */
void eb_connection_check(struct eb_connection *connection, uint64_t now_ns);
/* Sends an empty lookup: on the stream if it has begun, else as a unary call. An answer on the
 * stream has the id EB_PROBE_ID; that of a unary call is told by on_heard alone. */
void eb_connection_probe(struct eb_connection *connection);
/* Sends later requests on a new stream, with the current token. Attempts that were sent on the
 * former stream are answered there. */
void eb_connection_renew_stream(struct eb_connection *connection);
/* Returns whether eb_connection_settle has attempts to tell. */
bool eb_connection_must_settle(const struct eb_connection *connection);
/* Tells the attempts of a stream that has ended, and closes a connection that takes no more
 * requests and has none. */
void eb_connection_settle(struct eb_connection *connection);
/* Writes what there is to write. */
void eb_connection_flush(struct eb_connection *connection);
