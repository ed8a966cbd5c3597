/* Measures a case: ours and the peer's turns in pairs, whose order alternates, and medians of them.
 * Thread: the caller's, which is one of the workers. Memory: heap while it measures. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/fbgemm_peer.h"

struct eb_bench_plan {
    unsigned pair_count;    /* at least 1 */
    double reading_us;      /* about how long the kernels run between two looks at the clock */
    unsigned reading_count; /* of a turn, at least 2: the first does not count */
};

/* Medians over turns; times are of all threads together: with two threads a row takes half as long
 * if they do not hinder each other. */
struct eb_bench_figures {
    double ns_per_row;       /* pooling of checked jobs */
    double check_ns_per_row; /* measuring and checking */
    double peer_ns_per_row;  /* 0: not measured */
    double ratio;            /* peer / ours, median of pairs */
    double ratio_low;        /* quartiles of pairs */
    double ratio_high;
    double ratio_checked;          /* peer / (check + pooling) */
    double keyed_check_ns_per_row; /* check_ns_per_row by key; 0: not measured */
    double keyed_ratio;            /* (check + pooling) / the same by key */
    uint32_t call_count;           /* batches between two looks at the clock */
};

/* `peer` NULL: ours alone. */
struct eb_bench_figures eb_bench_measure_case(const struct eb_bench_case *bench,
    const struct eb_bench_plan *plan, const struct eb_fbgemm_kernel *peer);

/* The least ns per row at which this machine reads the case's rows at random, over all ways; the
 * name of the best way is put into *way. */
double eb_bench_measure_roofline(
    const struct eb_bench_case *bench, const struct eb_bench_plan *plan, const char **way);
