/* One call on the server's side of a connection. The first part is for handlers. The second is for
 * grpc_server.c, which alone opens, feeds and closes calls.
 * Thread: the connection's. Memory: messages and kept bytes come from the connection's eb_memory.
 * The calls themselves are on the heap and are kept for later calls of the connection. */
#pragma once

#include "proto/grpc_guard.h"
#include "proto/grpc_headers.h"
#include "proto/grpc_message.h"
#include "proto/grpc_output.h"
#include "proto/memory.h"

struct eb_grpc_piece;

/* The bytes of a paused call, as they came, in pieces that are filled and emptied in order. The
 * pieces take little more memory than the bytes. Zeroed is empty. */
struct eb_grpc_backlog {
    struct eb_grpc_piece *head; /* NULL if there is none */
    struct eb_grpc_piece *tail;
};

/* A bound on the total size of the messages that some calls of a connection hold until the handler
 * takes them. The struct belongs to the handler and outlives the calls. */
struct eb_grpc_hold {
    uint64_t bytes; /* bytes held now */
    uint64_t bytes_max;
};

/* Valid from on_call until on_close has returned. */
struct eb_grpc_call {
    const char *path;    /* "/embag.v1.EmbeddingBag/Lookup"; in on_refusal "" or a part of it */
    uint64_t timeout_us; /* grpc-timeout; 0: none was given */
    bool is_repeated;    /* grpc-previous-rpc-attempts: the client sends a call again */
    /* In on_call only. "" for a credential that no server knows; NULL if none was given. */
    const char *authorization;
    const struct eb_trace_parent *trace; /* trace of the call; its trace_id may be "" */
    enum eb_status status;               /* in on_refusal: the status with which the call ends */
    /* In on_refusal and on_close only: why the session itself ended the call with a status other
     * than OK. NULL if the session did not end it, or had no memory for the text. */
    const char *reason;
    bool lacked_memory;  /* in on_close: the call ended for lack of memory for a message */
    bool has_message;    /* whether the message of a call that expects one has come */
    uint64_t message_ms; /* time when that message came, plus the time since then in which nothing
                            was read */
    void *user;          /* the handler's */

    /* The following members are not for handlers. */
    struct eb_grpc_connection *connection;
    struct eb_grpc_call *next;
    struct eb_grpc_call *previous;
    int32_t stream_id;
    uint32_t message_stall_ms_max; /* as in the connection's limits when the call began */
    uint32_t answer_stall_ms_max;
    uint32_t pushback_ms;
    char *text;           /* status text of a call whose trailers wait for messages; may be NULL */
    size_t held_bytes;    /* bytes that have arrived and are not credited to the peer's windows */
    uint64_t progress_ms; /* time when bytes last arrived */
    uint64_t begun_ms;    /* time when the first of the held bytes arrived, or later */
    uint64_t sent_ms;     /* time when a tick last saw progress of the answers */
    uint64_t sent_bytes;  /* bytes of answers sent by sent_ms */
    struct eb_grpc_refusal refusal; /* answer to a request that is not gRPC, sent once the peer has
                                       ended its side */
    bool announced;                 /* on_call was called */
    bool answered;                  /* the response's HEADERS are submitted */
    bool finished;                  /* neither side accepts anything any more */
    bool given_up;                  /* finished by the session, not by the handler */
    bool trailers_sent;
    bool paused;
    bool peer_ended;
    bool end_delivered;
    struct eb_grpc_hold *hold;      /* for a call that expects one message; NULL for a call that
                                       takes many */
    struct eb_grpc_message message; /* message of a call that expects one, until it is taken */
    struct eb_grpc_reader reader;
    struct eb_grpc_backlog backlog;
    struct eb_grpc_output output;
    struct eb_grpc_headers headers;
};

/* The callbacks of a connection for its calls. */
struct eb_grpc_server_handler {
    /* The headers of a call are complete and valid. */
    void (*on_call)(void *context, struct eb_grpc_call *call);
    /* The headers of a call are complete and not valid. The call ends with call->status because of
     * call->reason. No other callback is called for it. */
    void (*on_refusal)(void *context, struct eb_grpc_call *call);
    /* One whole message, which the receiver takes. Not called while the call is paused, nor for
     * calls that expect one message. */
    void (*on_message)(void *context, struct eb_grpc_call *call, struct eb_grpc_message message);
    /* The peer has ended its side, after the last on_message. Not called for calls that expect one
     * message. */
    void (*on_request_end)(void *context, struct eb_grpc_call *call);
    /* The request of a call that expects one message is complete: the message has come, and the
     * peer has ended its side. NULL if no call expects one message. */
    void (*on_request)(void *context, struct eb_grpc_call *call);
    /* A message of a call that expects one was decompressed. This costs CPU time even if the
     * request is never ended. NULL if this callback is not wanted. */
    void (*on_inflated)(void *context);
    /* A message with is_timed is about to be sent. To have the message sent, returns it. To drop
     * it, drops the hold on it and returns NULL, or another message with a hold for the caller.
     * Called from eb_grpc_server_send, perhaps several times for one message. Must not call
     * eb_grpc_call_answer. NULL if no message is timed. */
    struct eb_outgoing *(*on_drop_if_expired)(
        void *context, struct eb_grpc_call *call, struct eb_outgoing *message);
    /* The call is over: everything is sent, the call was reset, or the connection is closing.
     * Always the last callback of a call for which on_call was called. */
    void (*on_close)(void *context, struct eb_grpc_call *call);
};

