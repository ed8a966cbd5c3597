/* The messages that one stream has to send. Moves them through nghttp2 into the write queue: small
 * pieces are copied, large ones lent. Both sides of a connection use it.
 * Thread: one at a time. Memory: none of its own; holds the messages it is given. */
#pragma once

#include "proto/send_queue.h"

/* nghttp2's types, declared here so that other files need not include its header. */
struct nghttp2_session;
struct nghttp2_session_callbacks;

/* A stream's data source: nghttp2_data_source.ptr points at it. */
struct eb_grpc_output {
    struct eb_send_queue *queue; /* the connection's write queue */
    void *owner;                 /* the call */
    size_t *total_bytes;         /* sum of `bytes` over the connection's outputs */
    struct eb_outgoing *head;
    struct eb_outgoing *tail;
    size_t head_sent;    /* bytes of head that have left */
    size_t bytes;        /* bytes of messages that have not left */
    uint64_t sent_bytes; /* bytes of all messages that have left */
    bool deferred; /* nghttp2 asked for bytes when there were none, and must be told of new ones */
};

/* Appends a message and takes the caller's hold on it. The message must not be in another
 * output. */
void eb_grpc_output_push(struct eb_grpc_output *output, struct eb_outgoing *message);
/* Calls `drop` for each timed message that begins within the next `count` bytes, if none of its
 * bytes have left. The message that `drop` returns is sent instead; if it returns NULL, none is
 * sent. If `drop` returns another message or NULL, it takes over the output's hold on the dropped
 * message and gives the output a hold on the returned one. `drop` must not push messages. Not to be
 * called while there are bytes that nghttp2 was promised and has not sent. */
typedef struct eb_outgoing *eb_grpc_output_drop_fn(void *owner, struct eb_outgoing *message);
void eb_grpc_output_drop_expired(
    struct eb_grpc_output *output, size_t count, eb_grpc_output_drop_fn *drop);
/* Drops every message. Accepts a zeroed output. */
void eb_grpc_output_clear(struct eb_grpc_output *output);

/* Sets the callbacks that nghttp2 uses to send DATA frames of outputs. */
void eb_grpc_output_install(struct nghttp2_session_callbacks *callbacks);
/* Moves frames into the queue until the queue is full enough for one write, or until there are no
 * more frames. Returns false if out of memory; then the session cannot continue. */
bool eb_grpc_output_flush(struct nghttp2_session *session, struct eb_send_queue *queue);
