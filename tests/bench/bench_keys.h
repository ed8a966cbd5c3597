/* The keys of a table to measure: their index, and the time that building it took.
 * Thread: one; read-only after initialisation. Memory: mappings, until deinit; borrows the
 * table. */
#pragma once

#include "kernels/key_index.h"
#include "tests/bench/bench_table.h"

struct eb_bench_keys {
    struct eb_table table; /* the same rows, as a keyed table */
    struct eb_key_index index;
    double build_ns_per_row; /* time to build the index, on one thread */
    struct eb_table_memory memory;
};

/* Builds an index of the table's rows by keys that look like hashes, in memory with pages of the
 * given size. Returns false and sets *failure; then *out may be deinited. */
bool eb_bench_keys_init(struct eb_bench_keys *out, const struct eb_bench_table *table,
    enum eb_page_size pages, struct eb_failure *failure);
/* Frees the index. Accepts a zeroed struct. */
void eb_bench_keys_deinit(struct eb_bench_keys *keys);

/* Returns the keys of the rows in `indices`, on the heap. */
int64_t *eb_bench_keys_make(const int64_t *indices, uint64_t count);
