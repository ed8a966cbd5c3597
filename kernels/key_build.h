/* Builds the bytes of a key index (key_index.h) from the keys of a table's rows. The same keys give
 * the same bytes, however the work is shared.
 *
 *   plan      how many bytes it takes
 *   begin     an attempt: the header, whose seed is made of the attempt and all keys, so that
 * nobody can choose keys for a seed that is known before assign    each key goes to its partition
 *   place     within a partition, each key goes to one of its two buckets
 *
 * Thread: between begin and the end of an attempt, threads may work at the same time on partitions
 * of their own: each assigns the keys of all rows to its range of partitions, in ascending order of
 * rows (in slices where that suits, for there may be many), and then places those partitions one
 * by one. A single thread may as well assign all, and others place. A thread that gets an outcome
 * other than EB_KEY_OK stops the attempt.
 * Memory: all of it is the caller's; keys may go when the build is over. */
#pragma once

#include "kernels/key_index.h"

struct eb_key_plan {
    uint64_t row_count;
    uint64_t index_bytes;       /* header and buckets */
    uint64_t scratch_bytes;     /* for eb_key_build_place, by each thread */
    uint32_t partition_count;   /* eb_key_build.counts has so many entries */
    uint32_t partition_buckets; /* of each */
};

struct eb_key_build {
    struct eb_key_plan plan;
    const void *keys; /* [row_count] int64 of any alignment */
    void *index;      /* [index_bytes], aligned to EB_KEY_INDEX_ALIGNMENT */
    uint32_t *counts; /* [partition_count] keys of each */
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

/* Attempts that are worth making. A second one is needed for less than one table in a thousand; so
 * many in a row fail for no keys that anybody knows how to find. */
#define EB_KEY_ATTEMPTS_MAX 16

/* false: there are more than EB_KEY_INDEX_ROWS_MAX rows. */
bool eb_key_build_plan(uint64_t row_count, struct eb_key_plan *plan);

/* All attempts on this thread. `scratch` is what eb_key_build_place wants. EB_KEY_AGAIN: none of
 * them succeeded. */
enum eb_key_outcome eb_key_build_run(
    struct eb_key_build *build, void *scratch, struct eb_key_pair *pair);

/* Attempts are numbered from 0. Reads all keys: some 4 ns for each. */
void eb_key_build_begin(struct eb_key_build *build, uint32_t attempt);

/* A range of numbers. */
struct eb_key_range {
    uint64_t first;
    uint64_t end;
};

/* Assigns the keys of some rows, as far as they belong to some partitions. */
enum eb_key_outcome eb_key_build_assign(struct eb_key_build *build, struct eb_key_range rows,
    struct eb_key_range partitions, struct eb_key_pair *pair);

/* `scratch` has scratch_bytes, aligned to 8. */
enum eb_key_outcome eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);
