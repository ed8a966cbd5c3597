/* The layout of a key index, and the positions that a key may have in it. For the files that build
 * an index or look keys up.
 *
 * An index is a header of one cache line, followed by buckets of one cache line each. A bucket
 * holds five keys with their rows. Buckets are grouped into partitions of equal size. The hash of a
 * key chooses its partition and two buckets in it. The key is in the first bucket if there is room.
 * A bucket marks which of its keys had to go to their second bucket: a key that is neither in its
 * first bucket nor marked there is not in the index. So finding a key costs 1.13 cache lines, and
 * finding that there is none costs 1.02.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/mix64.h"

#include <assert.h>
#include <stdint.h>

#define EB_KEY_SLOTS 5
/* In place of a row: an empty slot, whose key is 0. A bucket's empty slots come last. */
#define EB_KEY_ROW_NONE UINT32_MAX

#define EB_KEY_MAGIC "EBKEYS01"
/* Fewest and most buckets of a partition. A bucket's number within it is made of 16 bits of the
 * hash. */
#define EB_KEY_BUCKETS_MIN 2
#define EB_KEY_BUCKETS_MAX 65536

struct eb_key_header {
    char magic[8];
    uint64_t row_count;
    uint64_t seed;
    uint32_t partition_count;   /* at least 1 */
    uint32_t partition_buckets; /* in each partition */
    uint8_t zero[32];
};

struct eb_key_bucket {
    int64_t keys[EB_KEY_SLOTS];
    uint32_t rows[EB_KEY_SLOTS];
    uint32_t marks; /* a bit for each key that has this first bucket and is in its second */
};

static_assert(sizeof(struct eb_key_header) == 64, "a cache line");
static_assert(sizeof(struct eb_key_bucket) == 64, "a cache line");

/* A bijection of keys. Each of its bits depends on all bits of the key. */
static inline uint64_t eb_key_hash(uint64_t seed, int64_t key)
{
    return eb_mix64((uint64_t)key + seed);
}

static inline uint32_t eb_key_partition(uint64_t hash, uint32_t partition_count)
{
    return (uint32_t)((hash >> 32) * partition_count >> 32);
}

/* Returns the first bucket, as a number within the hash's partition. */
static inline uint32_t eb_key_first(uint64_t hash, uint32_t partition_buckets)
{
    return (uint32_t)((hash & 0xffff) * partition_buckets >> 16);
}

/* Returns the second bucket, which is never the first. */
static inline uint32_t eb_key_second(uint64_t hash, uint32_t partition_buckets)
{
    uint32_t second = (uint32_t)((hash >> 16 & 0xffff) * (partition_buckets - 1) >> 16);
    return second + (second >= eb_key_first(hash, partition_buckets));
}

static inline uint32_t eb_key_mark(uint64_t hash)
{
    return UINT32_C(1) << (hash >> 32 & 31);
}

/* Returns a bit for each slot that has the key. Has no branch, since no processor can predict the
 * slot. */
static inline unsigned eb_key_match(const struct eb_key_bucket *bucket, int64_t key)
{
    unsigned matches = 0;
    for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
        matches |= (unsigned)(bucket->keys[slot] == key) << slot;
    }
    return matches;
}

/* Returns the row of the first slot that has the key, or EB_KEY_ROW_NONE if none has it. The first,
 * since a key of 0 also matches empty slots. Has no branch either. */
static inline uint32_t eb_key_matched_row(const struct eb_key_bucket *bucket, unsigned matches)
{
    unsigned last = 1U << (EB_KEY_SLOTS - 1);
    return bucket->rows[__builtin_ctz(matches | last)] | -(uint32_t)(matches == 0);
}
