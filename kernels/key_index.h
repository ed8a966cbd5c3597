/* From the keys of a table to its rows: an immutable index that holds every key beside its row
 * number, 15.1 bytes a row for both, 192 for the smallest. It is plain bytes, little-endian and the
 * same wherever they lie, so that a file may hold one that is ready; key_build.h makes them,
 * key_bucket.h says what they are.
 *
 * No bytes, whatever they hold, lead a lookup outside of them, or to a row that the table does not
 * have.
 * Thread: pure functions, for any number of threads. Memory: nothing is allocated; the bytes are
 * borrowed and stay where they are. */
#pragma once

#include "kernels/key_bucket.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows are numbered in 32 bits, of which one number says that there is none. */
#define EB_KEY_INDEX_ROWS_MAX (UINT64_C(0xFFFFFFFE))
/* What the bytes are aligned to. */
#define EB_KEY_INDEX_ALIGNMENT 64

struct eb_key_index {
    const struct eb_key_bucket *buckets;
    uint64_t row_count;
    uint64_t seed;
    uint32_t partition_count;
    uint32_t partition_buckets;
};

/* Replaces each of `count` keys by the number of its row, or by `missing_row` where it has none,
 * and returns how many have none. Buckets are called into the caches ahead of their use. */
uint64_t eb_key_index_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* The same with AVX2; in builds for x86-64 only. */
uint64_t eb_key_avx2_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* The row of one key, or -1. */
int64_t eb_key_index_find(const struct eb_key_index *index, int64_t key);

/* Opens an index of a table of so many rows, in constant time: only the header is looked at, which
 * may hold anything. The bytes must be aligned to EB_KEY_INDEX_ALIGNMENT. false: *reason says in a
 * constant text what is wrong. */
bool eb_key_index_open(struct eb_key_index *index, const void *bytes, uint64_t byte_count,
    uint64_t row_count, const char **reason);

/* Bytes of eb_key_index_verify's `seen`. */
uint64_t eb_key_index_seen_bytes(uint64_t row_count);

static inline uint64_t eb_key_index_bucket_count(const struct eb_key_index *index)
{
    return (uint64_t)index->partition_count * index->partition_buckets;
}

/* Whether every row has exactly one key, no two of them the same, and each is found where it
 * stands: looks at up to `count` buckets from *bucket on, which is 0 at first, and moves it behind
 * those that are sound. Once all are, the whole index is. `seen` is scratch memory aligned to 8, of
 * any contents at first. false: *reason says in a constant text what is wrong, and *bucket where,
 * or is the count of buckets where all are sound but too few rows stand in them. */
bool eb_key_index_verify(const struct eb_key_index *index, uint64_t *seen, uint64_t *bucket,
    uint64_t count, const char **reason);

/* The two buckets in which a key of that hash may stand; for the files that look keys up. */
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
