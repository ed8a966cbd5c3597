/* Buffers of one event loop, capped in all, and the quota of them that each connection has: up to
 * 16 MiB powers of two that are kept for the next taker (a fresh allocation of 160 KiB page-errors:
 * 81 us against 17 us), above that straight from the heap. Thread: one. Memory: the heap; at most
 * cap_bytes handed out, and EB_BUFFER_POOL_KEPT_MAX kept. */
#pragma once

#include "proto/buffer_bins.h"
#include "proto/memory.h"

#include <stdint.h>

#define EB_BUFFER_POOL_KEPT_MAX (UINT64_C(64) << 20) /* beyond it, a buffer given is freed */

struct eb_buffer_pool {
    struct eb_buffer_bins bins;
    uint64_t cap_bytes;
    uint64_t taken_bytes; /* handed out, as rounded up */
    uint64_t refusals;    /* times that there was not what was asked for, or not for who asked */
};

void eb_buffer_pool_init(struct eb_buffer_pool *pool, uint64_t cap_bytes);
/* Everything taken must have been given back. */
void eb_buffer_pool_deinit(struct eb_buffer_pool *pool);

/* What taking `bytes` counts for: they are rounded up. */
uint64_t eb_buffer_pool_rounded(size_t bytes);
/* 64-byte aligned, uninitialised. NULL: over the cap, or the system has no memory. */
void *eb_buffer_pool_take(struct eb_buffer_pool *pool, size_t bytes);
/* `bytes` as it was taken with. Accepts NULL. */
void eb_buffer_pool_give(struct eb_buffer_pool *pool, void *buffer, size_t bytes);

/* The pool as the functions of proto/ borrow memory. */
struct eb_memory eb_buffer_pool_memory(struct eb_buffer_pool *pool);

/* ---- receive quota ---- */

/* Bounds what one connection takes of its loop's receive memory, so that none can fill it: a
 * connection takes more only while it holds no more than it leaves to all others. One alone comes
 * to half of the memory, and each further one that takes what it can to half of what is left. On
 * the heap from create until it is closed and all that was taken is given back, which may be after
 * its connection's end. */
struct eb_receive_quota; /* opaque */

/* `pool` is borrowed for the quota's life. Returns NULL if out of memory. */
struct eb_receive_quota *eb_receive_quota_create(struct eb_buffer_pool *pool);
/* Ends taking; what is held may still be given back. Accepts NULL. */
void eb_receive_quota_close(struct eb_receive_quota *quota);
/* Takes from the pool and gives back to it; take returns NULL if the quota or the pool is used up.
 * Valid for as long as the quota is. */
const struct eb_memory *eb_receive_quota_memory(const struct eb_receive_quota *quota);
