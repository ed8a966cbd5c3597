/* A stock of indices of one table, drawn before anything is measured. Batches of every shape are
 * cut from it.
 * Thread: one; read-only after initialisation. Memory: heap, until deinit. */
#pragma once

#include "client/cli/sampler.h"
#include "tests/bench/bench_table.h"

struct eb_bench_stock {
    uint64_t count;
    int64_t *indices;
    void *weights; /* elements of type eb_bench_case_weights_type; NULL: none */
};

void eb_bench_stock_init(struct eb_bench_stock *stock, const struct eb_table *table,
    struct eb_sampler *sampler, uint64_t count, bool has_weights);
/* Frees the stock. Accepts a zeroed struct. */
void eb_bench_stock_deinit(struct eb_bench_stock *stock);

/* Returns the number of indices that a stock should have, at least `least`. Half of the stock names
 * more rows than fit in the caches, unless the table itself is small. */
uint64_t eb_bench_stock_size(const struct eb_table *table, uint64_t least);

/* Returns the offsets of bags of equal size, [bag_count + 1], on the heap. */
int32_t *eb_bench_stock_make_offsets(uint32_t bag_count, uint32_t indices_per_bag);
