/* Outgoing messages in buffers of a loop's pool, the gRPC prefix in front.
 * Thread: the pool's. Memory: one buffer of the pool, given back with the last hold. */
#pragma once

#include "proto/send_queue.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/sent_times.h"

struct eb_rpc_conn;

/* A message of `size` bytes behind its prefix, one hold. NULL: the pool is at its cap. */
struct eb_outgoing *eb_reply_take(struct eb_buffer_pool *pool, size_t size);
/* Adds what it holds of the pool to *sum, which outlives it and from which that is taken with the
 * last hold. Once. */
void eb_reply_charge(struct eb_outgoing *reply, uint64_t *sum);
/* What is to be known of an answer when its turn to leave comes, and when it is gone. All times are
 * uv_hrtime. */
struct eb_reply_terms {
    uint64_t deadline_ns; /* later it is of no use */
    uint64_t request_id;
    /* Called once: all of it has left, or it was dropped. NULL: nobody asks. */
    void (*on_gone)(const struct eb_reply_terms *terms, bool has_left);
    struct eb_rpc_conn *conn; /* on_gone's, as are all below; outlives it */
    struct eb_answer_times times;
    unsigned method_index;
    bool is_of_stream;
    bool has_more; /* another message answers the same request */
};

/* Marks it as timed. */
void eb_reply_set_terms(struct eb_outgoing *reply, const struct eb_reply_terms *terms);
/* Of one that is timed. */
const struct eb_reply_terms *eb_reply_find_terms(const struct eb_outgoing *reply);
/* Drops one that is timed without a call of on_gone. */
void eb_reply_drop(struct eb_outgoing *reply);
/* What it holds of the pool: more than its size. */
uint64_t eb_reply_held_bytes(const struct eb_outgoing *reply);
/* Where its `size` bytes are to be written. */
uint8_t *eb_reply_body(struct eb_outgoing *reply);
