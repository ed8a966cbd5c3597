/* The output of a libuv stream: sends a session's queue through TLS, or by gathered writes of its
 * plain bytes.
 * Thread: its loop's. Memory: inside the struct; bytes stay in the queue, or in the output of TLS,
 * until they are written. */
#pragma once

#include "proto/send_queue.h"

#include <uv.h>

struct eb_tls_stream;

struct eb_socket_output {
    /* Set by the owner before the first write, and kept. */
    uv_stream_t *stream;
    struct eb_send_queue *queue;
    struct eb_tls_stream *tls; /* NULL for plain bytes */
    uint64_t *sent_bytes;      /* counter of the bytes that the socket has taken */
    /* Called when a write that was left to libuv is over. `status` is 0 or a negative libuv
     * code. */
    void (*on_written)(struct eb_socket_output *output, int status);

    uv_write_t write;
    size_t writing_bytes;   /* bytes of the write in progress; 0 if there is none */
    size_t unwritten_bytes; /* bytes of that write that were not written at the last check */
    uint64_t moved_ms; /* time of the last progress that a check found; first set by the owner */
};

/* Writes some of the waiting bytes. No write may be in progress. Returns 1 if the socket took
 * everything offered; there may be more. Returns 0 if there is no more, or if the rest is left to
 * libuv and on_written follows. Returns a negative libuv code if the stream can no longer be used;
 * if the code is UV_EPROTO, eb_tls_stream_reason says why. */
int eb_socket_output_write(struct eb_socket_output *output);
/* Tells a peer that speaks TLS that nothing follows, if the socket takes that message at once. */
void eb_socket_output_end(struct eb_socket_output *output);
/* Returns whether bytes have waited for `longest_ms` because of the peer. Either the peer does not
 * take them, or it has begun a TLS message that carries no data and has not sent the rest; until
 * then nothing in the queue can be sent. A few bytes that go out from time to time are not
 * progress: otherwise a peer could delay the output for as long as it likes. */
bool eb_socket_output_is_stalled(
    struct eb_socket_output *output, uint64_t now_ms, uint64_t longest_ms);
