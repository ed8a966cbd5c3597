#include "server/net/buffer_pool.h"

#include <assert.h>
#include <stdlib.h>

#define SMALLEST_BIN_BITS 10
#define ALIGNMENT 64

struct eb_kept_buffer {
    struct eb_kept_buffer *next;
};

/* The bin whose buffers hold `bytes`; EB_BUFFER_POOL_BINS where they are too large to keep. */
static unsigned find_bin(size_t bytes)
{
    if (bytes <= (size_t)1 << SMALLEST_BIN_BITS) {
        return 0;
    }
    /* The logarithm, rounded up. */
    const unsigned bits = 64 - (unsigned)__builtin_clzll(bytes - 1);
    const unsigned bin = bits - SMALLEST_BIN_BITS;
    return bin < EB_BUFFER_POOL_BINS ? bin : EB_BUFFER_POOL_BINS;
}

/* What a request for `bytes` really takes. */
static uint64_t rounded_bytes(unsigned bin, size_t bytes)
{
    if (bin < EB_BUFFER_POOL_BINS) {
        return UINT64_C(1) << (bin + SMALLEST_BIN_BITS);
    }
    return ((uint64_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t eb_buffer_pool_rounded(size_t bytes)
{
    return rounded_bytes(find_bin(bytes), bytes);
}

void eb_buffer_pool_init(struct eb_buffer_pool *pool, uint64_t cap_bytes)
{
    *pool = (struct eb_buffer_pool){.cap_bytes = cap_bytes};
}

void eb_buffer_pool_deinit(struct eb_buffer_pool *pool)
{
    assert(pool->taken_bytes == 0);
    for (unsigned bin = 0; bin < EB_BUFFER_POOL_BINS; bin++) {
        while (pool->kept[bin]) {
            struct eb_kept_buffer *buffer = pool->kept[bin];
            pool->kept[bin] = buffer->next;
            free(buffer);
        }
    }
}

void *eb_buffer_pool_take(struct eb_buffer_pool *pool, size_t bytes)
{
    unsigned bin = find_bin(bytes);
    if (bytes > pool->cap_bytes ||
        rounded_bytes(bin, bytes) > pool->cap_bytes - pool->taken_bytes) {
        pool->refusals++;
        return NULL;
    }
    uint64_t rounded = rounded_bytes(bin, bytes);
    struct eb_kept_buffer *buffer = bin < EB_BUFFER_POOL_BINS ? pool->kept[bin] : NULL;
    if (buffer) {
        pool->kept[bin] = buffer->next;
        pool->kept_bytes -= rounded;
    } else {
        buffer = aligned_alloc(ALIGNMENT, rounded);
    }
    if (buffer) {
        pool->taken_bytes += rounded;
    }
    return buffer;
}

void eb_buffer_pool_give(struct eb_buffer_pool *pool, void *buffer, size_t bytes)
{
    if (!buffer) {
        return;
    }
    unsigned bin = find_bin(bytes);
    uint64_t rounded = rounded_bytes(bin, bytes);
    assert(pool->taken_bytes >= rounded);
    pool->taken_bytes -= rounded;
    if (bin == EB_BUFFER_POOL_BINS || pool->kept_bytes + rounded > EB_BUFFER_POOL_KEPT_MAX) {
        free(buffer);
        return;
    }
    struct eb_kept_buffer *kept = buffer;
    kept->next = pool->kept[bin];
    pool->kept[bin] = kept;
    pool->kept_bytes += rounded;
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
