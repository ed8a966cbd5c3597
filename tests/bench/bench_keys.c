#include "tests/bench/bench_keys.h"

#include "client/cli/load_clock.h"
#include "kernels/key_index.h"
#include "tests/bench/bench_memory.h"

#include <assert.h>
#include <stdlib.h>

static int64_t key_of(uint64_t row)
{
    return (int64_t)((row + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

/* Builds the index in allocated memory. It cannot fail, because all keys are different. */
static void build(struct eb_key_build *build, double *ns_per_row)
{
    struct eb_key_pair pair;
    uint64_t row_count = build->plan.row_count;
    int64_t *keys = eb_bench_memory_take(row_count * sizeof *keys);
    void *scratch = eb_bench_memory_take(build->plan.scratch_bytes);
    for (uint64_t row = 0; row < row_count; row++) {
        keys[row] = key_of(row);
    }
    build->keys = keys;
    build->counts = eb_bench_memory_take(build->plan.partition_count * sizeof *build->counts);
    double start_us = eb_load_clock_read_us();
    enum eb_key_outcome outcome = eb_key_build_run(build, scratch, &pair);
    *ns_per_row = 1e3 * (eb_load_clock_read_us() - start_us) / (double)row_count;
    assert(outcome == EB_KEY_OK);
    free(build->counts);
    free(scratch);
    free(keys);
}

bool eb_bench_keys_init(struct eb_bench_keys *out, const struct eb_bench_table *table,
    enum eb_page_size pages, struct eb_failure *failure)
{
    *out = (struct eb_bench_keys){.table = table->table, .memory = {.options = {.pages = pages}}};
    struct eb_key_build work = {0};
    if (!eb_key_build_plan(table->table.row_count, &work.plan)) {
        return eb_failure_set(failure, "the table has too many rows for keys");
    }
    work.index = eb_table_memory_take(&out->memory, work.plan.index_bytes, failure);
    if (!work.index) {
        return false;
    }
    build(&work, &out->build_ns_per_row);
    const char *reason = NULL;
    if (!eb_key_index_open(
            &out->index, work.index, work.plan.index_bytes, work.plan.row_count, &reason)) {
        return eb_failure_set(failure, "the key index is invalid: %s", reason);
    }
    out->table.keys = &out->index;
    return true;
}

void eb_bench_keys_deinit(struct eb_bench_keys *keys)
{
    eb_table_memory_deinit(&keys->memory);
    *keys = (struct eb_bench_keys){0};
}

int64_t *eb_bench_keys_make(const int64_t *indices, uint64_t count)
{
    int64_t *keys = eb_bench_memory_take(count * sizeof *keys);
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = key_of((uint64_t)indices[i]);
    }
    return keys;
}
