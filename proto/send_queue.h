/* The write queue of one connection. Small pieces are copied in. Large pieces of a message are lent
 * and stay in place until they are sent.
 * Thread: one at a time. Memory: from an eb_memory, given back as bytes are dropped. */
#pragma once

#include "proto/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* A serialised gRPC message, including its five prefix bytes. The call that sends the message
 * shares it with the pieces of the queue that refer to its bytes. The call and each such piece have
 * a hold on the message; all are on one thread. */
struct eb_outgoing {
    uint8_t *bytes;
    size_t size;
    uint32_t holds; /* starts at 1: the creator's */
    bool is_timed;  /* expires after some time: see on_drop_if_expired */
    bool has_left;  /* all of it was given to the queue */
    void (*release)(struct eb_outgoing *message); /* called when the last hold is dropped */
    struct eb_outgoing *next;                     /* the next message of the sending call */
};

void eb_outgoing_hold(struct eb_outgoing *message);
void eb_outgoing_drop(struct eb_outgoing *message);

struct eb_send_queue; /* opaque */

/* Returns NULL if out of memory. `memory` is borrowed for the queue's life. */
struct eb_send_queue *eb_send_queue_create(const struct eb_memory *memory);
/* Drops all bytes in the queue and frees it. Accepts NULL. */
void eb_send_queue_destroy(struct eb_send_queue *queue);

/* Appends a copy. Returns false if out of memory; the queue is unchanged. */
bool eb_send_queue_copy(struct eb_send_queue *queue, const void *bytes, size_t count);
/* Appends `count` bytes of the message from `first` on and holds the message until they are
 * dropped. Returns false if out of memory; the queue is unchanged. */
bool eb_send_queue_lend(
    struct eb_send_queue *queue, struct eb_outgoing *message, size_t first, size_t count);

/* Returns the number of waiting bytes. */
size_t eb_send_queue_bytes(const struct eb_send_queue *queue);
/* Sets `out` to the first of the waiting bytes, as at most `max` buffers for one gathered write.
 * Returns the number of buffers. They stay valid until their bytes are dropped. */
size_t eb_send_queue_peek(const struct eb_send_queue *queue, struct iovec *out, size_t max);
/* Removes the first `count` bytes (at most eb_send_queue_bytes), which have been written. */
void eb_send_queue_drop(struct eb_send_queue *queue, size_t count);
