#include "tests/bench/bench_stock.h"

#include "kernels/bag_prefetch.h"
#include "tests/bench/bench_case.h"
#include "tests/bench/bench_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_MIN (UINT64_C(1) << 20)
#define COUNT_MAX (UINT64_C(1) << 24)
/* Used if the system does not report the size of its last-level cache. */
#define CACHE_BYTES_DEFAULT (UINT64_C(64) << 20)

static uint64_t read_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : CACHE_BYTES_DEFAULT;
}

uint64_t eb_bench_stock_size(const struct eb_table *table, uint64_t least)
{
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    uint64_t touched = (row_bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES * EB_LINE_BYTES;
    uint64_t cache_bytes = read_cache_bytes();
    uint64_t count = 2 * cache_bytes / touched;
    if (table->row_count * table->row_stride_bytes < cache_bytes / 4 || count < COUNT_MIN) {
        count = COUNT_MIN;
    }
    count = count > COUNT_MAX ? COUNT_MAX : count;
    return count < least ? least : count;
}

/* Draws a small weight: for f32 a multiple of 1/8 from -1 to 7/8, for integers 0 to 3. */
static void draw_weight(struct eb_sampler *sampler, enum eb_type type, void *out)
{
    uint64_t bits = eb_sampler_bits(sampler);
    if (type == EB_F32) {
        float weight = (float)((int)(bits & 15) - 8) / 8;
        memcpy(out, &weight, sizeof weight);
    } else {
        uint64_t weight = bits & 3;
        memcpy(out, &weight, eb_type_bytes(type));
    }
}

void eb_bench_stock_init(struct eb_bench_stock *stock, const struct eb_table *table,
    struct eb_sampler *sampler, uint64_t count, bool has_weights)
{
    *stock = (struct eb_bench_stock){.count = count};
    stock->indices = eb_bench_memory_take(count * sizeof *stock->indices);
    for (uint64_t i = 0; i < count; i++) {
        stock->indices[i] = (int64_t)eb_sampler_draw(sampler);
    }
    if (!has_weights) {
        return;
    }
    enum eb_type type = eb_bench_case_weights_type(table);
    uint8_t *weights = eb_bench_memory_take(count * eb_type_bytes(type));
    for (uint64_t i = 0; i < count; i++) {
        draw_weight(sampler, type, weights + i * eb_type_bytes(type));
    }
    stock->weights = weights;
}

void eb_bench_stock_deinit(struct eb_bench_stock *stock)
{
    free(stock->indices);
    free(stock->weights);
    *stock = (struct eb_bench_stock){0};
}

int32_t *eb_bench_stock_make_offsets(uint32_t bag_count, uint32_t indices_per_bag)
{
    int32_t *offsets = eb_bench_memory_take((bag_count + (size_t)1) * sizeof *offsets);
    for (uint32_t bag = 0; bag <= bag_count; bag++) {
        offsets[bag] = (int32_t)(bag * indices_per_bag);
    }
    return offsets;
}
