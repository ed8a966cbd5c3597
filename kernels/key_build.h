/* Builds the bytes of a key index (key_index.h) from the keys of a table's rows. The same keys give
 * the same bytes, however the work is shared.
 *
 *   plan      how many bytes it takes
 *   digest    of a slice of the keys; join makes one of all of them
 *   begin     an attempt: the header, whose seed is made of the attempt and the digest of all keys,
 *             so that nobody can choose keys for a seed that is known before
 *   count     how many keys of a share of the rows belong to each partition
 *   allot     room in each partition for the keys of each share
 *   assign    each key goes to its partition
 *   place     within a partition, each key goes to one of its two buckets
 *
 * Thread: one step begins when the one before it has ended; within one, threads may work at the
 * same time, each on slices, shares or partitions of its own; begin and allot are for one thread.
 * The rows of a share follow one another and come after those of the shares before it; they may be
 * counted and assigned bit by bit, in ascending order.
 * Memory: all of it is the caller's; keys may go when the build is over. */
#pragma once

#include "kernels/key_index.h"

struct eb_key_plan {
    uint64_t row_count;
    uint64_t index_bytes;   /* header and buckets */
    uint64_t scratch_bytes; /* for eb_key_build_place, by each thread */
    uint64_t slice_count;   /* of EB_KEY_SLICE_ROWS; the last one may have fewer */
    uint32_t partition_count;
    uint32_t partition_buckets; /* of each */
};

struct eb_key_build {
    struct eb_key_plan plan;
    const void *keys; /* [row_count] int64 of any alignment */
    void *index;      /* [index_bytes], aligned to EB_KEY_INDEX_ALIGNMENT */
    uint32_t *counts; /* [share_count][partition_count]: keys; then where the next one goes */
    uint32_t share_count;
    uint64_t digest; /* of all keys */
};

enum eb_key_outcome {
    EB_KEY_OK,
    EB_KEY_AGAIN,    /* keys fell badly: begin the next attempt */
    EB_KEY_DUPLICATE /* two rows have the same key */
};

/* Two rows with the same key. */
struct eb_key_pair {
    int64_t key;
    uint32_t first_row;
    uint32_t second_row;
};

/* Rows of a slice: few enough that threads have some of any large table, so many that their digests
 * are no memory. */
#define EB_KEY_SLICE_ROWS (UINT64_C(1) << 16)

/* Attempts that are worth making. A second one is needed for less than one table in a thousand; so
 * many in a row fail for no keys that anybody knows how to find. */
#define EB_KEY_ATTEMPTS_MAX 16

/* false: there are more than EB_KEY_INDEX_ROWS_MAX rows. */
bool eb_key_build_plan(uint64_t row_count, struct eb_key_plan *plan);

/* All attempts on this thread, with one share; `counts` has room for that, `scratch` is what
 * eb_key_build_place wants. EB_KEY_AGAIN: none of them succeeded. */
enum eb_key_outcome eb_key_build_run(
    struct eb_key_build *build, void *scratch, struct eb_key_pair *pair);

/* Of the keys of a slice: some 4 ns for each. */
uint64_t eb_key_build_digest(const struct eb_key_build *build, uint64_t slice);
/* Takes the digests of all slices, [plan.slice_count]. */
void eb_key_build_join(struct eb_key_build *build, const uint64_t *digests);
/* Both for all slices, on this thread. */
void eb_key_build_digest_all(struct eb_key_build *build);

/* Attempts are numbered from 0. */
void eb_key_build_begin(struct eb_key_build *build, uint32_t attempt);

/* Rows from `first` on, before `end`. */
struct eb_key_range {
    uint64_t first;
    uint64_t end;
};

void eb_key_build_count(struct eb_key_build *build, uint32_t share, struct eb_key_range rows);
void eb_key_build_allot(struct eb_key_build *build);
/* The same rows in the same order as they were counted. */
void eb_key_build_assign(struct eb_key_build *build, uint32_t share, struct eb_key_range rows);

/* `scratch` has scratch_bytes, aligned to 8. An outcome other than EB_KEY_OK ends the attempt. */
enum eb_key_outcome eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);
