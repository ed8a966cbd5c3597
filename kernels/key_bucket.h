/* The bytes of a key index, and where in it a key may stand; for the files that build one and that
 * look into one.
 *
 * A header of one cache line and then buckets of one cache line each, of five keys with their rows.
 * Buckets are cut into partitions of equal size; a hash of a key chooses its partition and two
 * buckets in it, of which the first holds it where there is room. A bucket marks which of its keys
 * had to go to their second: what is neither in the first nor marked there is not in the index. So
 * a key that is there costs 1.13 lines, a key that is not 1.02.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/mix64.h"

#include <assert.h>
#include <stdint.h>

#define EB_KEY_SLOTS 5
/* In place of a row: an empty slot, whose key is 0. They come after all others of a bucket. */
#define EB_KEY_ROW_NONE UINT32_MAX

#define EB_KEY_MAGIC "EBKEYS01"
/* Of a partition. A bucket's number within it is made of 16 bits of the hash. */
#define EB_KEY_BUCKETS_MIN 2
#define EB_KEY_BUCKETS_MAX 65536

struct eb_key_header {
    char magic[8];
    uint64_t row_count;
    uint64_t seed;
    uint32_t partition_count;   /* at least 1 */
    uint32_t partition_buckets; /* of each */
    uint8_t zero[32];
};

struct eb_key_bucket {
    int64_t keys[EB_KEY_SLOTS];
    uint32_t rows[EB_KEY_SLOTS];
    uint32_t marks; /* a bit for each key whose first bucket this is and that is in its second */
};

static_assert(sizeof(struct eb_key_header) == 64, "a cache line");
static_assert(sizeof(struct eb_key_bucket) == 64, "a cache line");

/* A bijection of keys, whose every bit depends on all bits of the key. */
static inline uint64_t eb_key_hash(uint64_t seed, int64_t key)
{
    return eb_mix64((uint64_t)key + seed);
}

static inline uint32_t eb_key_partition(uint64_t hash, uint32_t partition_count)
{
    return (uint32_t)((hash >> 32) * partition_count >> 32);
}

/* Of the buckets of the hash's partition. */
static inline uint32_t eb_key_first(uint64_t hash, uint32_t partition_buckets)
{
    return (uint32_t)((hash & 0xffff) * partition_buckets >> 16);
}

/* Always another one than the first. */
static inline uint32_t eb_key_second(uint64_t hash, uint32_t partition_buckets)
{
    uint32_t second = (uint32_t)((hash >> 16 & 0xffff) * (partition_buckets - 1) >> 16);
    return second + (second >= eb_key_first(hash, partition_buckets));
}

static inline uint32_t eb_key_mark(uint64_t hash)
{
    return UINT32_C(1) << (hash >> 32 & 31);
}

/* A bit for each slot that has the key: without a branch, since no processor foresees the slot. */
static inline unsigned eb_key_match(const struct eb_key_bucket *bucket, int64_t key)
{
    unsigned matches = 0;
    for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
        matches |= (unsigned)(bucket->keys[slot] == key) << slot;
    }
    return matches;
}

/* The row of the first slot that has the key, since a key of 0 is like those of empty slots;
 * EB_KEY_ROW_NONE where none has it. Without a branch too. */
static inline uint32_t eb_key_matched_row(const struct eb_key_bucket *bucket, unsigned matches)
{
    unsigned last = 1U << (EB_KEY_SLOTS - 1);
    return bucket->rows[__builtin_ctz(matches | last)] | -(uint32_t)(matches == 0);
}
