/* One call on the server's side of a connection. The first part is for handlers; the second for
 * grpc_server.c, which alone opens calls, feeds and closes them.
 * Thread: the connection's. Memory: messages and bytes kept back from the connection's eb_memory;
 * the calls themselves from the heap, kept for later calls of the connection. */
#pragma once

#include "proto/grpc_guard.h"
#include "proto/grpc_headers.h"
#include "proto/grpc_message.h"
#include "proto/grpc_output.h"
#include "proto/memory.h"

struct eb_grpc_piece;

/* Bytes of a paused call, as they came, in pieces that are filled and emptied in order: they take
 * little more memory than there are of them. Zeroed is empty. */
struct eb_grpc_backlog {
    struct eb_grpc_piece *head; /* NULL: none */
    struct eb_grpc_piece *tail;
};

/* Bounds the messages that some of a connection's calls hold together until they are taken. It is
 * the handler's, and outlives the calls. */
struct eb_grpc_hold {
    uint64_t bytes; /* held now */
    uint64_t bytes_max;
};

/* Valid from on_call until on_close has returned. */
struct eb_grpc_call {
    const char *path;    /* "/embag.v1.EmbeddingBag/Lookup"; in on_refusal "", or a part of it */
    uint64_t timeout_us; /* grpc-timeout; 0: none was given */
    /* In on_call only. "": what no server knows; NULL: none was given. */
    const char *authorization;
    const struct eb_trace_parent *trace; /* what the call is part of; its trace_id may be "" */
    enum eb_status status;               /* in on_refusal: how the call ends */
    /* In on_refusal and on_close only. Where the session itself has ended the call: status is not
     * OK, and this says why, unless there was no memory for it. NULL otherwise. */
    const char *reason;
    bool lacked_memory;  /* in on_close: that was for want of memory for a message */
    bool has_message;    /* of a call that expects one message: it has come */
    uint64_t message_ms; /* when it came; without the time since in which nothing was read */
    void *user;          /* the handler's */

    /* What follows is not for handlers. */
    struct eb_grpc_connection *connection;
    struct eb_grpc_call *next;
    struct eb_grpc_call *previous;
    int32_t stream_id;
    uint32_t pushback_ms;
    char *text;           /* of a finished call whose trailers wait for messages; may be NULL */
    size_t held_bytes;    /* arrived and not credited to the peer's windows */
    uint64_t progress_ms; /* when bytes arrived last */
    uint64_t begun_ms;    /* when the first of the bytes held did, or later */
    uint64_t sent_ms;     /* when a tick last saw that the answers had moved on */
    uint64_t sent_bytes;  /* of the answers by then */
    struct eb_grpc_refusal refusal; /* of what is no gRPC, once the peer has ended its side */
    bool announced;                 /* on_call has been called */
    bool answered;                  /* the response's HEADERS are submitted */
    bool finished;                  /* nothing is accepted any more, from either side */
    bool given_up;                  /* by the session */
    bool trailers_sent;
    bool paused;
    bool peer_ended;
    bool end_delivered;
    struct eb_grpc_hold *hold;      /* of a call that expects one message; NULL: it takes many */
    struct eb_grpc_message message; /* of a call that expects one, until it is taken */
    struct eb_grpc_reader reader;
    struct eb_grpc_backlog backlog;
    struct eb_grpc_output output;
    struct eb_grpc_headers headers;
};

/* What a connection calls for its calls. */
struct eb_grpc_server_handler {
    /* A call's headers are complete and in order. */
    void (*on_call)(void *context, struct eb_grpc_call *call);
    /* A call's headers are complete and not in order: it ends with its status, for its reason, and
     * none of the others is called for it. */
    void (*on_refusal)(void *context, struct eb_grpc_call *call);
    /* One whole message; the receiver takes it. Not called while the call is paused, nor for calls
     * that expect one message. */
    void (*on_message)(void *context, struct eb_grpc_call *call, struct eb_grpc_message message);
    /* The peer has ended its side, after the last on_message. Not called for calls that expect one
     * message. */
    void (*on_request_end)(void *context, struct eb_grpc_call *call);
    /* The whole request of a call that expects one message: that has come, and the peer has ended
     * its side. NULL if no call expects one. */
    void (*on_request)(void *context, struct eb_grpc_call *call);
    /* A message of a call that expects one was decompressed, which costs CPU time whether or not
     * its request is ever ended. NULL: nobody asks. */
    void (*on_inflated)(void *context);
    /* A message that is_timed is about to be sent: it returns that, and it leaves; or it drops it
     * and returns another message, with its hold, or NULL. Called from _send, perhaps several times
     * for one message; may not answer. NULL where no message is timed. */
    struct eb_outgoing *(*on_drop_if_expired)(
        void *context, struct eb_grpc_call *call, struct eb_outgoing *message);
    /* The call is over: all sent, reset or the connection is going. Always the last callback of a
     * call for which on_call was called. */
    void (*on_close)(void *context, struct eb_grpc_call *call);
};

