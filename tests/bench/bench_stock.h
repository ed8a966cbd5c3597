/* A stock of indices of one table, drawn before anything is measured; batches of every shape are
 * cut from it.
 * Thread: one; read-only once made. Memory: heap, until deinit. */
#pragma once

#include "client/cli/sampler.h"
#include "tests/bench/bench_table.h"

struct eb_bench_stock {
    uint64_t count;
    int64_t *indices;
    void *weights; /* of eb_bench_case_weights_type; NULL: not wanted */
};

void eb_bench_stock_init(struct eb_bench_stock *stock, const struct eb_table *table,
    struct eb_sampler *sampler, uint64_t count, bool has_weights);
/* Accepts a zeroed stock. */
void eb_bench_stock_deinit(struct eb_bench_stock *stock);

/* Indices that a stock should hold so that the rows of half of it do not fit the caches: where the
 * table is not larger than they are, fewer do. At least `least`. */
uint64_t eb_bench_stock_size(const struct eb_table *table, uint64_t least);

/* Starts of equal bags, [bag_count + 1]; on the heap. */
int32_t *eb_bench_stock_make_offsets(uint32_t bag_count, uint32_t indices_per_bag);
