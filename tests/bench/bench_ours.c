#include "tests/bench/bench_ours.h"

#include "client/cli/load_clock.h"
#include "tests/bench/bench_memory.h"

#include <stdio.h>
#include <stdlib.h>

/* Whether a check pass looks rows up by number or by key. */
enum naming { BY_ROW, BY_KEY };

/* Points a feed's query at the indices and weights of a batch. */
static void set_batch(const struct eb_bench_case *bench, uint32_t feed, uint64_t batch,
    enum naming naming, struct eb_bag_query *query)
{
    const struct eb_bench_feed *from = &bench->feeds[feed];
    const int64_t *indices = naming == BY_KEY ? from->keys : from->indices;
    query->indices.data = indices + batch * (query->indices.bytes / sizeof indices[0]);
    if (from->weights) {
        query->weights = eb_bench_case_weights(bench, feed, batch);
    }
}

/* Makes a feed's query, with the indices of the first batch. */
static struct eb_bag_query make_query(
    const struct eb_bench_case *bench, uint32_t feed, enum naming naming)
{
    const struct eb_bench_feed *from = &bench->feeds[feed];
    const struct eb_table *table = naming == BY_KEY ? &from->keyed->table : &from->table->table;
    uint64_t rows = eb_bench_case_feed_rows(bench, feed);
    enum eb_type weights_type = eb_bench_case_weights_type(table);
    struct eb_bag_query query = {
        .table = table,
        .reduction = bench->reduction,
        .missing = EB_MISSING_ERROR,
        .output_type = bench->output_type,
        .layout = EB_LAYOUT_OFFSETS,
        .include_last_offset = true,
        .indices = {NULL, rows * sizeof(int64_t), 8},
        .bounds = {from->offsets, (bench->bag_count + UINT64_C(1)) * sizeof(int32_t), 4},
        .weights_bytes = from->weights ? rows * eb_type_bytes(weights_type) : 0,
        .weights_type = weights_type,
    };
    set_batch(bench, feed, 0, naming, &query);
    return query;
}

/* Reports a failed check and ends the process. This cannot happen, because the options are checked
 * and the indices are drawn from the table. */
static void refuse_query(const struct eb_bag_error *error)
{
    fprintf(stderr, "embag-bench: %s\n", error->text);
    exit(1);
}

static uint64_t measure_call(const struct eb_bench_case *bench)
{
    uint64_t bytes = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        struct eb_bag_query query = make_query(bench, feed, BY_ROW);
        struct eb_bag_extent extent;
        struct eb_bag_error error;
        if (!eb_bag_measure(&query, &extent, &error)) {
            refuse_query(&error);
        }
        bytes += extent.scratch_bytes;
    }
    return bytes;
}

/* Prepares the jobs of a call, whose results will be written to `out`. */
static void check_call(
    struct eb_bench_ours *ours, uint32_t call, uint64_t batch, enum naming naming, uint8_t *out)
{
    const struct eb_bench_case *bench = ours->bench;
    uint8_t *scratch = ours->scratch + call * ours->call_scratch_bytes;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        struct eb_bag_query query = ours->queries[naming][feed];
        set_batch(bench, feed, batch, naming, &query);
        struct eb_bag_job *job = &ours->jobs[call * bench->feed_count + feed];
        struct eb_bag_extent extent;
        struct eb_bag_error error;
        job->scratch = scratch;
        if (!eb_bag_measure(&query, &extent, &error) ||
            !eb_bag_check(bench->ops, &query, &extent, job, &error)) {
            refuse_query(&error);
        }
        job->out = out;
        job->out_stride_bytes = extent.result_row_bytes;
        scratch += extent.scratch_bytes;
        out += extent.result_rows * extent.result_row_bytes;
    }
    const struct eb_bag_job *jobs = &ours->jobs[call * bench->feed_count];
    ours->tiles[call] = (struct eb_bag_tile){
        .jobs = jobs,
        .job_count = bench->feed_count,
        .bag_end = jobs[bench->feed_count - 1].bag_count,
        .element_end = UINT32_MAX,
    };
}

/* Runs the check passes of a reading. Returns their time in microseconds. */
static double check_calls(struct eb_bench_ours *ours, uint64_t position, enum naming naming)
{
    double start_us = eb_load_clock_read_us();
    for (uint32_t call = 0; call < ours->call_count; call++) {
        uint64_t batch = eb_bench_case_batch(ours->bench, ours->thread, position + call);
        check_call(ours, call % ours->checked_count, batch, naming, ours->out);
    }
    return eb_load_clock_read_us() - start_us;
}

/* Brings the indices of a reading into the caches. */
static void touch_calls(struct eb_bench_ours *ours, uint64_t position)
{
    const struct eb_bench_case *bench = ours->bench;
    for (uint32_t call = 0; call < ours->call_count; call++) {
        eb_bench_case_touch(bench, eb_bench_case_batch(bench, ours->thread, position + call));
    }
}