/* In on_call only. Caps the size of each message of the peer, if this is less than the connection's
 * limit. */
void eb_grpc_call_limit_message(struct eb_grpc_call *call, uint32_t bytes_max);
/* In on_call only. Makes the call take exactly one message, which is held until the peer has ended
 * the request and the message is taken. The call ends with UNIMPLEMENTED if it has no message or
 * two; with RESOURCE_EXHAUSTED if the calls of `hold` then hold too much; with DEADLINE_EXCEEDED if
 * the request is not ended within message_stall_ms_max of its message. */
void eb_grpc_call_expect_one(struct eb_grpc_call *call, struct eb_grpc_hold *hold);
/* Returns the message of a call that expects one and passes it to the caller. To be called once, in
 * on_request or later; the call must not be finished. */
struct eb_grpc_message eb_grpc_call_take_message(struct eb_grpc_call *call);
/* Sends one message and takes the creator's hold on it, whether or not the call is still alive. */
void eb_grpc_call_answer(struct eb_grpc_call *call, struct eb_outgoing *message);
/* Ends the call with trailers, after the messages given so far. If there were no messages, sends a
 * trailers-only response. `text` may be NULL. If `pushback_ms` is above 0, sends
 * grpc-retry-pushback-ms. Drops whatever the peer still sends on the call. Does nothing if the call
 * is finished already. */
void eb_grpc_call_finish(
    struct eb_grpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* Replaces the status and text of a call that is finished and whose trailers have not left. For
 * on_drop_if_expired. */
void eb_grpc_call_restate(struct eb_grpc_call *call, enum eb_status status, const char *text);
/* In on_close only. Returns the status that was sent to the peer, or CANCELLED if no status was
 * sent, because the peer has reset the call or the connection has gone. */
enum eb_status eb_grpc_call_outcome(const struct eb_grpc_call *call);
/* Keeps further messages back until the call is resumed. Until then, their bytes fill the call's
 * window. */
void eb_grpc_call_pause(struct eb_grpc_call *call);
/* Returns whether bytes have arrived that are not delivered yet. */
bool eb_grpc_call_has_kept(const struct eb_grpc_call *call);
/* Delivers messages again, from the next eb_grpc_server_receive, _tick or _send on. */
void eb_grpc_call_resume(struct eb_grpc_call *call);

/* State that the calls of one connection share. */
struct eb_grpc_connection {
    struct nghttp2_session *session;
    struct eb_send_queue *queue;
    const struct eb_memory *memory;
    const struct eb_grpc_server_limits *limits;
    const struct eb_grpc_server_handler *handler;
    void *context;
    struct eb_grpc_call *calls; /* open calls, newest first */
    struct eb_grpc_call *spare; /* closed calls for reuse, linked by next */
    size_t call_count;
    size_t output_bytes; /* bytes of answers, over all calls, that wait for the peer's windows */
    uint64_t fed_bytes;  /* bytes of messages that have come */
    uint64_t now_ms;
    bool resumed; /* a call may have messages to deliver */
    bool failed;  /* nghttp2 had no memory for what a call submitted */
    bool is_dead; /* the session may not be used any more, except to be deleted */
};

/* Returns NULL if out of memory. */
struct eb_grpc_call *eb_grpc_call_open(struct eb_grpc_connection *connection, int32_t stream_id);
/* Called when the request's headers are complete. Passes the call to the handler, or answers with
 * the error in the headers. */
void eb_grpc_call_begin(struct eb_grpc_call *call);
void eb_grpc_call_feed(struct eb_grpc_call *call, const uint8_t *bytes, size_t count);
/* Called when the peer has ended its side. */
void eb_grpc_call_end(struct eb_grpc_call *call);
/* Called when a frame that ends our side has been sent. */
void eb_grpc_call_trailers_sent(struct eb_grpc_call *call);
/* Delivers at most one message of the kept bytes, unless the call is paused. Returns true if it
 * should be called again: there is more to read. */
bool eb_grpc_call_advance(struct eb_grpc_call *call);
/* Ends calls whose message or answer has made no progress for too long. For a message, two periods
 * do not count: the time while a paused call keeps the connection's window shut, and the
 * `unread_ms` since the last tick during which the peer's bytes were not read. */
void eb_grpc_call_tick(struct eb_grpc_connection *connection, uint64_t unread_ms);
/* Ends the youngest calls while incomplete messages fill the connection's window, because none of
 * these messages could ever be completed. */
void eb_grpc_call_relieve(struct eb_grpc_connection *connection);
/* Called when the stream is gone. Calls on_close, then keeps the call as a spare one. */
void eb_grpc_call_close(struct eb_grpc_call *call);
/* Frees the spare calls. */
void eb_grpc_call_free_spare(struct eb_grpc_connection *connection);
