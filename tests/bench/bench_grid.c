#include "tests/bench/bench_grid.h"

#include "tests/bench/bench_stock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS_DEFAULT 4000000

/* The table and indices of all bags. */
struct source {
    const struct eb_bench_table *table;
    const struct eb_bench_keys *keyed; /* NULL if lookups by key are not measured */
    const int64_t *keys;
    const struct eb_bench_stock *stock;
};

static bool measure_shape(struct eb_bench_session *session, const struct eb_bench_case *model,
    const struct source *source, uint32_t indices_per_bag)
{
    struct eb_bench_case bench = *model;
    int32_t *offsets = eb_bench_stock_make_offsets(bench.bag_count, indices_per_bag);
    struct eb_bench_feed feed = {.table = source->table,
        .indices_per_bag = indices_per_bag,
        .indices = source->stock->indices,
        .offsets = offsets,
        .weights = source->stock->weights,
        .keyed = source->keyed,
        .keys = source->keys};
    bench.feeds = &feed;
    bench.feed_count = 1;
    bench.batch_count = source->stock->count / ((uint64_t)bench.bag_count * indices_per_bag);
    bool good = eb_bench_session_measure(session, &bench);
    free(offsets);
    return good;
}

static bool measure_shapes(
    struct eb_bench_session *session, const struct eb_bench_case *model, const void *context)
{
    const struct eb_bench_options *options = session->options;
    struct eb_bench_case bench = *model;
    bool good = true;
    for (unsigned i = 0; i < options->indices_per_bag.count && good; i++) {
        for (unsigned j = 0; j < options->bags.count && good; j++) {
            bench.bag_count = (uint32_t)options->bags.values[j];
            good = measure_shape(
                session, &bench, context, (uint32_t)options->indices_per_bag.values[i]);
        }
    }
    return good;
}

static uint64_t find_largest_number(const struct eb_bench_list *list)
{
    uint64_t largest = 0;
    for (unsigned i = 0; i < list->count; i++) {
        largest = list->values[i] > largest ? list->values[i] : largest;
    }
    return largest;
}

/* Returns the number of indices that gives each thread a few batches of the largest shape. */
static uint64_t count_least(const struct eb_bench_options *options)
{
    return 4 * find_largest_number(&options->bags) *
           find_largest_number(&options->indices_per_bag) *
           find_largest_number(&options->thread_counts);
}

static bool measure_distribution(struct eb_bench_session *session,
    const struct eb_bench_table *table, const struct eb_bench_keys *keyed)
{
    const struct eb_bench_options *options = session->options;
    struct eb_sampler sampler;
    struct eb_bench_stock stock;
    eb_sampler_init(&sampler, session->distribution, table->table.row_count,
        (uint32_t)options->indices_per_bag.values[0], options->seed);
    eb_bench_stock_init(&stock, &table->table, &sampler,
        eb_bench_stock_size(&table->table, count_least(options)), options->is_weighted);
    struct eb_bench_case bench = eb_bench_session_model(session, table->table.storage);
    int64_t *keys = keyed ? eb_bench_keys_make(stock.indices, stock.count) : NULL;
    struct source source = {table, keyed, keys, &stock};
    bool good = eb_bench_session_vary(session, &bench, measure_shapes, &source);
    free(keys);
    eb_bench_stock_deinit(&stock);
    return good;
}

static bool measure_grid(struct eb_bench_session *session, const struct eb_bench_table *table,
    const struct eb_bench_keys *keyed)
{
    bool good = true;
    eb_bench_session_adopt(session, table, 1);
    session->pages = table->pages;
    session->peer_pages = table->peer_pages;
    for (unsigned i = 0; i < session->options->distribution_count && good; i++) {
        session->distribution = &session->options->distributions[i];
        good = measure_distribution(session, table, keyed);
    }
    return good;
}

static bool measure_table(struct eb_bench_session *session, enum eb_storage storage, uint32_t dim)
{
    const struct eb_bench_options *options = session->options;
    struct eb_bench_table table;
    struct eb_bench_keys keys = {0};
    struct eb_failure failure;
    struct eb_bench_table_spec spec = eb_bench_options_table(options, storage, dim);
    spec.row_count = options->rows > 0 ? options->rows : ROWS_DEFAULT;
    spec.seed = eb_workload_seed("t00", 1);
    if (options->table_bytes > 0) {
        spec.row_count = options->table_bytes / eb_bench_table_row_bytes(storage, dim);
    }
    if (spec.row_count == 0 || spec.row_count > EB_BENCH_ROWS_MAX) {
        fprintf(stderr,
            "embag-bench: --table-bytes: %" PRIu64 " rows of %s with dim %u: expected 1 to %u\n",
            spec.row_count, eb_storage_name(storage), dim, (unsigned)EB_BENCH_ROWS_MAX);
        return false;
    }
    bool good = eb_bench_table_init(&table, &spec, &failure) &&
                (!options->is_keyed || eb_bench_keys_init(&keys, &table, spec.pages, &failure));
    if (good) {
        good = measure_grid(session, &table, options->is_keyed ? &keys : NULL);
    } else {
        fprintf(stderr, "embag-bench: %s\n", failure.text);
    }
    eb_bench_keys_deinit(&keys);
    eb_bench_table_deinit(&table);
    return good;
}

bool eb_bench_grid_run(struct eb_bench_session *session)
{
    const struct eb_bench_options *options = session->options;
    bool good = true;
    for (unsigned i = 0; i < options->storages.count && good; i++) {
        for (unsigned j = 0; j < options->dims.count && good; j++) {
            good = measure_table(session, (enum eb_storage)options->storages.values[i],
                (uint32_t)options->dims.values[j]);
        }
    }
    return good;
}
