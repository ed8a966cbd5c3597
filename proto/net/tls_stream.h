/* One connection's TLS between bytes on the wire and bytes of its session, on either side: no
 * socket, no clock. Both sides speak HTTP/2 above it.
 * Thread: one at a time. Memory: output that waits comes from the eb_memory given, at most twice
 * EB_TLS_OUTPUT_BYTES_MAX; OpenSSL's own is some 40 KiB while bytes are on their way, less while
 * none are. */
#pragma once

#include "proto/send_queue.h"

#define EB_TLS_RECORD_BYTES 16384      /* plain ones of the largest record */
#define EB_TLS_OUTPUT_BYTES_MAX 131072 /* that are written at once */
#define EB_TLS_HANDSHAKE_RECORD 22     /* the first byte of all that speaks TLS */

struct eb_tls_stream; /* opaque */
struct ssl_ctx_st;    /* OpenSSL's SSL_CTX */

/* How servers and clients differ: whom they put up with, and what they say of it. The limits are on
 * records that bring no data, mostly KeyUpdates. OpenSSL deals with these by itself; one of some 28
 * bytes costs 19 us. */
struct eb_tls_side {
    uint32_t idle_row_max;     /* in a row */
    uint32_t idle_max;         /* all of them, less those that are forgiven */
    uint32_t idle_period_ms;   /* after which all are forgiven; 0: never */
    uint32_t idle_price_bytes; /* of data, for which one is forgiven; 0: none is */
    const char *idle_reason;   /* why the stream is over when there were too many */
    const char *ended_reason;  /* when the peer has ended it */
    const char *no_memory_reason;
};

/* A server's stream, or a client's to a server whose certificate has `server_name`: its hello is
 * output at once. Keeps a reference to `context`; `side` and `memory` are borrowed for the stream's
 * life. NULL: no memory. */
struct eb_tls_stream *eb_tls_stream_create(const struct eb_tls_side *side,
    struct ssl_ctx_st *context, const char *server_name, const struct eb_memory *memory);
/* Also while output is being written. Accepts NULL. */
void eb_tls_stream_destroy(struct eb_tls_stream *stream);

/* Takes bytes from the peer, in any portions; they are borrowed until eb_tls_stream_read returns no
 * more. `now_ms` is any steady clock, for the side's idle_period_ms. */
void eb_tls_stream_feed(
    struct eb_tls_stream *stream, const uint8_t *bytes, size_t count, uint64_t now_ms);
/* Decrypts the next of what was fed. Returns how many bytes `out` has got; 0: all was read; -1: the
 * stream is over, as the reason says. It may have output in all cases. `out_bytes` is
 * EB_TLS_RECORD_BYTES or more. */
int eb_tls_stream_read(struct eb_tls_stream *stream, uint8_t *out, size_t out_bytes);

/* Encrypts what is in the queue, in full records as far as there is so much, once the handshake is
 * done and while nothing holds it up: up to what is written at once. false: no memory, or output
 * that the peer has caused and does not take is too much; the stream is over. */
bool eb_tls_stream_seal(struct eb_tls_stream *stream, struct eb_send_queue *queue);
/* Says that nothing follows; a stream that is over says nothing. */
void eb_tls_stream_end(struct eb_tls_stream *stream);

/* The output so far, `*count` bytes, which stay until eb_tls_stream_end_write; one at a time. NULL:
 * there is none, and nothing to end. */
uint8_t *eb_tls_stream_begin_write(struct eb_tls_stream *stream, size_t *count);
void eb_tls_stream_end_write(struct eb_tls_stream *stream);

/* Whether the handshake has been done, and the peer speaks HTTP/2; or has begun and is not done. */
bool eb_tls_stream_is_ready(const struct eb_tls_stream *stream);
bool eb_tls_stream_is_shaking(const struct eb_tls_stream *stream);
/* Whether the handshake is done and the peer has begun another message of TLS's own, a KeyUpdate,
 * and not ended it: until it does nothing is encrypted. */
bool eb_tls_stream_is_held_up(const struct eb_tls_stream *stream);
/* Why the stream is over; "" where it is not. */
const char *eb_tls_stream_reason(const struct eb_tls_stream *stream);
/* Whether the peer has shown a certificate, which was verified, with this name: one of its DNS
 * names or URIs or, where it has neither, its common name. */
bool eb_tls_stream_has_name(const struct eb_tls_stream *stream, const char *name);
