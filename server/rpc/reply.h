/* Outgoing messages in buffers of a loop's pool, each preceded by its gRPC prefix.
 * Thread: the pool's. Memory: one buffer of the pool, given back when the last hold is dropped. */
#pragma once

#include "proto/send_queue.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/sent_times.h"

struct eb_rpc_conn;

/* Returns a message of `size` bytes plus its prefix, with one hold. Returns NULL if the pool has no
 * memory left. */
struct eb_outgoing *eb_reply_take(struct eb_buffer_pool *pool, size_t size);
/* Adds to *sum the bytes of the pool that the reply holds, and subtracts them when the last hold is
 * dropped. *sum must outlive the reply. Called at most once for a reply. */
void eb_reply_charge(struct eb_outgoing *reply, uint64_t *sum);
/* The data of an answer that is needed when it is about to be sent and when it is gone. All times
 * are uv_hrtime. */
struct eb_reply_terms {
    uint64_t deadline_ns; /* the answer is of no use after this */
    uint64_t request_id;
    /* Called once, when all of the answer has been sent or it was dropped. May be NULL. */
    void (*on_gone)(const struct eb_reply_terms *terms, bool has_left);
    struct eb_rpc_conn *conn; /* for on_gone, as are the members below; outlives the answer */
    struct eb_answer_times times;
    unsigned method_index;
    bool is_of_stream;
    bool has_more;      /* whether another message answers the same request */
    bool has_own_trace; /* whether the request named a trace of its own instead of its call's */
};

/* Sets the terms of a reply and marks it as timed. */
void eb_reply_set_terms(struct eb_outgoing *reply, const struct eb_reply_terms *terms);
/* Returns the terms of a timed reply. */
const struct eb_reply_terms *eb_reply_find_terms(const struct eb_outgoing *reply);
/* Drops a hold on a timed reply. on_gone is not called. */
void eb_reply_drop(struct eb_outgoing *reply);
/* Returns the bytes of the pool that a reply holds: more than its size. */
uint64_t eb_reply_held_bytes(const struct eb_outgoing *reply);
/* Returns the address for the `size` bytes of the message, after the prefix. */
uint8_t *eb_reply_body(struct eb_outgoing *reply);
