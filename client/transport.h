/* A byte stream to a server on somebody's libuv loop: names resolved, addresses tried in turn, TLS
 * spoken where it is wanted, bytes read and written. Thread: the loop's. Memory: everything inside
 * the struct, which does not move while the transport is not closed; the bytes of a queue that is
 * being written stay in the queue. */
#pragma once

#include "client/alarms.h"
#include "client/credentials.h"
#include "proto/send_queue.h"
#include "proto/status.h"

#include <uv.h>

struct eb_transport_handler {
    void (*on_open)(void *context);
    /* Bytes that have arrived, borrowed for the call. false: they make no sense; the stream is
     * lost. */
    bool (*on_bytes)(void *context, const uint8_t *bytes, size_t count);
    /* Bytes have been written later than they were handed in: there is room for more. */
    void (*on_written)(void *context);
    /* Nothing is open any more and nothing of the queue in use: closed by its owner, or lost, or it
     * could not be opened; transport->failure says which. */
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
    const struct eb_endpoint *endpoint;
    const struct eb_credentials *credentials;
    uv_buf_t read_buffer; /* may be shared by all transports of the loop */

    enum eb_transport_state state;
    bool was_open;
    struct eb_error failure; /* UNAVAILABLE; where it was open only why, without of what */
    uint64_t deadline_ns;    /* of opening */
    struct eb_alarm alarm;
    uv_getaddrinfo_t resolve;
    bool is_resolving;
    struct addrinfo *addresses;
    struct addrinfo *next_address;
    bool has_socket;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_connect_t connect;
    uv_write_t write;
    struct eb_send_queue *queue; /* what is being written; NULL: nothing */
    size_t writing_bytes;        /* of the queue, or of TLS's output, by the write under way */
    struct eb_tls_stream *tls;   /* NULL: plain bytes, or no socket yet */
};

/* Opens a closed transport: on_open or on_close follows, neither from within the call. */
void eb_transport_open(struct eb_transport *transport, uint64_t deadline_ns);
/* Ends the stream at once; bytes not yet written are not. on_close follows, not from within the
 * call. May be called in any state but closed, also by a handler. */
void eb_transport_close(struct eb_transport *transport);
/* Writes all that is in the queue of an open transport, now or as the socket takes it. The queue is
 * kept until it is empty or on_close is called. */
void eb_transport_write(struct eb_transport *transport, struct eb_send_queue *queue);
