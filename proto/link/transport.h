/* A byte stream to a server: connects, speaks TLS if the credentials ask for it, reads and writes.
 * Thread: that of the libuv loop it is given. Memory: everything is inside the struct, which must
 * not move until the transport is closed. The bytes of a queue that is being written stay in the
 * queue. */
#pragma once

#include "proto/link/alarms.h"
#include "proto/link/credentials.h"
#include "proto/send_queue.h"
#include "proto/status.h"

#include <uv.h>

struct eb_transport_handler {
    void (*on_open)(void *context);
    /* Bytes that have arrived, borrowed for the call. Returns false if they are malformed; then the
     * stream is lost. */
    bool (*on_bytes)(void *context, const uint8_t *bytes, size_t count);
    /* Bytes that could not be written at once have been written: there is room for more. */
    void (*on_written)(void *context);
    /* Everything is closed, and the queue is no longer used. transport->failure says whether the
     * owner closed it, it was lost, or it could not be opened. */
    void (*on_close)(void *context);
};

enum eb_transport_state {
    EB_TRANSPORT_CLOSED,
    EB_TRANSPORT_OPENING,
    EB_TRANSPORT_OPEN,
    EB_TRANSPORT_CLOSING
};

struct eb_transport {
    /* Set by the owner, kept. */
    const struct eb_transport_handler *handler;
    void *context;
    uv_loop_t *loop;
    struct eb_alarms *alarms;
    const struct eb_address *address;   /* the one to connect to */
    const struct eb_endpoint *endpoint; /* the one that was given, for error texts and TLS */
    const struct eb_credentials *credentials;
    uv_buf_t read_buffer; /* may be shared by all transports of the loop */
    /* Time after which the stream is lost if a TCP peer acknowledges nothing of what was sent, or
     * has no room for more (TCP_USER_TIMEOUT). */
    unsigned int unacknowledged_ms_max;

    enum eb_transport_state state;
    bool was_open;
    struct eb_error failure; /* UNAVAILABLE; the text names the server only if !was_open */
    uint64_t deadline_ns;    /* deadline for opening */
    struct eb_alarm alarm;
    bool has_socket;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_connect_t connect;
    uv_write_t write;
    struct eb_send_queue *queue; /* the queue being written; NULL: none */
    size_t writing_bytes;      /* bytes of the queue, or of TLS's output, in the pending uv_write */
    struct eb_tls_stream *tls; /* NULL: plain bytes, or no socket yet */
};

/* Opens a closed transport. on_open or on_close follows, never from within this call. */
void eb_transport_open(struct eb_transport *transport, uint64_t deadline_ns);
/* Ends the stream at once; bytes not yet written are lost. on_close follows, never from within this
 * call. May be called in any state except CLOSED, also from a handler's callback. */
void eb_transport_close(struct eb_transport *transport);
/* Writes the whole queue to an open transport, now or as the socket takes it. Keeps the queue until
 * it is empty or on_close is called. */
void eb_transport_write(struct eb_transport *transport, struct eb_send_queue *queue);
