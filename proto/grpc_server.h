/* The server's side of one HTTP/2 connection that speaks gRPC: bytes in, calls and messages out;
 * answers in, bytes out. No sockets, no clock: the time is passed in.
 *
 * Thread: one at a time. Memory: message buffers and output come from the given eb_memory; the
 * session's own state is on the heap, bounded by the limits. Callbacks are called from
 * eb_grpc_server_receive, _tick, _send and _destroy. They may call any eb_grpc_call_ function, but
 * none of those four. */
#pragma once

#include "proto/grpc_call.h"

/* The sources of the session's memory; both may be the same. */
struct eb_grpc_server_memory {
    const struct eb_memory *messages; /* for messages; if exhausted, calls get RESOURCE_EXHAUSTED */
    const struct eb_memory *output;   /* for bytes to write; if exhausted, the connection ends */
};

struct eb_grpc_server; /* opaque */

/* Returns NULL if out of memory. All pointers are borrowed for the session's life, except `memory`
 * itself. The owner may change two kinds of limits between two calls of these functions: the
 * intervals between pings, and the stall times, whose new values hold for calls that begin
 * later. */
struct eb_grpc_server *eb_grpc_server_create(const struct eb_grpc_server_limits *limits,
    const struct eb_grpc_server_memory *memory, const struct eb_grpc_server_handler *handler,
    void *context);
/* Closes every call (on_close) and frees the session and its queue. Accepts NULL. */
void eb_grpc_server_destroy(struct eb_grpc_server *server);

/* Takes bytes from the peer, in any portions. `now_ms` is any steady clock. Returns false, as _send
 * does, if the connection is over (not HTTP/2, a violation, an attack, out of memory): then call
 * _send once more, write the waiting bytes and close. A violation may be reported only by the next
 * _send. */
bool eb_grpc_server_receive(
    struct eb_grpc_server *server, const uint8_t *bytes, size_t count, uint64_t now_ms);
/* Ends calls whose message or answer makes no progress. For messages, `unread_ms` does not count:
 * the time since the last tick during which the caller did not read the peer's bytes. */
void eb_grpc_server_tick(struct eb_grpc_server *server, uint64_t now_ms, uint64_t unread_ms);

/* Moves all that may be sent now into the write queue, up to some hundred KiB. Call this before
 * each write, and again after the write, because more may have been waiting. Returns false if the
 * connection is over; the bytes in the queue may still be written. */
bool eb_grpc_server_send(struct eb_grpc_server *server);
/* Returns the bytes to write: peek, write, drop. */
struct eb_send_queue *eb_grpc_server_queue(struct eb_grpc_server *server);
/* Returns whether the session has nothing more to read or to send: the connection can be closed. */
bool eb_grpc_server_is_done(const struct eb_grpc_server *server);
/* Returns why the connection is over, for the log; "" if the connection is not over. */
const char *eb_grpc_server_reason(const struct eb_grpc_server *server);
/* Returns whether the client's preface and first SETTINGS have arrived. */
bool eb_grpc_server_is_open(const struct eb_grpc_server *server);
/* Returns whether a header block has begun and not ended. */
bool eb_grpc_server_is_in_headers(const struct eb_grpc_server *server);
size_t eb_grpc_server_call_count(const struct eb_grpc_server *server);
/* Returns the number of calls so far, including the open ones. */
uint64_t eb_grpc_server_begun_count(const struct eb_grpc_server *server);
/* Returns the number of bytes of messages that have come, over all calls. Bytes for calls that are
 * over do not count. */
uint64_t eb_grpc_server_fed_bytes(const struct eb_grpc_server *server);
/* Returns whether resumed calls have messages to deliver. The next eb_grpc_server_receive (even of
 * no bytes) or eb_grpc_server_send delivers them. */
bool eb_grpc_server_has_resumed(const struct eb_grpc_server *server);
/* Returns the number of bytes of answers and frames that wait for the peer. */
size_t eb_grpc_server_waiting_bytes(const struct eb_grpc_server *server);

/* Drains the connection: sends a GOAWAY notice, waits for a ping's round trip, then sends the final
 * GOAWAY with the last call's id. Calls that arrive before the final GOAWAY are served, later calls
 * are refused. May be called twice. */
void eb_grpc_server_drain(struct eb_grpc_server *server);
/* Sends a ping, which a live peer answers with bytes. */
void eb_grpc_server_ping(struct eb_grpc_server *server);
