/* Readings of the clock around what threads do together.
 * Thread: the calling one is one of the workers. Memory: heap during a turn. */
#pragma once

#include <stdint.h>

/* What one thread does between two readings. */
struct eb_bench_runner {
    void *self;
    /* Makes the batches from `position` on ready; not timed. */
    void (*prepare)(void *self, uint64_t position);
    void (*run)(void *self);
};

struct eb_bench_turn {
    uint64_t position;      /* of the first batch */
    uint32_t call_count;    /* batches between two readings */
    unsigned reading_count; /* at least 2 */
};

#define EB_BENCH_THREADS_MAX 256

/* Each thread prepares and runs its runner reading after reading; all of them begin to run at once.
 * Returns the nanoseconds of a reading, from the first thread's start to the last one's end: the
 * median of all readings but the first, in which caches and predictors get used to the work, and
 * but those in which the system took the processor away, as long as there are others. */
double eb_bench_workers_take_turn(
    const struct eb_bench_runner *runners, unsigned thread_count, const struct eb_bench_turn *turn);

/* What the k-th of `parts` equal parts of the values does not exceed (1 of 2: the median); sorts
 * them. `count` is at least 1. */
double eb_bench_workers_quantile(double *values, unsigned count, unsigned k, unsigned parts);
