/* One thing to measure: batches of bags over one table, or over the tables of a workload, and a
 * stock of indices that is large enough for rows not to be in cache when they come again.
 *
 * States: HOT repeats one batch, so that its rows are in cache as far as they fit. STEADY takes
 * another batch each time. FLUSHED does too, and puts its rows out of all caches before.
 *
 * Thread: read-only once made, pure. Memory: everything is borrowed. */
#pragma once

#include "client/cli/sampler.h"
#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"
#include "tests/bench/bench_keys.h"

enum eb_bench_state { EB_BENCH_HOT, EB_BENCH_STEADY, EB_BENCH_FLUSHED };

/* What batches read of one table. */
struct eb_bench_feed {
    const struct eb_bench_table *table;
    uint32_t indices_per_bag;
    const int64_t *indices; /* [batch_count * bag_count * indices_per_bag] */
    const int32_t *offsets; /* [bag_count + 1] */
    const void *weights;    /* beside indices; NULL: none */
    /* The same table and indices by key; NULL: not wanted. */
    const struct eb_bench_keys *keyed;
    const int64_t *keys; /* beside indices */
};

struct eb_bench_case {
    const struct eb_bench_feed *feeds;
    uint32_t feed_count;
    uint32_t bag_count; /* of each feed */
    uint64_t batch_count;
    unsigned thread_count; /* at most batch_count */
    enum eb_bench_state state;
    enum eb_reduction reduction;
    enum eb_type output_type;
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    bool is_ahead; /* the next batch is known while one is pooled */
};

/* The type that weights of a table's rows have here. */
enum eb_type eb_bench_case_weights_type(const struct eb_table *table);

/* Indices in one batch. */
uint64_t eb_bench_case_rows(const struct eb_bench_case *bench);
/* Indices of one feed in one batch. */
uint64_t eb_bench_case_feed_rows(const struct eb_bench_case *bench, uint32_t feed);
/* The batch that a thread takes at a position of its own way through the stock. */
uint64_t eb_bench_case_batch(const struct eb_bench_case *bench, unsigned thread, uint64_t position);
/* The positions after which a thread's batches come again. */
uint64_t eb_bench_case_period(const struct eb_bench_case *bench);

const int64_t *eb_bench_case_indices(
    const struct eb_bench_case *bench, uint32_t feed, uint64_t batch);
/* NULL: none. */
const void *eb_bench_case_weights(const struct eb_bench_case *bench, uint32_t feed, uint64_t batch);

/* A feed's result: rows, and bytes of one. */
uint64_t eb_bench_case_result_rows(const struct eb_bench_case *bench, uint32_t feed);
uint64_t eb_bench_case_result_row_bytes(const struct eb_bench_case *bench, uint32_t feed);
/* Where a feed's result begins when those of all feeds lie one behind the other; that of
 * feed_count is where all end. */
uint64_t eb_bench_case_result_offset(const struct eb_bench_case *bench, uint32_t feed);

/* Reads a batch's indices and weights, as a server has just done when it comes to pooling. */
void eb_bench_case_touch(const struct eb_bench_case *bench, uint64_t batch);