/* In on_call only: no message of the peer's may be larger than this, where it is less than the
 * connection's limit. */
void eb_grpc_call_limit_message(struct eb_grpc_call *call, uint32_t bytes_max);
/* In on_call only: the call takes exactly one message, which is held until its peer has ended the
 * request and it is taken. A call without a message or with two ends with UNIMPLEMENTED; one that
 * makes the calls of `hold` hold too much, with RESOURCE_EXHAUSTED; one that is not ended within
 * message_stall_ms_max of its message, with DEADLINE_EXCEEDED. */
void eb_grpc_call_expect_one(struct eb_grpc_call *call, struct eb_grpc_hold *hold);
/* Returns the message of a call that expects one, which becomes the caller's. From on_request on,
 * once; the call must not be finished. */
struct eb_grpc_message eb_grpc_call_take_message(struct eb_grpc_call *call);
/* Sends one message and takes the creator's hold on it, whether or not the call is still alive. */
void eb_grpc_call_answer(struct eb_grpc_call *call, struct eb_outgoing *message);
/* Ends the call with trailers, after the messages given so far; trailers only where there were
 * none. `text` may be NULL. `pushback_ms` above 0 sends grpc-retry-pushback-ms. What the peer still
 * sends on the call is dropped. Later calls on a finished call do nothing. */
void eb_grpc_call_finish(
    struct eb_grpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* Replaces the status and text of a call that is finished and whose trailers have not left. For
 * on_drop_if_expired. */
void eb_grpc_call_restate(struct eb_grpc_call *call, enum eb_status status, const char *text);
/* In on_close only: what the peer was told; CANCELLED where that was nothing, since it has reset
 * the call or the connection has gone. */
enum eb_status eb_grpc_call_outcome(const struct eb_grpc_call *call);
/* Keeps further messages back (they fill the call's window) until resumed. */
void eb_grpc_call_pause(struct eb_grpc_call *call);
/* Whether bytes have come that were not delivered. */
bool eb_grpc_call_has_kept(const struct eb_grpc_call *call);
/* Lets messages through again, from the next eb_grpc_server_receive, _tick or _send on. */
void eb_grpc_call_resume(struct eb_grpc_call *call);

/* What the calls of one connection share. */
struct eb_grpc_connection {
    struct nghttp2_session *session;
    struct eb_send_queue *queue;
    const struct eb_memory *memory;
    const struct eb_grpc_server_limits *limits;
    const struct eb_grpc_server_handler *handler;
    void *context;
    struct eb_grpc_call *calls; /* open ones, the newest first */
    struct eb_grpc_call *spare; /* closed ones, by next */
    size_t call_count;
    size_t output_bytes; /* answers that wait for the peer's windows, of all calls */
    uint64_t fed_bytes;  /* of messages, that have come */
    uint64_t now_ms;
    bool resumed; /* some call may have messages to deliver */
    bool failed;  /* nghttp2 had no memory for what a call submitted */
    bool is_dead; /* the session may not be used any more, except to delete it */
};

/* NULL: no memory. */
struct eb_grpc_call *eb_grpc_call_open(struct eb_grpc_connection *connection, int32_t stream_id);
/* The request's headers are complete: announces the call or answers what is wrong with them. */
void eb_grpc_call_begin(struct eb_grpc_call *call);
void eb_grpc_call_feed(struct eb_grpc_call *call, const uint8_t *bytes, size_t count);
/* The peer has ended its side. */
void eb_grpc_call_end(struct eb_grpc_call *call);
/* A frame that ends our side has been sent. */
void eb_grpc_call_trailers_sent(struct eb_grpc_call *call);
/* Delivers at most one message of what was kept back, unless the call is paused. true: there is
 * more to read. */
bool eb_grpc_call_advance(struct eb_grpc_call *call);
/* Time has passed: ends calls whose message, or whose answer, stands still for too long. For a
 * message the time does not count in which a paused call keeps the connection's window shut, and
 * the `unread_ms` since the last tick in which the peer's bytes were not read. */
void eb_grpc_call_tick(struct eb_grpc_connection *connection, uint64_t unread_ms);
/* Where messages that are not complete fill the connection's window, none of them ever will be: the
 * youngest call gives way. */
void eb_grpc_call_relieve(struct eb_grpc_connection *connection);
/* The stream is gone: on_close, then the call is spare. */
void eb_grpc_call_close(struct eb_grpc_call *call);
/* Frees the spare calls. */
void eb_grpc_call_free_spare(struct eb_grpc_connection *connection);
