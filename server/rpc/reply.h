/* Outgoing messages in buffers of a loop's pool, the gRPC prefix in front.
 * Thread: the pool's. Memory: one buffer of the pool, given back with the last hold. */
#pragma once

#include "proto/send_queue.h"
#include "server/net/buffer_pool.h"

/* A message of `size` bytes behind its prefix, one hold. NULL: the pool is at its cap. */
struct eb_outgoing *eb_reply_take(struct eb_buffer_pool *pool, size_t size);
/* Adds what it holds of the pool to *sum, which outlives it and from which that is taken with the
 * last hold. Once. */
void eb_reply_charge(struct eb_outgoing *reply, uint64_t *sum);
/* What it holds of the pool: more than its size. */
uint64_t eb_reply_held_bytes(const struct eb_outgoing *reply);
/* Where its `size` bytes are to be written. */
uint8_t *eb_reply_body(struct eb_outgoing *reply);
