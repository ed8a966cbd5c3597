/* The kernels at work on a case, in one thread: the check pass while a reading is prepared, timed
 * apart, and the pooling of checked jobs while it is taken. Where feeds have keys, a check pass
 * by key comes first, and what it finds gives way to the same rows.
 * Thread: one each. Memory: heap, until destroyed; borrows the case. */
#pragma once

#include "kernels/bag_stream.h"
#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"

struct eb_bench_ours {
    const struct eb_bench_case *bench;
    unsigned thread;
    uint32_t call_count;
    struct eb_bag_stream stream;
    uint32_t checked_count;    /* calls that have jobs of their own: HOT one, else all */
    struct eb_bag_job *jobs;   /* [checked_count * feed_count] */
    struct eb_bag_tile *tiles; /* [checked_count]: all jobs of a call */
    uint8_t *scratch;          /* of all jobs */
    uint64_t call_scratch_bytes;
    uint8_t *out;              /* one call's results: every call writes there */
    struct eb_bench_rows rows; /* FLUSHED */
    double check_us;           /* of all check passes so far */
    double keyed_us;           /* of the same by key */
    uint64_t checked_rows;
};

/* For `call_count` batches between two readings. */
void eb_bench_ours_init(struct eb_bench_ours *ours, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count);
void eb_bench_ours_deinit(struct eb_bench_ours *ours);
struct eb_bench_runner eb_bench_ours_runner(struct eb_bench_ours *ours);

/* The check pass and pooling of the batch at a position; its results lie one behind the other at
 * `out`, which may have any alignment. */
void eb_bench_ours_call(struct eb_bench_ours *ours, uint64_t position, uint8_t *out);
