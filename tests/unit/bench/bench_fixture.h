/* A small table with a stock of indices, and a case that uses both.
 * Thread: one. Memory: until deinit. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/bench_stock.h"

struct bench_fixture {
    struct eb_bench_table table;
    struct eb_bench_stock stock;
    int32_t *offsets;
    struct eb_bench_feed feed;
    struct eb_bench_case bench; /* 3 bags of 5 rows, one thread, EB_BENCH_STEADY, 16 batches */
};

#define BENCH_FIXTURE_BAGS 3
#define BENCH_FIXTURE_INDICES 5
#define BENCH_FIXTURE_BATCHES 16

/* Makes a table of 100 rows with 24 elements each, and the same rows in the peer's format (see
 * bench_table.h). */
void bench_fixture_init(struct bench_fixture *fixture, enum eb_storage storage, bool has_weights);
void bench_fixture_deinit(struct bench_fixture *fixture);
