/* Measures how fast this machine can read rows at random, which is the limit for any kernel. It
 * loads and adds up one word of every cache line of every row, so that each line must have arrived
 * (a prefetch that nothing waits for may be dropped). There are several ways to prefetch rows; the
 * rate of the fastest is the limit.
 * Thread: one each. Memory: heap, until deinit; borrows the case. */
#pragma once

#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"

/* Return the number of ways to prefetch rows, and the name of one. */
unsigned eb_bench_roofline_way_count(void);
const char *eb_bench_roofline_way_name(unsigned way);

struct eb_bench_roofline {
    const struct eb_bench_case *bench;
    unsigned thread;
    unsigned way;
    uint32_t repeat_count; /* number of times to read the listed rows; 1 unless HOT */
    struct eb_bench_rows rows;
    uint64_t sum; /* sum of all words, which makes the loads necessary */
};

void eb_bench_roofline_init(struct eb_bench_roofline *roofline, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count);
void eb_bench_roofline_deinit(struct eb_bench_roofline *roofline);
struct eb_bench_runner eb_bench_roofline_runner(struct eb_bench_roofline *roofline);
