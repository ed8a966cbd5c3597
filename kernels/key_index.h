/* Finds the rows of a table from their keys with an index, and builds that index.
 *
 * The index is immutable and holds every key with its row number. Keys and row numbers together
 * take 15.1 bytes per row; the smallest index takes 192 bytes. An index consists of plain bytes,
 * little-endian and independent of their address, so that a file can hold a complete index.
 * Whatever the bytes hold, a lookup never reads outside of them, and never returns a row that the
 * table does not have.
 *
 * This header declares the lookups first, then the steps of a build, and last the layout of the
 * bytes, which is for the files that look keys up and for tests.
 * Thread: lookups are pure functions, for any number of threads. The description of a build below
 * says how threads share its steps. Memory: nothing is allocated; the bytes are borrowed and must
 * not move. */
#pragma once

#include "kernels/mix64.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* Most rows of an index. Row numbers have 32 bits, and one number means that there is no row. */
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

/* Stands for the index of a keyed table whose rows are elsewhere, on other servers. A check then
 * leaves keys as they are: those of a checked job are in place of its row numbers, and none is
 * missing. Never read. */
extern const struct eb_key_index eb_key_index_remote;

/* Replaces each of `count` keys with the number of its row, or with `missing_row` if it has no row.
 * Returns how many keys have no row. Buckets are prefetched ahead of their use. */
uint64_t eb_key_index_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* Does the same as eb_key_index_take_rows, with AVX2. Only in builds for x86-64. */
uint64_t eb_key_avx2_take_rows(
    const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);

/* Returns the row of one key, or -1. */
int64_t eb_key_index_find(const struct eb_key_index *index, int64_t key);

/* Opens an index of a table of `row_count` rows in constant time: reads only the header, which may
 * hold anything. The bytes must be aligned to EB_KEY_INDEX_ALIGNMENT. Returns false if the header
 * is not valid; *reason is then a constant text. */
bool eb_key_index_open(struct eb_key_index *index, const void *bytes, uint64_t byte_count,
    uint64_t row_count, const char **reason);

/* Returns the size of eb_key_index_verify's `seen`. */
uint64_t eb_key_index_seen_bytes(uint64_t row_count);

static inline uint64_t eb_key_index_bucket_count(const struct eb_key_index *index)
{
    return (uint64_t)index->partition_count * index->partition_buckets;
}

/* Verifies that every row has exactly one key, that no two keys are the same, and that a lookup
 * finds each key. Checks up to `count` buckets from *bucket on, which is 0 at first, and moves
 * *bucket past the sound ones. If all buckets are sound, the whole index is. `seen` is scratch
 * memory aligned to 8, with any contents at first. Returns false if something is wrong; *reason is
 * then a constant text, and *bucket is the bad bucket, or the count of buckets if all buckets are
 * sound but hold too few rows. */
bool eb_key_index_verify(const struct eb_key_index *index, uint64_t *seen, uint64_t *bucket,
    uint64_t count, const char **reason);

/* A build makes the bytes of an index from the keys of a table's rows. The same keys give the same
 * bytes, however the work is divided among threads. The steps are:
 *
 *   plan      finds how many bytes the index takes
 *   digest    digests a slice of the keys; join makes one digest of all slices
 *   begin     begins an attempt: writes the header, with a seed that is made of the attempt and the
 *             digest of all keys, so that nobody can choose keys for a seed known in advance
 *   count     counts how many keys of a share of the rows belong to each partition
 *   allot     allots room in each partition to the keys of each share
 *   assign    moves each key to its partition
 *   place     moves each key of a partition to one of its two buckets
 *
 * A step must have ended before the next one begins. Within a step several threads may work, each
 * on its own slices, shares or partitions; begin and allot are for one thread. The rows of a share
 * follow one another, after the rows of the shares before it. They may be counted and assigned in
 * several calls, in ascending order. All memory is the caller's. Keys are not needed after the
 * build. */

struct eb_key_plan {
    uint64_t row_count;
    uint64_t index_bytes;   /* bytes of the header and the buckets */
    uint64_t scratch_bytes; /* scratch memory for each thread that calls eb_key_build_place */
    uint64_t slice_count;   /* slices have EB_KEY_SLICE_ROWS rows; the last one may have fewer */
    uint32_t partition_count;
    uint32_t partition_buckets; /* in each partition */
};

