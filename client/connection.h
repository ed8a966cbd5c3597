/* One connection to the server: a transport with an HTTP/2 session on it, and the calls that were
 * sent over it, on one LookupStream or each by itself.
 * Thread: the loop's. Memory: a closed connection holds none. Calls are linked while they are sent;
 * they and their requests are their owner's. */
#pragma once

#include "client/calls.h"
#include "client/transport.h"
#include "client/window.h"
#include "proto/grpc_client.h"

struct eb_connection_handler {
    void (*on_open)(void *context, struct eb_connection *connection);
    /* Nothing of it is left; *why is UNAVAILABLE, or RESOURCE_EXHAUSTED without memory. */
    void (*on_close)(void *context, struct eb_connection *connection, const struct eb_error *why);
    /* A message of the stream. false: it makes no sense and the stream must end; *error is set. */
    bool (*on_stream_message)(struct eb_connection *connection, const uint8_t *bytes, size_t size,
        struct eb_error *error);
    /* A message of a unary call, which has not ended yet. */
    void (*on_message)(struct eb_call *call, const uint8_t *bytes, size_t size);
    /* The end of a unary call, which is no longer the connection's. */
    void (*on_end)(struct eb_call *call, const struct eb_error *error, uint32_t pushback_ms);
    /* A call that has not been answered is no longer the connection's: that is lost, or its stream
     * has ended. Its request may be sent again. */
    void (*on_drop)(struct eb_call *call, const struct eb_error *why);
};

/* What all connections of a client have in common. */
struct eb_connection_config {
    const struct eb_connection_handler *handler;
    void *context; /* of on_open and on_close */
    struct eb_grpc_client_identity identity;
    struct eb_grpc_client_limits limits;
    const struct eb_memory *memory;
    bool is_unpaced; /* calls are sent however late their answers will be */
};

struct eb_connection {
    const struct eb_connection_config *config; /* set by the owner, as are transport's first ones */
    void *context;                             /* the owner's */
    struct eb_transport transport;
    struct eb_grpc_client *session;     /* NULL: closed */
    struct eb_grpc_client_call *stream; /* NULL: none, or it has ended */
    struct eb_call_list calls;
    bool is_dirty;       /* has something to write */
    bool is_stream_over; /* and its calls have not been told; stream_end says how */
    bool is_ending;      /* the session is being destroyed */
    bool is_unsound;     /* the stream was ended by us, as stream_end says */
    bool has_spoken;     /* the server, in HTTP/2 */
    bool has_answered;   /* a call, not refused it */
    struct eb_window windows[EB_CALL_PRIORITIES];
    uint64_t asked_ns; /* when a call was sent first since the last read; 0: none is under way */
    uint64_t last_read_ns;
    struct eb_error stream_end;
};

/* Opens a closed connection: on_open or on_close follows. false: no memory, and neither does. */
bool eb_connection_open(struct eb_connection *connection, uint64_t deadline_ns);
/* Closes it; on_drop for each of its calls, then on_close follow. Accepts a closed one. */
void eb_connection_close(struct eb_connection *connection);

/* Whether calls may be sent over it at all. */
bool eb_connection_is_usable(const struct eb_connection *connection);
/* And whether one of that priority should be now: little waits to leave, and there are not so many
 * under way that answers come late. */
bool eb_connection_takes(const struct eb_connection *connection, enum eb_call_priority priority);
/* Whether a call that were sent now would likely be answered in time. */
bool eb_connection_is_in_time(
    const struct eb_connection *connection, const struct eb_call *call, uint64_t now_ns);
/* Sends a call over a usable one, on the stream or, where call->is_unary, by itself. false: it
 * cannot; the call is not the connection's. */
bool eb_connection_send(struct eb_connection *connection, struct eb_call *call, uint64_t now_ns);
/* The message that has just been read answers a call that was sent on the stream, or refuses it:
 * the call is no longer the connection's. */
void eb_connection_answered(struct eb_connection *connection, struct eb_call *call,
    enum eb_status status, uint32_t retry_after_ms);
/* The same for a call that is not the connection's any more. */
void eb_connection_answered_late(struct eb_connection *connection);
/* Takes a sent call away that is of no use any more, and tells the server. */
void eb_connection_withdraw(struct eb_connection *connection, struct eb_call *call);
/* Takes a sent call away whose time is over, which the server knows by itself. Closes a connection
 * whose server seems dead. */
void eb_connection_expire(struct eb_connection *connection, struct eb_call *call, uint64_t now_ns);
/* A call's time is over that was not sent: closes a connection whose server owes answers and seems
 * dead, for one that is full of such calls sends no more by which that could be seen. */
void eb_connection_check(struct eb_connection *connection, uint64_t now_ns);
/* Tells the calls of a stream that has ended, and closes a connection that takes no more calls and
 * has none. */
void eb_connection_settle(struct eb_connection *connection);
/* Writes what there is to write. */
void eb_connection_flush(struct eb_connection *connection);
