/* The keys of a table to measure on: an index of them, and how long it took to build.
 * Thread: one; read-only once made. Memory: mappings, until deinit; borrows the table. */
#pragma once

#include "kernels/key_index.h"
#include "tests/bench/bench_table.h"

struct eb_bench_keys {
    struct eb_table table; /* the same rows, by key */
    struct eb_key_index index;
    double build_ns_per_row; /* on one thread */
    struct eb_table_memory memory;
};

/* Indexes every row of the table by a key that looks like a hash. The index lies in pages of the
 * size given. false: *error; *out may be deinited. */
bool eb_bench_keys_init(struct eb_bench_keys *out, const struct eb_bench_table *table,
    enum eb_page_size pages, struct eb_failure *failure);
/* Accepts a zeroed one. */
void eb_bench_keys_deinit(struct eb_bench_keys *keys);

/* The keys of the rows that indices name; on the heap. */
int64_t *eb_bench_keys_make(const int64_t *indices, uint64_t count);
