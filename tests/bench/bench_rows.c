#include "tests/bench/bench_rows.h"

#include "tests/bench/bench_memory.h"

#include <assert.h>
#include <stdlib.h>

/* Returns whether scale and bias are stored before each row. Then they count as part of the row. */
static bool has_scales_in_front(const struct eb_table *table)
{
    return table->scales && table->scale_stride_bytes == table->row_stride_bytes;
}

static const uint8_t *find_start(const struct eb_table *table)
{
    return has_scales_in_front(table) ? table->scales : table->rows;
}

void eb_bench_rows_init(
    struct eb_bench_rows *out, const struct eb_bench_case *bench, uint64_t batch_count)
{
    const struct eb_table *table = &bench->feeds[0].table->table;
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    row_bytes += (uint64_t)((const uint8_t *)table->rows - find_start(table));
    *out = (struct eb_bench_rows){
        .room = batch_count * eb_bench_case_rows(bench),
        .row_bytes = (uint32_t)row_bytes,
    };
    out->rows = eb_bench_memory_take(out->room * sizeof *out->rows);
    if (table->scales && !has_scales_in_front(table)) {
        out->scales = eb_bench_memory_take(out->room * sizeof *out->scales);
    }
}

void eb_bench_rows_deinit(struct eb_bench_rows *rows)
{
    free(rows->rows);
    free(rows->scales);
    *rows = (struct eb_bench_rows){0};
}

static void list_feed(
    struct eb_bench_rows *rows, const struct eb_bench_case *bench, uint32_t feed, uint64_t batch)
{
    const struct eb_table *table = &bench->feeds[feed].table->table;
    const int64_t *indices = eb_bench_case_indices(bench, feed, batch);
    uint64_t count = eb_bench_case_feed_rows(bench, feed);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)indices[i];
        rows->rows[rows->count] = find_start(table) + row * table->row_stride_bytes;
        if (rows->scales) {
            rows->scales[rows->count] =
                (const uint8_t *)table->scales + row * table->scale_stride_bytes;
        }
        rows->count++;
    }
}

void eb_bench_rows_list(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position)
{
    uint64_t batches = rows->room / eb_bench_case_rows(bench);
    rows->count = 0;
    for (uint64_t i = 0; i < batches; i++) {
        uint64_t batch = eb_bench_case_batch(bench, thread, position + i);
        for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
            list_feed(rows, bench, feed, batch);
        }
    }
}

static void list_feed_peer(
    struct eb_bench_rows *rows, const struct eb_bench_case *bench, uint32_t feed, uint64_t batch)
{
    const struct eb_bench_table *table = bench->feeds[feed].table;
    const int64_t *indices = eb_bench_case_indices(bench, feed, batch);
    uint64_t count = eb_bench_case_feed_rows(bench, feed);
    for (uint64_t i = 0; i < count; i++) {
        rows->rows[rows->count++] =
            (const uint8_t *)table->peer_rows + (uint64_t)indices[i] * table->peer_stride_bytes;
    }
}

void eb_bench_rows_list_peer(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position)
{
    uint64_t batches = rows->room / eb_bench_case_rows(bench);
    free(rows->scales);
    rows->scales = NULL;
    rows->row_bytes = (uint32_t)bench->feeds[0].table->peer_stride_bytes;
    rows->count = 0;
    for (uint64_t i = 0; i < batches; i++) {
        uint64_t batch = eb_bench_case_batch(bench, thread, position + i);
        for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
            list_feed_peer(rows, bench, feed, batch);
        }
    }
}

bool eb_bench_rows_can_flush(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static void flush_line(const uint8_t *line)
{
#if defined(__x86_64__)
    __asm__ volatile("clflush %0" : : "m"(*line) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
#else
    (void)line;
#endif
}

static void wait_for_flushes(void)
{
#if defined(__x86_64__)
    __asm__ volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dsb ish" : : : "memory");
#endif
}

void eb_bench_rows_flush(const struct eb_bench_rows *rows)
{
    for (uint64_t i = 0; i < rows->count; i++) {
        const uint8_t *row = rows->rows[i];
        const uint8_t *end = row + rows->row_bytes;
        for (const uint8_t *line = row - (uintptr_t)row % EB_LINE_BYTES; line < end;
             line += EB_LINE_BYTES) {
            flush_line(line);
        }
        if (rows->scales) {
            flush_line(rows->scales[i]);
        }
    }
    wait_for_flushes();
}
