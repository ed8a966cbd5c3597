#include "tests/bench/bench_grid.h"

#include "kernels/row_format.h"
#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/bench_stock.h"
#include "tests/bench/bench_theirs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS_DEFAULT 4000000
/* How long a look at the clock covers: with several threads, longer than they take to meet. */
#define READING_US 200
#define READING_US_TEAM 1000
#define READINGS_PER_TURN 6

/* Where the measuring has got to. */
struct grid {
    const struct eb_bench_options *options;
    struct eb_bag_schedules schedules;
    struct eb_bench_plan plan;
    const struct eb_bench_distribution *distribution;
    struct eb_page_count pages;
    struct eb_page_count peer_pages;
    /* Of rows of this table, distribution, state and number of threads, however they are put in
     * bags; 0: not measured yet. */
    double roofline_ns_per_row;
    const char *roofline_way;
};

static struct eb_bag_schedules choose_schedules(const struct eb_bench_options *options)
{
    struct eb_bag_schedules schedules = eb_bag_schedules_default;
    for (unsigned i = 0; i < EB_BAG_ROW_CLASS_COUNT && options->has_schedule; i++) {
        schedules.of_class[i] = options->schedule;
    }
    return schedules;
}

static enum eb_type choose_output_type(
    const struct eb_bench_options *options, enum eb_storage storage)
{
    return options->output_type ? options->output_type : eb_storage_type(storage);
}

/* Measures one case and reports it. */
static void measure(struct grid *grid, const struct eb_bench_case *bench)
{
    const struct eb_bench_options *options = grid->options;
    struct eb_bench_report report = {.options = options,
        .bench = bench,
        .distribution = grid->distribution,
        .pages = grid->pages,
        .peer_pages = grid->peer_pages};
    struct eb_fbgemm_shape shape;
    struct eb_fbgemm_kernel *peer = NULL;
    grid->plan.reading_us = bench->thread_count > 1 ? READING_US_TEAM : READING_US;
    if (options->reading_us > 0) {
        grid->plan.reading_us = (double)options->reading_us;
    }
    if (!options->has_no_peer && eb_bench_theirs_shape(bench, &shape)) {
        peer = eb_fbgemm_create(&shape);
        report.is_peer_tuned = eb_fbgemm_is_tuned(&shape);
    }
    if (!options->has_no_roofline &&
        (grid->roofline_ns_per_row <= 0 || bench->state == EB_BENCH_HOT)) {
        grid->roofline_ns_per_row =
            eb_bench_measure_roofline(bench, &grid->plan, &grid->roofline_way);
    }
    report.roofline_ns_per_row = grid->roofline_ns_per_row;
    report.roofline_way = grid->roofline_way;
    report.figures = eb_bench_measure_case(bench, &grid->plan, peer);
    eb_bench_report_print(stdout, &report);
    eb_fbgemm_destroy(peer);
}

/* Bags of one shape, cut from a stock of one table's rows. */
static void measure_shape(struct grid *grid, const struct eb_bench_case *model,
    const struct eb_bench_feed *model_feed, const struct eb_bench_stock *stock)
{
    struct eb_bench_case bench = *model;
    struct eb_bench_feed feed = *model_feed;
    int32_t *offsets = eb_bench_stock_make_offsets(bench.bag_count, feed.indices_per_bag);
    feed.offsets = offsets;
    bench.feeds = &feed;
    bench.batch_count = stock->count / ((uint64_t)bench.bag_count * feed.indices_per_bag);
    measure(grid, &bench);
    free(offsets);
}

static void measure_shapes(struct grid *grid, struct eb_bench_case *bench,
    struct eb_bench_feed *feed, const struct eb_bench_stock *stock)
{
    const struct eb_bench_options *options = grid->options;
    grid->roofline_ns_per_row = 0;
    for (unsigned i = 0; i < options->indices_per_bag.count; i++) {
        feed->indices_per_bag = (uint32_t)options->indices_per_bag.values[i];
        for (unsigned j = 0; j < options->bags.count; j++) {
            bench->bag_count = (uint32_t)options->bags.values[j];
            measure_shape(grid, bench, feed, stock);
        }
    }
}

