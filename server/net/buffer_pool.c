#include "server/net/buffer_pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

/* Buffers of 2^10 to 2^24 bytes. */
static const struct eb_buffer_range range = {.smallest_bits = 10, .bins = 15};

uint64_t eb_buffer_pool_rounded(size_t bytes)
{
    return eb_buffer_range_find(range, bytes).bytes;
}

void eb_buffer_pool_init(struct eb_buffer_pool *pool, uint64_t cap_bytes)
{
    *pool = (struct eb_buffer_pool){
        .cap_bytes = cap_bytes, .bins = {.kept_bytes_max = EB_BUFFER_POOL_KEPT_MAX}};
}

void eb_buffer_pool_deinit(struct eb_buffer_pool *pool)
{
    assert(pool->taken_bytes == 0);
    eb_buffer_bins_deinit(&pool->bins);
}

void *eb_buffer_pool_take(struct eb_buffer_pool *pool, size_t bytes)
{
    struct eb_buffer_size size = eb_buffer_range_find(range, bytes);
    if (bytes > pool->cap_bytes || size.bytes > pool->cap_bytes - pool->taken_bytes) {
        pool->refusals++;
        return NULL;
    }
    void *buffer = eb_buffer_bins_pop(&pool->bins, range, size);
    if (!buffer) {
        buffer = aligned_alloc(EB_BUFFER_ALIGNMENT, size.bytes);
    }
    if (buffer) {
        pool->taken_bytes += size.bytes;
    }
    return buffer;
}

void eb_buffer_pool_give(struct eb_buffer_pool *pool, void *buffer, size_t bytes)
{
    if (!buffer) {
        return;
    }
    struct eb_buffer_size size = eb_buffer_range_find(range, bytes);
    assert(pool->taken_bytes >= size.bytes);
    pool->taken_bytes -= size.bytes;
    if (!eb_buffer_bins_push(&pool->bins, range, size, buffer)) {
        free(buffer);
    }
}

static void *take_for_proto(void *context, size_t bytes)
{
    return eb_buffer_pool_take(context, bytes);
}

static void give_for_proto(void *context, void *memory, size_t bytes)
{
    eb_buffer_pool_give(context, memory, bytes);
}

struct eb_memory eb_buffer_pool_memory(struct eb_buffer_pool *pool)
{
    return (struct eb_memory){.take = take_for_proto, .give = give_for_proto, .context = pool};
}

/* ---- receive quota ---- */

struct eb_receive_quota {
    struct eb_memory memory;
    struct eb_buffer_pool *pool;
    uint64_t held_bytes; /* sum of the taken buffers' sizes, as the pool has rounded them up */
    bool is_closed;
};

static void *take_from_quota(void *context, size_t bytes)
{
    struct eb_receive_quota *quota = context;
    struct eb_buffer_pool *pool = quota->pool;
    assert(!quota->is_closed);
    uint64_t free_bytes = pool->cap_bytes - pool->taken_bytes;
    uint64_t rounded = bytes <= free_bytes ? eb_buffer_pool_rounded(bytes) : UINT64_MAX;
    if (rounded > free_bytes || quota->held_bytes > free_bytes - rounded) {
        pool->refusals++;
        return NULL;
    }
    void *buffer = eb_buffer_pool_take(pool, bytes);
    if (buffer) {
        quota->held_bytes += rounded;
    }
    return buffer;
}

static void free_if_over(struct eb_receive_quota *quota)
{
    if (quota->is_closed && quota->held_bytes == 0) {
        free(quota);
    }
}

static void give_to_quota(void *context, void *buffer, size_t bytes)
{
    struct eb_receive_quota *quota = context;
    if (!buffer) {
        return;
    }
    uint64_t rounded = eb_buffer_pool_rounded(bytes);
    assert(quota->held_bytes >= rounded);
    eb_buffer_pool_give(quota->pool, buffer, bytes);
    quota->held_bytes -= rounded;
    free_if_over(quota);
}

struct eb_receive_quota *eb_receive_quota_create(struct eb_buffer_pool *pool)
{
    struct eb_receive_quota *quota = malloc(sizeof *quota);
    if (quota) {
        *quota = (struct eb_receive_quota){
            .memory = {.take = take_from_quota, .give = give_to_quota, .context = quota},
            .pool = pool};
    }
    return quota;
}

void eb_receive_quota_close(struct eb_receive_quota *quota)
{
    if (quota) {
        quota->is_closed = true;
        free_if_over(quota);
    }
}

const struct eb_memory *eb_receive_quota_memory(const struct eb_receive_quota *quota)
{
    return &quota->memory;
}