static void flush_rows(struct eb_bench_ours *ours, uint64_t position)
{
    if (ours->bench->state == EB_BENCH_FLUSHED) {
        eb_bench_rows_list(&ours->rows, ours->bench, ours->thread, position);
        eb_bench_rows_flush(&ours->rows);
    }
}

static void prepare_checking(void *self, uint64_t position)
{
    struct eb_bench_ours *ours = self;
    ours->position = position;
    touch_calls(ours, position);
    flush_rows(ours, position);
}

static void run_checking(void *self)
{
    struct eb_bench_ours *ours = self;
    for (uint32_t call = 0; call < ours->call_count; call++) {
        uint64_t batch = eb_bench_case_batch(ours->bench, ours->thread, ours->position + call);
        check_call(ours, 0, batch, BY_ROW, ours->out);
        eb_bag_stream_pool(&ours->stream, &ours->tiles[0], NULL);
    }
}

static void prepare_ours(void *self, uint64_t position)
{
    struct eb_bench_ours *ours = self;
    const struct eb_bench_case *bench = ours->bench;
    touch_calls(ours, position);
    if (bench->feeds[0].keyed) {
        ours->keyed_us += check_calls(ours, position, BY_KEY);
    }
    ours->check_us += check_calls(ours, position, BY_ROW);
    ours->checked_rows += ours->call_count * eb_bench_case_rows(bench);
    flush_rows(ours, position);
}

static void run_ours(void *self)
{
    struct eb_bench_ours *ours = self;
    for (uint32_t call = 0; call < ours->call_count; call++) {
        bool knows_next = ours->bench->is_ahead && call + 1 < ours->call_count;
        const struct eb_bag_tile *next = &ours->tiles[(call + 1) % ours->checked_count];
        eb_bag_stream_pool(
            &ours->stream, &ours->tiles[call % ours->checked_count], knows_next ? next : NULL);
    }
}

/* Makes the queries of all feeds, with what is found once for each kind of query. */
static void init_queries(struct eb_bench_ours *ours, enum naming naming)
{
    uint32_t count = ours->bench->feed_count;
    struct eb_bag_query *queries = eb_bench_memory_take(count * sizeof *queries);
    struct eb_bag_kind *kinds = eb_bench_memory_take(count * sizeof *kinds);
    for (uint32_t feed = 0; feed < count; feed++) {
        struct eb_bag_error error;
        queries[feed] = make_query(ours->bench, feed, naming);
        if (!eb_bag_kind_find(&queries[feed], &kinds[feed], &error)) {
            refuse_query(&error);
        }
        queries[feed].kind = &kinds[feed];
    }
    ours->queries[naming] = queries;
    ours->kinds[naming] = kinds;
}

void eb_bench_ours_init(struct eb_bench_ours *ours, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count)
{
    *ours = (struct eb_bench_ours){.bench = bench,
        .thread = thread,
        .call_count = call_count,
        .checked_count = bench->state == EB_BENCH_HOT ? 1 : call_count,
        .call_scratch_bytes = measure_call(bench)};
    init_queries(ours, BY_ROW);
    if (bench->feeds[0].keyed) {
        init_queries(ours, BY_KEY);
    }
    uint64_t job_count = (uint64_t)ours->checked_count * bench->feed_count;
    ours->jobs = eb_bench_memory_take(job_count * sizeof *ours->jobs);
    ours->tiles = eb_bench_memory_take(ours->checked_count * sizeof *ours->tiles);
    ours->scratch = eb_bench_memory_take(ours->checked_count * ours->call_scratch_bytes);
    ours->out = eb_bench_memory_take(eb_bench_case_result_offset(bench, bench->feed_count));
    if (bench->state == EB_BENCH_FLUSHED) {
        eb_bench_rows_init(&ours->rows, bench, call_count);
    }
    eb_bag_stream_init(&ours->stream, bench->ops, bench->schedules);
}

void eb_bench_ours_deinit(struct eb_bench_ours *ours)
{
    for (unsigned naming = 0; naming < 2; naming++) {
        free(ours->queries[naming]);
        free(ours->kinds[naming]);
    }
    free(ours->jobs);
    free(ours->tiles);
    free(ours->scratch);
    free(ours->out);
    eb_bench_rows_deinit(&ours->rows);
    *ours = (struct eb_bench_ours){0};
}

struct eb_bench_runner eb_bench_ours_runner(struct eb_bench_ours *ours)
{
    return (struct eb_bench_runner){.self = ours, .prepare = prepare_ours, .run = run_ours};
}

struct eb_bench_runner eb_bench_ours_checking_runner(struct eb_bench_ours *ours)
{
    return (struct eb_bench_runner){.self = ours, .prepare = prepare_checking, .run = run_checking};
}

void eb_bench_ours_call(struct eb_bench_ours *ours, uint64_t position, uint8_t *out)
{
    check_call(ours, 0, eb_bench_case_batch(ours->bench, ours->thread, position), BY_ROW, out);
    eb_bag_stream_pool(&ours->stream, &ours->tiles[0], NULL);
}
