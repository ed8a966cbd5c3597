/* A byte stream to a server, for callers that block: a libuv loop of its own, run only while its
 * owner connects or waits.
 * Thread: one at a time, any. Memory: everything inside the struct, which does not move; the bytes
 * of a queue that is being written stay in the queue. Deadlines are times of uv_hrtime(). */
#pragma once

#include "client/endpoint.h"
#include "proto/send_queue.h"
#include "proto/status.h"

#include <uv.h>

#define EB_TRANSPORT_READ_BYTES (256 * 1024) /* taken from the socket at once */

/* Bytes that have arrived, borrowed for the call. false: they make no sense; the stream is lost. */
typedef bool (*eb_transport_bytes_fn)(void *context, const uint8_t *bytes, size_t count);

enum eb_transport_state {
    EB_TRANSPORT_CLOSED, /* no handle is open */
    EB_TRANSPORT_CONNECTING,
    EB_TRANSPORT_OPEN,
    EB_TRANSPORT_LOST /* ended by the peer or an error; to be closed */
};

struct eb_transport {
    eb_transport_bytes_fn on_bytes;
    void *context; /* of on_bytes */
    enum eb_transport_state state;
    int status; /* why it is lost, or does not connect: a negative libuv code */
    uv_loop_t loop;
    uv_timer_t timer; /* wakes the loop at a deadline */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_connect_t connect;
    uv_write_t write;
    struct eb_send_queue *queue; /* what is being written; NULL: nothing */
    size_t writing_bytes;        /* of the queue, by the write under way */
    uint64_t read_count;         /* reads that brought something */
    char read_buffer[EB_TRANSPORT_READ_BYTES];
};

/* Makes the loop. A negative libuv code: nothing is left to undo. on_bytes and context are kept. */
int eb_transport_init(
    struct eb_transport *transport, eb_transport_bytes_fn on_bytes, void *context);
/* Closes the stream and the loop. */
void eb_transport_deinit(struct eb_transport *transport);

/* Connects a closed transport, trying every address of a name in turn. false: it is closed, and
 * *error is UNAVAILABLE with what the last address said. */
bool eb_transport_open(struct eb_transport *transport, const struct eb_endpoint *endpoint,
    uint64_t deadline_ns, struct eb_error *error);
/* Ends the stream at once; bytes not yet written are not. May be called in any state. Not from
 * on_bytes. */
void eb_transport_close(struct eb_transport *transport);

/* Begins to write all that is in the queue; what the socket does not take now is written during
 * eb_transport_wait. The queue is kept until it is empty or the transport is closed. */
void eb_transport_write(struct eb_transport *transport, struct eb_send_queue *queue);
/* Waits until something has happened or the deadline has passed. */
void eb_transport_wait(struct eb_transport *transport, uint64_t deadline_ns);
/* Takes in what has arrived already, without waiting. */
void eb_transport_drain(struct eb_transport *transport);
