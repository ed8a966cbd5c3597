/* The buffers of one event loop, with a cap on their sum and a quota for each connection. Sizes of
 * up to 16 MiB are rounded up to a power of two, and such buffers are kept for reuse: a fresh
 * allocation of 160 KiB takes 81 us because of page faults, reuse takes 17 us. Larger buffers come
 * straight from the heap.
 * Thread: one. Memory: the heap; at most cap_bytes handed out, EB_BUFFER_POOL_KEPT_MAX kept. */
#pragma once

#include "proto/buffer_bins.h"
#include "proto/memory.h"

#include <stdint.h>

#define EB_BUFFER_POOL_KEPT_MAX (UINT64_C(64) << 20) /* kept for reuse; the rest is freed */

struct eb_buffer_pool {
    struct eb_buffer_bins bins;
    uint64_t cap_bytes;
    uint64_t taken_bytes; /* sum of the sizes of the buffers handed out, as rounded up */
    uint64_t refusals; /* number of times that a buffer was refused because of the pool's cap or a
                          quota */
};

void eb_buffer_pool_init(struct eb_buffer_pool *pool, uint64_t cap_bytes);
/* Frees the kept buffers. Everything taken must have been given back. */
void eb_buffer_pool_deinit(struct eb_buffer_pool *pool);

/* Returns the size to which the pool rounds up `bytes`. Taking a buffer counts that many bytes. */
uint64_t eb_buffer_pool_rounded(size_t bytes);
/* Returns an uninitialised buffer, aligned to 64 bytes. Returns NULL if the cap would be exceeded
 * or the system has no memory. */
void *eb_buffer_pool_take(struct eb_buffer_pool *pool, size_t bytes);
/* Gives a buffer back. `bytes` must be as in eb_buffer_pool_take. Accepts NULL. */
void eb_buffer_pool_give(struct eb_buffer_pool *pool, void *buffer, size_t bytes);

/* Returns the pool in the form in which the functions of proto/ borrow memory. */
struct eb_memory eb_buffer_pool_memory(struct eb_buffer_pool *pool);

/* ---- receive quota ---- */

/* Bounds how much of its loop's receive memory one connection takes, so that none can fill it. A
 * connection may take more only while it holds no more than it leaves to all others. A connection
 * alone gets up to half of the memory. Each further one that takes all it can gets up to half of
 * what is left.
 * The quota stays on the heap until it is closed and everything taken is given back, which may be
 * after its connection has ended. */
struct eb_receive_quota; /* opaque */

/* Creates a quota. `pool` is borrowed for the quota's life. Returns NULL if out of memory. */
struct eb_receive_quota *eb_receive_quota_create(struct eb_buffer_pool *pool);
/* Closes the quota: nothing more can be taken, but what is held may still be given back. Accepts
 * NULL. */
void eb_receive_quota_close(struct eb_receive_quota *quota);
/* Returns the functions that take memory from the pool within the quota and give it back. The
 * result of `take` is NULL if the quota or the pool is used up. Valid as long as the quota is. */
const struct eb_memory *eb_receive_quota_memory(const struct eb_receive_quota *quota);
