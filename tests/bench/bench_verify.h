/* Whether results are right: a wrong kernel must not win. Floats and codes against sums in f64, as
 * far as the specification's bound on errors allows; integers against the reference, to the bit.
 * Thread: one. Memory: heap while it runs. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/fbgemm_peer.h"

/* Both compute the case's first batch and compare a part of its bags. The result is the largest
 * error as a part of what is allowed, at most 1 where all is right, and infinite for a NaN or a
 * wrong integer. */
double eb_bench_verify_ours(const struct eb_bench_case *bench);
double eb_bench_verify_theirs(
    const struct eb_bench_case *bench, const struct eb_fbgemm_kernel *kernel);

/* The comparison itself: `out` holds the results of all feeds of a batch of floats or codes, as
 * eb_bench_case_result_offset says. */
double eb_bench_verify_results(
    const struct eb_bench_case *bench, uint64_t batch, const uint8_t *out);
