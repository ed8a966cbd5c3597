/* How fast this machine can read rows at random at all: the limit that a kernel is measured
 * against. One word of every line of every row is loaded and added up, so that each line must have
 * come (a prefetch that nobody waits for may be dropped), with the best of several ways to call
 * rows ahead.
 * Thread: one each. Memory: heap, until deinit; borrows the case. */
#pragma once

#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"

/* Ways to call rows ahead. */
unsigned eb_bench_roofline_way_count(void);
const char *eb_bench_roofline_way_name(unsigned way);

struct eb_bench_roofline {
    const struct eb_bench_case *bench;
    unsigned thread;
    unsigned way;
    uint32_t repeat_count; /* times that the listed rows are read: HOT lists one batch */
    struct eb_bench_rows rows;
    uint64_t sum; /* of all words: what consumes the loads */
};

void eb_bench_roofline_init(struct eb_bench_roofline *roofline, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count);
void eb_bench_roofline_deinit(struct eb_bench_roofline *roofline);
struct eb_bench_runner eb_bench_roofline_runner(struct eb_bench_roofline *roofline);
