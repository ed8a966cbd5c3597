/* What goes out over a libuv stream: a session's queue, as it is by gathered writes, or through
 * TLS. Thread: its loop's. Memory: inside the struct; bytes stay in the queue, or in TLS's output,
 * until they are written. */
#pragma once

#include "proto/send_queue.h"

#include <uv.h>

struct eb_tls_stream;

struct eb_socket_output {
    /* Set by the owner before the first write, kept. */
    uv_stream_t *stream;
    struct eb_send_queue *queue;
    struct eb_tls_stream *tls; /* NULL: plain bytes */
    uint64_t *sent_bytes;      /* a sum of what sockets have taken */
    /* A write that was left to libuv is over. status: 0 or a negative libuv code. */
    void (*on_written)(struct eb_socket_output *output, int status);

    uv_write_t write;
    size_t writing_bytes;   /* of the write under way; 0: none is */
    size_t unwritten_bytes; /* of the write under way, as the last look saw it */
    uint64_t moved_ms;      /* last progress that a look saw; the owner sets when it began */
};

/* Writes some of what there is, with no write under way. 1: all that was offered was taken, and
 * there may be more; 0: there is no more, or the rest is on its way and on_written follows; a
 * negative libuv code: the stream is of no use, UV_EPROTO where TLS's reason says why. */
int eb_socket_output_write(struct eb_socket_output *output);
/* Tells a peer that speaks TLS that nothing follows, as far as the socket takes it at once. */
void eb_socket_output_end(struct eb_socket_output *output);
/* Whether bytes have waited for the peer for `longest_ms`: to be taken, or for the rest of a
 * message of TLS's own that it has begun, before which nothing of the queue is sent. A few that go
 * out now and then are no progress: they would hold the rest for as long as the peer likes. */
bool eb_socket_output_is_stalled(
    struct eb_socket_output *output, uint64_t now_ms, uint64_t longest_ms);
