/* Memory for requests, messages and frames that come and go all the time: blocks in sizes of powers
 * of two, kept for the next taker, so that a warm client does not ask the heap.
 * Thread: any, but for init and deinit. Memory: from the heap, capped. */
#pragma once

#include "proto/buffer_bins.h"
#include "proto/memory.h"

#include <uv.h>

struct eb_block_pool {
    struct eb_memory memory; /* how others take from the pool */
    uv_mutex_t lock;         /* of what follows */
    uint64_t lent_bytes;
    uint64_t lent_bytes_max;
    struct eb_buffer_bins bins;
};

/* At most lent_bytes_max are lent at a time; more gives NULL. What comes back is kept up to
 * kept_bytes_max. The pool must not move. A negative libuv code: nothing is left to undo. */
int eb_block_pool_init(struct eb_block_pool *pool, size_t lent_bytes_max, size_t kept_bytes_max);
/* Everything has been given back. */
void eb_block_pool_deinit(struct eb_block_pool *pool);
