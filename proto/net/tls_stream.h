/* The TLS session of one connection, on the client's or the server's side: translates between bytes
 * on the wire and plain bytes. No socket, no clock. Both sides use HTTP/2 over it.
 * Thread: one at a time. Memory: waiting output comes from an eb_memory, at most twice
 * EB_TLS_OUTPUT_BYTES_MAX. OpenSSL itself uses some 40 KiB while bytes are in transit, less at
 * other times. */
#pragma once

#include "proto/send_queue.h"

#define EB_TLS_RECORD_BYTES 16384      /* plaintext of the largest record */
#define EB_TLS_OUTPUT_BYTES_MAX 131072 /* most output written at once */
#define EB_TLS_HANDSHAKE_RECORD 22     /* first byte that any TLS peer sends */

struct eb_tls_stream; /* opaque */
struct ssl_ctx_st;    /* OpenSSL's SSL_CTX */

/* The differences between servers and clients: limits, and reasons for the log. The limits are on
 * records that bring no data, mostly KeyUpdates. OpenSSL handles these by itself; one record of
 * some 28 bytes costs 19 us. */
struct eb_tls_side {
    uint32_t idle_row_max;     /* most such records in a row */
    uint32_t idle_max;         /* most such records in all, not counting forgiven ones */
    uint32_t idle_period_ms;   /* time after which all such records are forgiven; 0: never */
    uint32_t idle_price_bytes; /* bytes of data for which one such record is forgiven; 0: never */
    const char *idle_reason;   /* reason for the end if there were too many */
    const char *ended_reason;  /* reason for the end if the peer has ended the stream */
    const char *no_memory_reason;
};

/* Creates a server's stream if `server_name` is NULL. Otherwise creates a client's stream to a
 * server whose certificate must have that name, and outputs the client's hello at once. Keeps a
 * reference to `context`. `side` and `memory` are borrowed for the stream's life. Returns NULL if
 * out of memory. */
struct eb_tls_stream *eb_tls_stream_create(const struct eb_tls_side *side,
    struct ssl_ctx_st *context, const char *server_name, const struct eb_memory *memory);
/* Frees the stream, even while output is being written. Accepts NULL. */
void eb_tls_stream_destroy(struct eb_tls_stream *stream);

/* Takes bytes from the peer, in any portions. The bytes are borrowed until eb_tls_stream_read
 * returns 0 or -1. `now_ms` is any steady clock, for the side's idle_period_ms. */
void eb_tls_stream_feed(
    struct eb_tls_stream *stream, const uint8_t *bytes, size_t count, uint64_t now_ms);
/* Takes the handshake as far as the fed bytes allow. Does nothing once it is done or has failed.
 * The next eb_tls_stream_read says how it went, and reads the bytes that follow the handshake.
 * eb_tls_stream_read does this too. Call this to compute the handshake on another thread, which
 * then has the stream and its eb_memory until the call returns; only eb_tls_stream_end_write may be
 * called meanwhile. */
void eb_tls_stream_handshake(struct eb_tls_stream *stream);
/* Takes memory for output from `memory` from now on, and keeps the pointer for the stream's life.
 * Output that waits already still goes back to where it came from. */
void eb_tls_stream_set_memory(struct eb_tls_stream *stream, const struct eb_memory *memory);
/* Decrypts the next of the fed bytes into `out`, of EB_TLS_RECORD_BYTES or more. Returns the number
 * of bytes in `out`, 0 if all was read, or -1 if the stream is over, with its reason set. After
 * each of these results there may be output to write. */
int eb_tls_stream_read(struct eb_tls_stream *stream, uint8_t *out, size_t out_bytes);

/* Encrypts the queue's bytes, in full records while there are enough, up to
 * EB_TLS_OUTPUT_BYTES_MAX. Does nothing before the handshake is done, or while the stream is held
 * up (eb_tls_stream_is_held_up). Returns false if out of memory, or if the peer has caused too much
 * output that it does not take; then the stream is over. */
bool eb_tls_stream_seal(struct eb_tls_stream *stream, struct eb_send_queue *queue);
/* Tells the peer that nothing follows. Does nothing if the stream is over. */
void eb_tls_stream_end(struct eb_tls_stream *stream);

/* Returns the output so far, `*count` bytes, which stay valid until eb_tls_stream_end_write. Only
 * one write may be in progress. Returns NULL if there is no output; then eb_tls_stream_end_write
 * must not be called. */
uint8_t *eb_tls_stream_begin_write(struct eb_tls_stream *stream, size_t *count);
void eb_tls_stream_end_write(struct eb_tls_stream *stream);

/* Returns whether the handshake is done and the peer speaks HTTP/2. The second function returns
 * whether the handshake has begun and is not done. */
bool eb_tls_stream_is_ready(const struct eb_tls_stream *stream);
bool eb_tls_stream_is_shaking(const struct eb_tls_stream *stream);
/* Returns whether the handshake is done and the peer has begun another TLS message, a KeyUpdate,
 * but not finished it. Nothing is encrypted until the peer finishes it. */
bool eb_tls_stream_is_held_up(const struct eb_tls_stream *stream);
/* Returns why the stream is over; "" if the stream is not over. */
const char *eb_tls_stream_reason(const struct eb_tls_stream *stream);
/* Returns whether the peer has shown a verified certificate with this name: one of its DNS names or
 * URIs or, if it has neither, its common name. */
bool eb_tls_stream_has_name(const struct eb_tls_stream *stream, const char *name);