static uint64_t find_largest(const struct eb_bench_list *list)
{
    uint64_t largest = 0;
    for (unsigned i = 0; i < list->count; i++) {
        largest = list->values[i] > largest ? list->values[i] : largest;
    }
    return largest;
}

/* Each thread shall find a few batches of the largest shape. */
static uint64_t count_least(const struct eb_bench_options *options)
{
    return 4 * find_largest(&options->bags) * find_largest(&options->indices_per_bag) *
           find_largest(&options->thread_counts);
}

static void measure_distribution(struct grid *grid, const struct eb_bench_table *table)
{
    const struct eb_bench_options *options = grid->options;
    struct eb_bench_sampler sampler;
    struct eb_bench_stock stock;
    eb_bench_sampler_init(&sampler, grid->distribution, table->table.row_count,
        (uint32_t)options->indices_per_bag.values[0], options->seed);
    eb_bench_stock_init(&stock, &table->table, &sampler,
        eb_bench_stock_size(&table->table, count_least(options)), options->is_weighted);
    struct eb_bench_feed feed = {
        .table = table, .indices = stock.indices, .weights = stock.weights};
    struct eb_bench_case bench = {
        .feed_count = 1,
        .reduction = options->reduction,
        .output_type = choose_output_type(options, table->table.storage),
        .ops = options->ops,
        .schedules = &grid->schedules,
        .is_ahead = options->is_ahead,
    };
    for (unsigned i = 0; i < options->thread_counts.count; i++) {
        bench.thread_count = (unsigned)options->thread_counts.values[i];
        for (unsigned j = 0; j < options->states.count; j++) {
            bench.state = (enum eb_bench_state)options->states.values[j];
            measure_shapes(grid, &bench, &feed, &stock);
        }
    }
    eb_bench_stock_deinit(&stock);
}

static bool measure_table(struct grid *grid, enum eb_storage storage, uint32_t dim)
{
    const struct eb_bench_options *options = grid->options;
    struct eb_bench_table table;
    struct eb_file_fault fault;
    struct eb_bench_table_spec spec = {
        .storage = storage,
        .dim = dim,
        .row_count = options->rows > 0 ? options->rows : ROWS_DEFAULT,
        .seed = eb_workload_seed("t00", 1),
        .has_scales_in_row = options->has_scales_in_row,
        .pages = options->pages,
        .has_peer = eb_fbgemm_is_built() && !options->has_no_peer,
        .peer_pages = options->peer_pages,
    };
    if (options->table_bytes > 0) {
        spec.row_count = options->table_bytes / eb_bench_table_row_bytes(storage, dim);
    }
    if (spec.row_count == 0 || spec.row_count > UINT32_MAX) {
        (void)fprintf(
            stderr, "embag-bench: a table of %" PRIu64 " rows is not measured\n", spec.row_count);
        return false;
    }
    bool good = eb_bench_table_init(&table, &spec, &fault);
    if (good) {
        grid->pages = table.pages;
        grid->peer_pages = table.peer_pages;
        for (unsigned i = 0; i < options->distribution_count; i++) {
            grid->distribution = &options->distributions[i];
            measure_distribution(grid, &table);
        }
    } else {
        (void)fprintf(stderr, "embag-bench: %s\n", fault.text);
    }
    eb_bench_table_deinit(&table);
    return good;
}

bool eb_bench_grid_run(const struct eb_bench_options *options)
{
    struct grid grid = {
        .options = options,
        .schedules = choose_schedules(options),
        .plan = {.pair_count = (unsigned)options->pairs, .reading_count = READINGS_PER_TURN},
    };
    bool good = true;
    eb_bench_report_print_head(stdout, options);
    for (unsigned i = 0; i < options->storages.count && good; i++) {
        for (unsigned j = 0; j < options->dims.count && good; j++) {
            good = measure_table(&grid, (enum eb_storage)options->storages.values[i],
                (uint32_t)options->dims.values[j]);
        }
    }
    return good;
}
