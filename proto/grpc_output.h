/* The messages one stream has to send, and how they get from there through nghttp2 into the queue
 * of bytes to write: small ones copied, large ones lent. Both sides of a connection use it.
 * Thread: one at a time. Memory: none of its own; holds the messages it is given. */
#pragma once

#include "proto/send_queue.h"

/* nghttp2's own, kept out of the headers that others include. */
struct nghttp2_session;
struct nghttp2_session_callbacks;

/* A stream's data source: nghttp2_data_source.ptr points at it. */
struct eb_grpc_output {
    struct eb_send_queue *queue; /* of the connection */
    void *owner;                 /* the call */
    size_t *total_bytes;         /* the sum of `bytes` over the connection's outputs */
    struct eb_outgoing *head;
    struct eb_outgoing *tail;
    size_t head_sent;    /* bytes of head that have left */
    size_t bytes;        /* that wait here */
    uint64_t sent_bytes; /* that have left, of all messages */
    bool deferred;       /* nghttp2 has asked for bytes in vain and must be told of new ones */
};

/* Appends a message and takes the caller's hold on it. It is in no other output. */
void eb_grpc_output_push(struct eb_grpc_output *output, struct eb_outgoing *message);
/* Asks about each message that is timed, begins within the next `count` bytes, and of which nothing
 * has left: what judge returns leaves in its place, NULL: nothing does. judge takes the output's
 * hold on a message that it does not return, and gives one on what it returns instead; it pushes
 * nothing. Not while nghttp2 has been promised bytes that it has not sent. */
typedef struct eb_outgoing *eb_grpc_output_drop_fn(void *owner, struct eb_outgoing *message);
void eb_grpc_output_drop_expired(
    struct eb_grpc_output *output, size_t count, eb_grpc_output_drop_fn *drop);
/* Drops every message. Accepts a zeroed output. */
void eb_grpc_output_clear(struct eb_grpc_output *output);

/* Sets the callbacks by which nghttp2 sends DATA frames of outputs. */
void eb_grpc_output_install(struct nghttp2_session_callbacks *callbacks);
/* Moves frames into the queue until it is full enough for one write or there are none.
 * false: no memory, the session cannot go on. */
bool eb_grpc_output_flush(struct nghttp2_session *session, struct eb_send_queue *queue);
