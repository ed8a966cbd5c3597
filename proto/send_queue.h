/* Bytes of one connection that wait to be written: small ones are copied in, the large ones of a
 * message are lent and stay where they are until they have been sent.
 * Thread: one at a time. Memory: from an eb_memory, given back as bytes are dropped. */
#pragma once

#include "proto/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* A serialised gRPC message, its five prefix bytes included, shared by the one call that sends it
 * and by the queue's pieces of it. Counted by holds, on one thread. */
struct eb_outgoing {
    uint8_t *bytes;
    size_t size;
    uint32_t holds; /* starts at 1: the creator's */
    bool is_timed;  /* of no use after some time: see on_drop_if_expired */
    bool has_left;  /* all of it has been given to the queue */
    void (*release)(struct eb_outgoing *message); /* called when the last hold is dropped */
    struct eb_outgoing *next;                     /* the sending call's */
};

void eb_outgoing_hold(struct eb_outgoing *message);
void eb_outgoing_drop(struct eb_outgoing *message);

struct eb_send_queue; /* opaque */

/* NULL: no memory. `memory` is borrowed for the queue's life. */
struct eb_send_queue *eb_send_queue_create(const struct eb_memory *memory);
/* Drops everything still in it. Accepts NULL. */
void eb_send_queue_destroy(struct eb_send_queue *queue);

/* Appends a copy. false: no memory; the queue is as before. */
bool eb_send_queue_copy(struct eb_send_queue *queue, const void *bytes, size_t count);
/* Appends `count` bytes of message from `first` on and holds the message until they are dropped.
 * false: no memory; the queue is as before. */
bool eb_send_queue_lend(
    struct eb_send_queue *queue, struct eb_outgoing *message, size_t first, size_t count);

/* Bytes that wait. */
size_t eb_send_queue_bytes(const struct eb_send_queue *queue);
/* The first of them, as at most `max` buffers for one gathered write; returns how many buffers.
 * They stay valid until dropped. */
size_t eb_send_queue_peek(const struct eb_send_queue *queue, struct iovec *out, size_t max);
/* Removes the first `count` bytes (at most eb_send_queue_bytes): they have been written. */
void eb_send_queue_drop(struct eb_send_queue *queue, size_t count);
