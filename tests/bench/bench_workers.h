/* Takes readings, which are timed runs of several threads together.
 * Thread: the caller's, which is one of the workers. Memory: heap during a turn. */
#pragma once

#include <stdint.h>

/* The work of one thread in a reading. */
struct eb_bench_runner {
    void *self;
    /* Prepares the batches from `position` on; not timed. */
    void (*prepare)(void *self, uint64_t position);
    void (*run)(void *self); /* timed */
};

struct eb_bench_turn {
    uint64_t position;      /* position of the first batch */
    uint32_t call_count;    /* batches in each reading */
    unsigned reading_count; /* at least 2 */
};

#define EB_BENCH_THREADS_MAX 256

/* Prepares and runs the runners, reading after reading. In each reading all threads start to run at
 * the same time. Returns the median time of a reading in nanoseconds, from the first thread's start
 * to the last thread's end. The median excludes the first reading, in which caches and predictors
 * warm up. It also excludes readings in which a thread lost its processor, unless all did. */
double eb_bench_workers_take_turn(
    const struct eb_bench_runner *runners, unsigned thread_count, const struct eb_bench_turn *turn);

/* Sorts the values and returns their quantile k / parts, which is the median if it is 1 / 2.
 * `count` is at least 1. */
double eb_bench_workers_quantile(double *values, unsigned count, unsigned k, unsigned parts);
