/* The server's side of one HTTP/2 connection that speaks gRPC: bytes in, calls and messages out;
 * answers in, bytes out. No sockets, no clock: time is passed in.
 *
 * Thread: one at a time. Memory: message buffers and output come from the eb_memory given; state
 * of its own from the heap, bounded by the limits. Callbacks are called from
 * eb_grpc_server_receive, _tick, _send and _destroy and may call any eb_grpc_call_ function, but
 * neither of those. */
#pragma once

#include "proto/grpc_call.h"

/* Where its memory comes from; both may be the same. */
struct eb_grpc_server_memory {
    const struct eb_memory *messages; /* where it is used up, calls get RESOURCE_EXHAUSTED */
    const struct eb_memory *output;   /* of bytes to write; used up, it ends the connection */
};

struct eb_grpc_server; /* opaque */

/* NULL: no memory. All pointers are borrowed for the session's life, but `memory` itself. */
struct eb_grpc_server *eb_grpc_server_create(const struct eb_grpc_server_limits *limits,
    const struct eb_grpc_server_memory *memory, const struct eb_grpc_server_handler *handler,
    void *context);
/* Closes every call (on_close) and frees the session and its queue. Accepts NULL. */
void eb_grpc_server_destroy(struct eb_grpc_server *server);

/* Bytes from the peer, in any portions. `now_ms` is any steady clock. false, here and from _send:
 * the connection is over (no HTTP/2, a violation, an attack, out of memory): call _send once more,
 * write what is waiting, then close. A violation may show at the next _send only. */
bool eb_grpc_server_receive(
    struct eb_grpc_server *server, const uint8_t *bytes, size_t count, uint64_t now_ms);
/* Lets time pass: ends calls whose message or answer makes no progress. The `unread_ms` since the
 * last tick in which the caller did not read what the peer may have sent do not count for messages.
 */
void eb_grpc_server_tick(struct eb_grpc_server *server, uint64_t now_ms, uint64_t unread_ms);

/* Moves what may be sent now into the queue of bytes to write, up to some hundred KiB. Called
 * before each write, and again once that is done: more may have been waiting. false: the connection
 * is over, what is in the queue may still be written. */
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
/* Calls that there have been, those that there are included. */
uint64_t eb_grpc_server_begun_count(const struct eb_grpc_server *server);
/* Bytes of messages that have come, of all calls; those of calls that are over are not counted. */
uint64_t eb_grpc_server_fed_bytes(const struct eb_grpc_server *server);
/* Whether calls were resumed whose messages the next eb_grpc_server_receive, be it of no bytes, or
 * _send delivers. */
bool eb_grpc_server_has_resumed(const struct eb_grpc_server *server);
/* Bytes of answers and frames that wait for the peer. */
size_t eb_grpc_server_waiting_bytes(const struct eb_grpc_server *server);

/* Drain: a GOAWAY notice, a ping's round trip, then the final GOAWAY with the last call's id; calls
 * that arrived by then are served, later ones refused. May be called twice. */
void eb_grpc_server_drain(struct eb_grpc_server *server);
/* Sends a ping, to which a peer that is there answers with bytes. */
void eb_grpc_server_ping(struct eb_grpc_server *server);