struct eb_key_build {
    struct eb_key_plan plan;
    const void *keys; /* [row_count] int64 of any alignment */
    void *index;      /* [index_bytes], aligned to EB_KEY_INDEX_ALIGNMENT */
    uint32_t *counts; /* [share_count][partition_count]: counts of keys, later the position of the
                         next key */
    uint32_t share_count;
    uint64_t digest; /* digest of all keys */
};

enum eb_key_outcome {
    EB_KEY_OK,
    EB_KEY_AGAIN,    /* the keys are badly distributed; the next attempt should begin */
    EB_KEY_DUPLICATE /* two rows have the same key */
};

/* Two rows with the same key. */
struct eb_key_pair {
    int64_t key;
    uint32_t first_row;
    uint32_t second_row;
};

/* Number of rows of a slice: so few that every large table has slices for all threads, and so many
 * that the digests take very little memory. */
#define EB_KEY_SLICE_ROWS (UINT64_C(1) << 16)

/* Most attempts that are worth making. Less than one table in a thousand needs a second attempt.
 * Nobody knows how to find keys for which this many attempts fail. */
#define EB_KEY_ATTEMPTS_MAX 16

/* Plans the build. Returns false if there are more than EB_KEY_INDEX_ROWS_MAX rows. */
bool eb_key_build_plan(uint64_t row_count, struct eb_key_plan *plan);

/* Makes all attempts on this thread, with one share. `counts` must have room for one share, and
 * `scratch` is the same as for eb_key_build_place. Returns EB_KEY_AGAIN if no attempt succeeded. */
enum eb_key_outcome eb_key_build_run(
    struct eb_key_build *build, void *scratch, struct eb_key_pair *pair);

/* Returns the digest of a slice's keys. Takes some 4 ns per key. */
uint64_t eb_key_build_digest(const struct eb_key_build *build, uint64_t slice);
/* Joins the digests of all slices, [plan.slice_count]. */
void eb_key_build_join(struct eb_key_build *build, const uint64_t *digests);
/* Computes and joins the digests of all slices on this thread. */
void eb_key_build_digest_all(struct eb_key_build *build);

/* Begins an attempt. Attempts are numbered from 0. */
void eb_key_build_begin(struct eb_key_build *build, uint32_t attempt);

/* Rows [first, end). */
struct eb_key_range {
    uint64_t first;
    uint64_t end;
};

void eb_key_build_count(struct eb_key_build *build, uint32_t share, struct eb_key_range rows);
void eb_key_build_allot(struct eb_key_build *build);
/* Moves the keys of rows to their partitions. Must be called with the rows that were counted, in
 * the same order. */
void eb_key_build_assign(struct eb_key_build *build, uint32_t share, struct eb_key_range rows);

/* Places the keys of a partition. `scratch` must have scratch_bytes, aligned to 8. An outcome other
 * than EB_KEY_OK ends the attempt. */
enum eb_key_outcome eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);

/* The layout of an index: a header of one cache line, followed by buckets of one cache line each. A
 * bucket holds five keys with their rows. Buckets are grouped into partitions of equal size. The
 * hash of a key chooses its partition and two buckets in it. The key is in the first bucket if
 * there is room. A bucket marks which of its keys had to go to their second bucket: a key that is
 * neither in its first bucket nor marked there is not in the index. So finding a key reads 1.13
 * cache lines on average, and finding that a key is not in the index reads 1.02. */

#define EB_KEY_SLOTS 5
/* The row number in an empty slot, whose key is 0. A bucket's empty slots come last. */
#define EB_KEY_ROW_NONE UINT32_MAX

#define EB_KEY_MAGIC "EBKEYS01"
/* Fewest and most buckets of a partition. A bucket's number within the partition is made of 16 bits
 * of the hash. */
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
    uint32_t marks; /* a bit for each key whose first bucket is this one and that is in its second
                       bucket */
};

static_assert(sizeof(struct eb_key_header) == 64, "a cache line");
static_assert(sizeof(struct eb_key_bucket) == 64, "a cache line");

/* Returns the hash of a key. Different keys have different hashes (the function is a bijection).
 * Each bit of the hash depends on all bits of the key. */
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

/* Returns the row of the first slot that has the key, or EB_KEY_ROW_NONE if none has it. It must be
 * the first slot, because a key of 0 also matches empty slots. Has no branch either. */
static inline uint32_t eb_key_matched_row(const struct eb_key_bucket *bucket, unsigned matches)
{
    unsigned last = 1U << (EB_KEY_SLOTS - 1);
    return bucket->rows[__builtin_ctz(matches | last)] | -(uint32_t)(matches == 0);
}

/* These two functions return the first and the second bucket that a key with this hash may be
 * in. */
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
