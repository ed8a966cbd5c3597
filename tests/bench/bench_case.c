#include "tests/bench/bench_case.h"

#include <assert.h>

enum eb_type eb_bench_case_weights_type(const struct eb_table *table)
{
    return eb_type_is_float(table->type) ? EB_F32 : table->type;
}

uint64_t eb_bench_case_feed_rows(const struct eb_bench_case *bench, uint32_t feed)
{
    return (uint64_t)bench->bag_count * bench->feeds[feed].indices_per_bag;
}

uint64_t eb_bench_case_rows(const struct eb_bench_case *bench)
{
    uint64_t rows = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        rows += eb_bench_case_feed_rows(bench, feed);
    }
    return rows;
}

uint64_t eb_bench_case_period(const struct eb_bench_case *bench)
{
    assert(bench->thread_count <= bench->batch_count);
    return bench->state == EB_BENCH_HOT ? 1 : bench->batch_count / bench->thread_count;
}

uint64_t eb_bench_case_batch(const struct eb_bench_case *bench, unsigned thread, uint64_t position)
{
    uint64_t period = eb_bench_case_period(bench);
    return thread * period + position % period;
}

const int64_t *eb_bench_case_indices(
    const struct eb_bench_case *bench, uint32_t feed, uint64_t batch)
{
    return bench->feeds[feed].indices + batch * eb_bench_case_feed_rows(bench, feed);
}

const void *eb_bench_case_weights(const struct eb_bench_case *bench, uint32_t feed, uint64_t batch)
{
    const struct eb_bench_feed *from = &bench->feeds[feed];
    if (!from->weights) {
        return NULL;
    }
    uint64_t bytes = eb_type_bytes(eb_bench_case_weights_type(&from->table->table));
    return (const uint8_t *)from->weights + batch * eb_bench_case_feed_rows(bench, feed) * bytes;
}

uint64_t eb_bench_case_result_rows(const struct eb_bench_case *bench, uint32_t feed)
{
    return bench->reduction == EB_REDUCTION_NONE ? eb_bench_case_feed_rows(bench, feed)
                                                 : bench->bag_count;
}

uint64_t eb_bench_case_result_row_bytes(const struct eb_bench_case *bench, uint32_t feed)
{
    return bench->feeds[feed].table->table.row_elements * eb_type_bytes(bench->output_type);
}

uint64_t eb_bench_case_result_offset(const struct eb_bench_case *bench, uint32_t feed)
{
    uint64_t offset = 0;
    for (uint32_t before = 0; before < feed; before++) {
        offset += eb_bench_case_result_rows(bench, before) *
                  eb_bench_case_result_row_bytes(bench, before);
    }
    return offset;
}

void eb_bench_case_touch(const struct eb_bench_case *bench, uint64_t batch)
{
    uint64_t sum = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        const int64_t *indices = eb_bench_case_indices(bench, feed, batch);
        const uint8_t *weights = eb_bench_case_weights(bench, feed, batch);
        uint64_t rows = eb_bench_case_feed_rows(bench, feed);
        for (uint64_t i = 0; i < rows; i++) {
            sum += (uint64_t)indices[i] + (weights ? weights[i] : 0);
        }
    }
    __asm__ volatile("" : : "r"(sum));
}
