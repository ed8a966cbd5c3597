/* Measures a case: takes turns of our kernels and the peer's in pairs, whose order alternates, and
 * computes medians over the pairs. A reading is one timed run of the kernels, and a turn is a
 * series of readings.
 * Thread: the caller's, which is one of the workers. Memory: heap while it measures. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/fbgemm_peer.h"

struct eb_bench_plan {
    unsigned pair_count;    /* at least 1 */
    double reading_us;      /* approximate length of a reading */
    unsigned reading_count; /* readings in a turn, at least 2: the first does not count */
};

/* Medians over turns. Times are for all threads together: with two threads that do not hinder each
 * other, a row takes half the time. */
struct eb_bench_figures {
    double ns_per_row;       /* pooling of checked jobs */
    double check_ns_per_row; /* measuring and checking */
    double peer_ns_per_row;  /* 0: not measured */
    double ratio;            /* peer / ours, median of pairs */
    double ratio_low;        /* quartiles of pairs */
    double ratio_high;
    double ratio_checked;          /* peer / ours, both with their checks */
    double keyed_check_ns_per_row; /* check_ns_per_row by key; 0: not measured */
    double keyed_ratio;            /* (check + pooling) by row / by key */
    uint32_t call_count;           /* batches in a reading */
};

/* Measures the case. Without a `peer` (NULL) it measures our kernels only. */
struct eb_bench_figures eb_bench_measure_case(const struct eb_bench_case *bench,
    const struct eb_bench_plan *plan, const struct eb_fbgemm_kernel *peer);

/* Returns the shortest time per row, in nanoseconds, in which this machine reads the rows of the
 * case at random, over all ways to read them. Sets *way to the name of the fastest way. */
double eb_bench_measure_roofline(
    const struct eb_bench_case *bench, const struct eb_bench_plan *plan, const char **way);
