#include "client/block_pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST_BYTES ((size_t)256) /* the largest kept is 64 MiB */
#define ALIGNMENT 64

/* The tier whose blocks hold `bytes`; EB_BLOCK_POOL_CLASSES where none does. */
static unsigned find_tier(size_t bytes)
{
    unsigned tier = 0;
    while (tier < EB_BLOCK_POOL_CLASSES && SMALLEST_BYTES << tier < bytes) {
        tier++;
    }
    return tier;
}

static size_t round_bytes(size_t bytes, unsigned tier)
{
    return tier < EB_BLOCK_POOL_CLASSES ? SMALLEST_BYTES << tier
                                        : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void *pop(struct eb_block_pool *pool, unsigned tier)
{
    if (tier >= EB_BLOCK_POOL_CLASSES || !pool->kept[tier]) {
        return NULL;
    }
    void *block = pool->kept[tier];
    memcpy(&pool->kept[tier], block, sizeof(void *));
    pool->kept_bytes -= SMALLEST_BYTES << tier;
    return block;
}

static void give_block(void *context, void *block, size_t bytes)
{
    struct eb_block_pool *pool = context;
    unsigned tier = find_tier(bytes);
    size_t rounded = round_bytes(bytes, tier);
    uv_mutex_lock(&pool->lock);
    pool->lent_bytes -= rounded;
    bool keeps = tier < EB_BLOCK_POOL_CLASSES && rounded <= pool->kept_bytes_max - pool->kept_bytes;
    if (keeps) {
        memcpy(block, &pool->kept[tier], sizeof(void *));
        pool->kept[tier] = block;
        pool->kept_bytes += rounded;
    }
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
    unsigned tier = find_tier(bytes);
    size_t rounded = round_bytes(bytes, tier);
    uv_mutex_lock(&pool->lock);
    bool fits = rounded <= pool->lent_bytes_max - pool->lent_bytes;
    void *block = fits ? pop(pool, tier) : NULL;
    if (fits) {
        pool->lent_bytes += rounded;
    }
    uv_mutex_unlock(&pool->lock);
    if (block || !fits) {
        return block;
    }
    block = aligned_alloc(ALIGNMENT, rounded);
    if (!block) {
        uv_mutex_lock(&pool->lock);
        pool->lent_bytes -= rounded;
        uv_mutex_unlock(&pool->lock);
    }
    return block;
}

int eb_block_pool_init(struct eb_block_pool *pool, size_t lent_bytes_max, size_t kept_bytes_max)
{
    *pool = (struct eb_block_pool){
        .memory = {.take = take_pooled_block, .give = give_block, .context = pool},
        .lent_bytes_max = lent_bytes_max,
        .kept_bytes_max = kept_bytes_max,
    };
    return uv_mutex_init(&pool->lock);
}

void eb_block_pool_deinit(struct eb_block_pool *pool)
{
    assert(pool->lent_bytes == 0);
    for (unsigned tier = 0; tier < EB_BLOCK_POOL_CLASSES; tier++) {
        for (void *block = pop(pool, tier); block; block = pop(pool, tier)) {
            free(block);
        }
    }
    uv_mutex_destroy(&pool->lock);
}
