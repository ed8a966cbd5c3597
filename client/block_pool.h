/* A pool of memory blocks for requests, messages and frames. Sizes are powers of two. Blocks that
 * come back are kept for reuse, so that a client that has warmed up does not call malloc.
 * Thread: any; init and deinit one at a time. Memory: from the heap, capped. */
#pragma once

#include "proto/buffer_bins.h"
#include "proto/memory.h"

#include <uv.h>

struct eb_block_pool {
    struct eb_memory memory; /* interface through which others take from the pool */
    uv_mutex_t lock;         /* guards what follows */
    uint64_t lent_bytes;
    uint64_t lent_bytes_max;
    struct eb_buffer_bins bins;
};

/* Lends at most lent_bytes_max at a time; beyond that a taker gets NULL. Keeps up to kept_bytes_max
 * of the blocks that come back. The pool must not move. Returns 0, or a negative libuv code with
 * nothing left to undo. */
int eb_block_pool_init(struct eb_block_pool *pool, size_t lent_bytes_max, size_t kept_bytes_max);
/* Frees the kept blocks. Every block must have been given back. */
void eb_block_pool_deinit(struct eb_block_pool *pool);
