/* One case to measure: batches of bags over one table, or over the tables of a workload, and a
 * stock of indices that is large enough for rows to have left the caches when they are read again.
 *
 * States: HOT repeats one batch, so that those of its rows that fit are in cache. STEADY uses
 * another batch each time. FLUSHED does too, and flushes its rows from all caches first.
 *
 * Thread: read-only after initialisation; functions are pure. Memory: everything is borrowed. */
#pragma once

#include "client/cli/sampler.h"
#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"
#include "tests/bench/bench_keys.h"

enum eb_bench_state { EB_BENCH_HOT, EB_BENCH_STEADY, EB_BENCH_FLUSHED };

/* The input of batches for one table. */
struct eb_bench_feed {
    const struct eb_bench_table *table;
    uint32_t indices_per_bag;
    const int64_t *indices; /* [batch_count * bag_count * indices_per_bag] */
    const int32_t *offsets; /* [bag_count + 1] */
    const void *weights;    /* one for each index; NULL: none */
    /* The same table with keys; NULL if lookups by key are not measured. */
    const struct eb_bench_keys *keyed;
    const int64_t *keys; /* one for each index */
};

struct eb_bench_case {
    const struct eb_bench_feed *feeds;
    uint32_t feed_count;
    uint32_t bag_count; /* number of bags of each feed */
    uint64_t batch_count;
    unsigned thread_count; /* at most batch_count */
    enum eb_bench_state state;
    enum eb_reduction reduction;
    enum eb_type output_type;
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    bool is_ahead; /* whether the next batch is known while one is pooled */
};

/* Returns the type of the weights for a table. */
enum eb_type eb_bench_case_weights_type(const struct eb_table *table);

/* Returns the number of indices in one batch. */
uint64_t eb_bench_case_rows(const struct eb_bench_case *bench);
/* Returns the number of indices of one feed in one batch. */
uint64_t eb_bench_case_feed_rows(const struct eb_bench_case *bench, uint32_t feed);
/* Returns the batch at a position of a thread's own sequence of batches. */
uint64_t eb_bench_case_batch(const struct eb_bench_case *bench, unsigned thread, uint64_t position);
/* Returns the number of positions after which a thread's batches repeat. */
uint64_t eb_bench_case_period(const struct eb_bench_case *bench);

/* Return the indices and the weights of a feed in a batch. The weights are NULL if there are
 * none. */
const int64_t *eb_bench_case_indices(
    const struct eb_bench_case *bench, uint32_t feed, uint64_t batch);
const void *eb_bench_case_weights(const struct eb_bench_case *bench, uint32_t feed, uint64_t batch);

/* Return the number of rows of a feed's result, and the bytes of one such row. */
uint64_t eb_bench_case_result_rows(const struct eb_bench_case *bench, uint32_t feed);
uint64_t eb_bench_case_result_row_bytes(const struct eb_bench_case *bench, uint32_t feed);
/* Returns the offset of a feed's result if the results of all feeds are stored one after another.
 * For feed_count it returns the size of all results. */
uint64_t eb_bench_case_result_offset(const struct eb_bench_case *bench, uint32_t feed);

/* Reads the indices and weights of a batch, as a server has done shortly before it pools. */
void eb_bench_case_touch(const struct eb_bench_case *bench, uint64_t batch);
