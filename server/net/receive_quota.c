#include "server/net/receive_quota.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

struct eb_receive_quota {
    struct eb_memory memory;
    struct eb_buffer_pool *pool;
    uint64_t held_bytes; /* as the pool rounds them */
    bool is_closed;
};

static void *take_from_quota(void *context, size_t bytes)
{
    struct eb_receive_quota *share = context;
    struct eb_buffer_pool *pool = share->pool;
    assert(!share->is_closed);
    const uint64_t free_bytes = pool->cap_bytes - pool->taken_bytes;
    const uint64_t rounded = bytes <= free_bytes ? eb_buffer_pool_rounded(bytes) : UINT64_MAX;
    if (rounded > free_bytes || share->held_bytes > free_bytes - rounded) {
        pool->refusals++;
        return NULL;
    }
    void *buffer = eb_buffer_pool_take(pool, bytes);
    if (buffer) {
        share->held_bytes += rounded;
    }
    return buffer;
}

static void free_if_over(struct eb_receive_quota *share)
{
    if (share->is_closed && share->held_bytes == 0) {
        free(share);
    }
}

static void give_to_quota(void *context, void *buffer, size_t bytes)
{
    struct eb_receive_quota *share = context;
    if (!buffer) {
        return;
    }
    const uint64_t rounded = eb_buffer_pool_rounded(bytes);
    assert(share->held_bytes >= rounded);
    eb_buffer_pool_give(share->pool, buffer, bytes);
    share->held_bytes -= rounded;
    free_if_over(share);
}

struct eb_receive_quota *eb_receive_quota_create(struct eb_buffer_pool *pool)
{
    struct eb_receive_quota *share = malloc(sizeof *share);
    if (share) {
        *share = (struct eb_receive_quota){
            .memory = {.take = take_from_quota, .give = give_to_quota, .context = share},
            .pool = pool};
    }
    return share;
}

void eb_receive_quota_close(struct eb_receive_quota *share)
{
    if (share) {
        share->is_closed = true;
        free_if_over(share);
    }
}

const struct eb_memory *eb_receive_quota_memory(const struct eb_receive_quota *share)
{
    return &share->memory;
}
