#include "tests/bench/bench_workload.h"

#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_stock.h"

#include <stdio.h>
#include <stdlib.h>

/* Least number of calls for which indices are drawn: enough for a few in every thread. */
#define CALLS_MIN 1024

/* A workload's tables and indices in memory. */
struct model {
    const struct eb_bench_options *options;
    enum eb_storage storage;
    uint32_t table_count;
    struct eb_bench_table *tables; /* [table_count] */
    struct eb_bench_stock *stocks;
    int32_t **offsets;
    struct eb_bench_feed *feeds;
    uint64_t batch_count;
};

static void add_pages(struct eb_page_count *sum, const struct eb_page_count *pages)
{
    sum->bytes += pages->bytes;
    sum->bytes_2m += pages->bytes_2m;
    sum->bytes_1g += pages->bytes_1g;
}

static uint32_t count_indices(const struct model *model, uint32_t table)
{
    return eb_workload_indices_per_bag(model->options->workload, table);
}

static const struct eb_table *find_largest_table(const struct model *model)
{
    const struct eb_table *largest = &model->tables[0].table;
    for (uint32_t i = 1; i < model->table_count; i++) {
        const struct eb_table *table = &model->tables[i].table;
        largest = table->row_count > largest->row_count ? table : largest;
    }
    return largest;
}

/* Returns a number of batches so large that the rows of half of them do not fit in the caches. */
static uint64_t count_batches(const struct model *model)
{
    uint64_t indices = 0;
    for (uint32_t i = 0; i < model->table_count; i++) {
        indices += count_indices(model, i) * model->options->samples;
    }
    uint64_t least = CALLS_MIN * indices;
    return eb_bench_stock_size(find_largest_table(model), least) / indices;
}

static bool make_tables(struct model *model, struct eb_bench_session *session)
{
    const struct eb_bench_options *options = model->options;
    const struct eb_workload *workload = options->workload;
    session->pages = (struct eb_page_count){0};
    session->peer_pages = (struct eb_page_count){0};
    for (uint32_t i = 0; i < model->table_count; i++) {
        struct eb_failure failure;
        char name[EB_WORKLOAD_TABLE_NAME_BYTES];
        struct eb_bench_table_spec spec =
            eb_bench_options_table(options, model->storage, workload->dim);
        eb_workload_table_name(i, name);
        spec.row_count = eb_workload_rows(workload, i, options->scale);
        spec.seed = eb_workload_seed(name, 1);
        if (!eb_bench_table_init(&model->tables[i], &spec, &failure)) {
            fprintf(stderr, "embag-bench: %s: %s\n", name, failure.text);
            return false;
        }
        add_pages(&session->pages, &model->tables[i].pages);
        add_pages(&session->peer_pages, &model->tables[i].peer_pages);
    }
    model->batch_count = count_batches(model);
    eb_bench_session_adopt(session, model->tables, model->table_count);
    return true;
}

static void draw_stocks(struct model *model, const struct eb_sampler_distribution *distribution)
{
    const struct eb_bench_options *options = model->options;
    uint32_t samples = (uint32_t)options->samples;
    for (uint32_t i = 0; i < model->table_count; i++) {
        const struct eb_bench_table *table = &model->tables[i];
        struct eb_sampler sampler;
        uint32_t indices = count_indices(model, i);
        eb_sampler_init(&sampler, distribution, table->table.row_count, indices, options->seed + i);
        eb_bench_stock_init(&model->stocks[i], &table->table, &sampler,
            model->batch_count * samples * indices, options->is_weighted);
        model->offsets[i] = eb_bench_stock_make_offsets(samples, indices);
        model->feeds[i] = (struct eb_bench_feed){.table = table,
            .indices_per_bag = indices,
            .indices = model->stocks[i].indices,
            .offsets = model->offsets[i],
            .weights = model->stocks[i].weights};
    }
}

static void drop_stocks(struct model *model)
{
    for (uint32_t i = 0; i < model->table_count; i++) {
        eb_bench_stock_deinit(&model->stocks[i]);
        free(model->offsets[i]);
        model->offsets[i] = NULL;
    }
}

static bool measure_workload(
    struct eb_bench_session *session, const struct eb_bench_case *bench, const void *context)
{
    (void)context;
    return eb_bench_session_measure(session, bench);
}

static bool measure_model_distributions(struct model *model, struct eb_bench_session *session)
{
    bool good = true;
    for (unsigned i = 0; i < model->options->distribution_count && good; i++) {
        struct eb_bench_case bench = eb_bench_session_model(session, model->storage);
        session->distribution = &model->options->distributions[i];
        draw_stocks(model, session->distribution);
        bench.feeds = model->feeds;
        bench.feed_count = model->table_count;
        bench.bag_count = (uint32_t)model->options->samples;
        bench.batch_count = model->batch_count;
        good = eb_bench_session_vary(session, &bench, measure_workload, NULL);
        drop_stocks(model);
    }
    return good;
}

static bool measure_model(struct eb_bench_session *session, enum eb_storage storage)
{
    const struct eb_bench_options *options = session->options;
    struct model model = {
        .options = options, .storage = storage, .table_count = options->workload->table_count};
    uint32_t count = model.table_count;
    model.tables = eb_bench_memory_take(count * sizeof *model.tables);
    model.stocks = eb_bench_memory_take(count * sizeof *model.stocks);
    model.offsets = eb_bench_memory_take(count * sizeof(int32_t *));
    model.feeds = eb_bench_memory_take(count * sizeof *model.feeds);
    bool good = make_tables(&model, session) && measure_model_distributions(&model, session);
    for (uint32_t i = 0; i < count; i++) {
        eb_bench_table_deinit(&model.tables[i]);
    }
    free(model.tables);
    free(model.stocks);
    free(model.offsets);
    free(model.feeds);
    return good;
}

bool eb_bench_workload_run(struct eb_bench_session *session)
{
    const struct eb_bench_options *options = session->options;
    bool good = true;
    for (unsigned i = 0; i < options->storages.count && good; i++) {
        good = measure_model(session, (enum eb_storage)options->storages.values[i]);
    }
    return good;
}
