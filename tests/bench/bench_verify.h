/* Verifies results, so that a wrong kernel cannot win. Compares floats and codes with sums in f64,
 * within the specification's bound on errors, and integers with the reference, bit by bit.
 * Thread: one. Memory: heap while it runs. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/fbgemm_peer.h"

/* Compute the first batch of the case and compare some of its bags. Return the largest error as a
 * fraction of the allowed error: at most 1 if all results are right, infinite for a NaN or a wrong
 * integer. */
double eb_bench_verify_ours(const struct eb_bench_case *bench);
double eb_bench_verify_theirs(
    const struct eb_bench_case *bench, const struct eb_fbgemm_kernel *kernel);

/* Compares the results of a batch of floats or codes in the same way. `out` has the results of all
 * feeds at the offsets of eb_bench_case_result_offset. */
double eb_bench_verify_results(
    const struct eb_bench_case *bench, uint64_t batch, const uint8_t *out);
