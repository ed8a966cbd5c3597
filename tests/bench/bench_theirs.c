#include "tests/bench/bench_theirs.h"

#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_stock.h"

#include <stdio.h>
#include <stdlib.h>

bool eb_bench_theirs_shape(const struct eb_bench_case *bench, struct eb_fbgemm_shape *out)
{
    const struct eb_bench_feed *feed = &bench->feeds[0];
    bool is_mean = bench->reduction == EB_REDUCTION_MEAN;
    bool is_none = bench->reduction == EB_REDUCTION_NONE;
    *out = (struct eb_fbgemm_shape){
        .storage = feed->table->table.storage,
        .dim = feed->table->table.row_elements,
        .row_stride_bytes = feed->table->peer_stride_bytes,
        .output_type = bench->output_type,
        .is_weighted = feed->weights,
        .is_mean = is_mean,
    };
    return feed->table->peer_rows && (is_mean || is_none || bench->reduction == EB_REDUCTION_SUM);
}

static void prepare_call(struct eb_bench_theirs *theirs, uint32_t call, uint64_t batch)
{
    const struct eb_bench_case *bench = theirs->bench;
    uint8_t *out = theirs->out;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        const struct eb_bench_feed *from = &bench->feeds[feed];
        theirs->calls[call * bench->feed_count + feed] = (struct eb_fbgemm_call){
            .rows = from->table->peer_rows,
            .row_count = from->table->table.row_count,
            .indices = eb_bench_case_indices(bench, feed, batch),
            .index_count = eb_bench_case_feed_rows(bench, feed),
            .offsets = theirs->single_offsets ? theirs->single_offsets : from->offsets,
            .bag_count = (uint32_t)eb_bench_case_result_rows(bench, feed),
            .weights = eb_bench_case_weights(bench, feed, batch),
            .out = out,
        };
        out += eb_bench_case_result_rows(bench, feed) * eb_bench_case_result_row_bytes(bench, feed);
    }
    eb_bench_case_touch(bench, batch);
}

static void prepare_theirs(void *self, uint64_t position)
{
    struct eb_bench_theirs *theirs = self;
    for (uint32_t call = 0; call < theirs->call_count; call++) {
        prepare_call(
            theirs, call, eb_bench_case_batch(theirs->bench, theirs->thread, position + call));
    }
    if (theirs->bench->state == EB_BENCH_FLUSHED) {
        eb_bench_rows_list_peer(&theirs->rows, theirs->bench, theirs->thread, position);
        eb_bench_rows_flush(&theirs->rows);
    }
}

static void run_theirs(void *self)
{
    const struct eb_bench_theirs *theirs = self;
    uint64_t count = (uint64_t)theirs->call_count * theirs->bench->feed_count;
    if (!eb_fbgemm_run(theirs->kernel, theirs->calls, count)) {
        fprintf(stderr, "embag-bench: FBGEMM refused a call\n");
        exit(1);
    }
}

static uint32_t count_largest_feed(const struct eb_bench_case *bench)
{
    uint64_t largest = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        uint64_t rows = eb_bench_case_feed_rows(bench, feed);
        largest = rows > largest ? rows : largest;
    }
    return (uint32_t)largest;
}

void eb_bench_theirs_init(struct eb_bench_theirs *theirs, const struct eb_bench_case *bench,
    const struct eb_fbgemm_kernel *kernel, unsigned thread, uint32_t call_count)
{
    *theirs = (struct eb_bench_theirs){
        .bench = bench, .kernel = kernel, .thread = thread, .call_count = call_count};
    theirs->calls =
        eb_bench_memory_take((uint64_t)call_count * bench->feed_count * sizeof *theirs->calls);
    theirs->out = eb_bench_memory_take(eb_bench_case_result_offset(bench, bench->feed_count));
    if (bench->reduction == EB_REDUCTION_NONE) {
        theirs->single_offsets = eb_bench_stock_make_offsets(count_largest_feed(bench), 1);
    }
    if (bench->state == EB_BENCH_FLUSHED) {
        eb_bench_rows_init(&theirs->rows, bench, call_count);
    }
}

void eb_bench_theirs_deinit(struct eb_bench_theirs *theirs)
{
    free(theirs->calls);
    free(theirs->single_offsets);
    free(theirs->out);
    eb_bench_rows_deinit(&theirs->rows);
    *theirs = (struct eb_bench_theirs){0};
}

struct eb_bench_runner eb_bench_theirs_runner(struct eb_bench_theirs *theirs)
{
    return (struct eb_bench_runner){.self = theirs, .prepare = prepare_theirs, .run = run_theirs};
}
