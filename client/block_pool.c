#include "client/block_pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

/* Blocks of 2^8 to 2^26 bytes. */
static const struct eb_buffer_range range = {.smallest_bits = 8, .bins = 19};

static void give_block(void *context, void *block, size_t bytes)
{
    struct eb_block_pool *pool = context;
    struct eb_buffer_size size = eb_buffer_range_find(range, bytes);
    uv_mutex_lock(&pool->lock);
    pool->lent_bytes -= size.bytes;
    bool keeps = eb_buffer_bins_push(&pool->bins, range, size, block);
    uv_mutex_unlock(&pool->lock);
    if (!keeps) {
        free(block);
    }
}

static void *take_pooled_block(void *context, size_t bytes)
{
    struct eb_block_pool *pool = context;
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    struct eb_buffer_size size = eb_buffer_range_find(range, bytes);
    uv_mutex_lock(&pool->lock);
    bool fits = size.bytes <= pool->lent_bytes_max - pool->lent_bytes;
    void *block = fits ? eb_buffer_bins_pop(&pool->bins, range, size) : NULL;
    if (fits) {
        pool->lent_bytes += size.bytes;
    }
    uv_mutex_unlock(&pool->lock);
    if (block || !fits) {
        return block;
    }
    block = aligned_alloc(EB_BUFFER_ALIGNMENT, size.bytes);
    if (!block) {
        uv_mutex_lock(&pool->lock);
        pool->lent_bytes -= size.bytes;
        uv_mutex_unlock(&pool->lock);
    }
    return block;
}

int eb_block_pool_init(struct eb_block_pool *pool, size_t lent_bytes_max, size_t kept_bytes_max)
{
    *pool = (struct eb_block_pool){
        .memory = {.take = take_pooled_block, .give = give_block, .context = pool},
        .lent_bytes_max = lent_bytes_max,
        .bins = {.kept_bytes_max = kept_bytes_max},
    };
    return uv_mutex_init(&pool->lock);
}

void eb_block_pool_deinit(struct eb_block_pool *pool)
{
    assert(pool->lent_bytes == 0);
    eb_buffer_bins_deinit(&pool->bins);
    uv_mutex_destroy(&pool->lock);
}
