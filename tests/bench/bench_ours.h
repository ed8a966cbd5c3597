/* Runs our kernels on a case, in one thread, in two ways. In the first, the check pass runs while a
 * reading is prepared, and is timed separately; the reading itself pools the checked jobs. In the
 * second, the reading checks and pools call by call, as a server does. If feeds have keys, a check
 * pass by key runs first, and the check pass by row number then replaces the jobs that it has made.
 * Thread: one each. Memory: heap, until deinit; borrows the case. */
#pragma once

#include "kernels/bag_stream.h"
#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"

struct eb_bench_ours {
    const struct eb_bench_case *bench;
    unsigned thread;
    uint32_t call_count;
    struct eb_bag_stream stream;
    /* By row number and by key, [feed_count] each; the latter NULL if feeds have no keys. */
    struct eb_bag_query *queries[2];
    struct eb_bag_kind *kinds[2];
    uint64_t position;         /* of the reading */
    uint32_t checked_count;    /* calls with their own jobs: one if HOT, otherwise all */
    struct eb_bag_job *jobs;   /* [checked_count * feed_count] */
    struct eb_bag_tile *tiles; /* [checked_count]: all jobs of a call */
    uint8_t *scratch;          /* scratch of all jobs */
    uint64_t call_scratch_bytes;
    uint8_t *out;              /* results of one call; all calls write to the same memory */
    struct eb_bench_rows rows; /* used if FLUSHED */
    double check_us;           /* time of all check passes so far */
    double keyed_us;           /* time of all check passes by key so far */
    uint64_t checked_rows;
};

/* Prepares for `call_count` batches in each reading. */
void eb_bench_ours_init(struct eb_bench_ours *ours, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count);
void eb_bench_ours_deinit(struct eb_bench_ours *ours);
struct eb_bench_runner eb_bench_ours_runner(struct eb_bench_ours *ours);
/* Returns the runner whose readings also check. */
struct eb_bench_runner eb_bench_ours_checking_runner(struct eb_bench_ours *ours);

/* Checks and pools the batch at a position, and writes its results one after another to `out`,
 * which may have any alignment. */
void eb_bench_ours_call(struct eb_bench_ours *ours, uint64_t position, uint8_t *out);
