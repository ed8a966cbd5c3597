/* Builds the bytes of a key index (key_index.h) from the keys of a table's rows. The same keys give
 * the same bytes, however the work is divided among threads. The steps are:
 *
 *   plan      finds how many bytes the index takes
 *   digest    digests a slice of the keys; join makes one digest of all slices
 *   begin     begins an attempt: writes the header. Its seed is made of the attempt and the digest
 *             of all keys, so that nobody can choose keys for a seed that is known in advance
 *   count     counts how many keys of a share of the rows belong to each partition
 *   allot     allots room in each partition to the keys of each share
 *   assign    moves each key to its partition
 *   place     moves each key of a partition to one of its two buckets
 *
 * Thread: a step must have ended before the next one begins. Within a step several threads may
 * work, each on its own slices, shares or partitions; begin and allot are for one thread. The rows
 * of a share follow one another, after the rows of the shares before it. They may be counted and
 * assigned in several calls, in ascending order.
 * Memory: all of it is the caller's. Keys are not needed after the build. */
#pragma once

#include "kernels/key_index.h"

struct eb_key_plan {
    uint64_t row_count;
    uint64_t index_bytes;   /* header and buckets */
    uint64_t scratch_bytes; /* for each thread that calls eb_key_build_place */
    uint64_t slice_count;   /* slices have EB_KEY_SLICE_ROWS rows, the last one perhaps fewer */
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
    EB_KEY_AGAIN,    /* the keys are badly distributed: begin the next attempt */
    EB_KEY_DUPLICATE /* two rows have the same key */
};

/* Two rows with the same key. */
struct eb_key_pair {
    int64_t key;
    uint32_t first_row;
    uint32_t second_row;
};

/* Rows of a slice: few enough that any large table has slices for all threads, and enough that the
 * digests take no memory to speak of. */
#define EB_KEY_SLICE_ROWS (UINT64_C(1) << 16)

/* Most attempts that are worth making. Less than one table in a thousand needs a second one. Nobody
 * knows how to find keys for which this many fail. */
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
/* Must be called with the rows that were counted, in the same order. */
void eb_key_build_assign(struct eb_key_build *build, uint32_t share, struct eb_key_range rows);

/* `scratch` must have scratch_bytes, aligned to 8. An outcome other than EB_KEY_OK ends the
 * attempt. */
enum eb_key_outcome eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);
