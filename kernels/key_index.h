/* Finds the rows of a table by their keys. The index is immutable and holds every key with its row
 * number. Both together take 15.1 bytes per row; the smallest index takes 192 bytes. It consists of
 * plain bytes, little-endian and independent of their address, so that a file can hold a complete
 * index. key_build.h makes the bytes, key_bucket.h defines them.
 *
 * Whatever the bytes hold, a lookup never reads outside of them, and never returns a row that the
 * table does not have.
 * Thread: pure functions, for any number of threads. Memory: nothing is allocated; the bytes are
 * borrowed and must not move. */
#pragma once

#include "kernels/key_bucket.h"

#include <stdbool.h>
#include <stdint.h>

/* Most rows. They are numbered in 32 bits, and one number means that there is none. */
#define EB_KEY_INDEX_ROWS_MAX (UINT64_C(0xFFFFFFFE))
/* Alignment of the bytes. */
#define EB_KEY_INDEX_ALIGNMENT 64

struct eb_key_index {
    const struct eb_key_bucket *buckets;
    uint64_t row_count;
    uint64_t seed;
    uint32_t partition_count;
    uint32_t partition_buckets;
};

/* Replaces each of `count` keys by the number of its row, or by `missing_row` if it has none.
 * Returns how many keys have none. Buckets are prefetched ahead of their use. */
uint64_t eb_key_index_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* Does the same with AVX2. Only in builds for x86-64. */
uint64_t eb_key_avx2_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* Returns the row of one key, or -1. */
int64_t eb_key_index_find(const struct eb_key_index *index, int64_t key);

/* Opens an index of a table of `row_count` rows in constant time: looks at the header only, which
 * may hold anything. The bytes must be aligned to EB_KEY_INDEX_ALIGNMENT. Returns false with a
 * constant text in *reason. */
bool eb_key_index_open(struct eb_key_index *index, const void *bytes, uint64_t byte_count,
    uint64_t row_count, const char **reason);

/* Returns the size of eb_key_index_verify's `seen`. */
uint64_t eb_key_index_seen_bytes(uint64_t row_count);

static inline uint64_t eb_key_index_bucket_count(const struct eb_key_index *index)
{
    return (uint64_t)index->partition_count * index->partition_buckets;
}

/* Verifies that every row has exactly one key, that no two keys are the same, and that a lookup
 * finds each of them. Looks at up to `count` buckets from *bucket on, which is 0 at first, and
 * moves *bucket past those that are sound. When all are, the whole index is. `seen` is scratch
 * memory aligned to 8, with any contents at first. Returns false with a constant text in *reason.
 * *bucket is then the bad bucket, or the count of buckets if all are sound but hold too few
 * rows. */
bool eb_key_index_verify(const struct eb_key_index *index, uint64_t *seen, uint64_t *bucket,
    uint64_t count, const char **reason);

/* Return the first and the second bucket that a key of that hash may be in; for the files that look
 * keys up. */
static inline const struct eb_key_bucket *eb_key_index_first_bucket(
    const struct eb_key_index *index, uint64_t hash)
{
    uint64_t partition = eb_key_partition(hash, index->partition_count);
    return index->buckets + partition * index->partition_buckets +
           eb_key_first(hash, index->partition_buckets);
}

static inline const struct eb_key_bucket *eb_key_index_second_bucket(
    const struct eb_key_index *index, uint64_t hash)
{
    uint64_t partition = eb_key_partition(hash, index->partition_count);
    return index->buckets + partition * index->partition_buckets +
           eb_key_second(hash, index->partition_buckets);
}
