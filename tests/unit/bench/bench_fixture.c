#include "tests/unit/bench/bench_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

void bench_fixture_init(struct bench_fixture *fixture, enum eb_storage storage, bool has_weights)
{
    struct eb_bench_table_spec spec = {.storage = storage,
        .dim = 24,
        .row_count = 100,
        .seed = 7,
        .pages = EB_PAGE_2M,
        .has_peer = true,
        .peer_pages = EB_PAGE_2M};
    struct eb_sampler_distribution uniform = {.law = EB_SAMPLER_UNIFORM};
    struct eb_sampler sampler;
    struct eb_failure failure;
    assert_true(eb_bench_table_init(&fixture->table, &spec, &failure));
    eb_sampler_init(&sampler, &uniform, spec.row_count, BENCH_FIXTURE_INDICES, 1);
    eb_bench_stock_init(&fixture->stock, &fixture->table.table, &sampler,
        BENCH_FIXTURE_BATCHES * BENCH_FIXTURE_BAGS * BENCH_FIXTURE_INDICES, has_weights);
    fixture->offsets = eb_bench_stock_make_offsets(BENCH_FIXTURE_BAGS, BENCH_FIXTURE_INDICES);
    fixture->feed = (struct eb_bench_feed){.table = &fixture->table,
        .indices_per_bag = BENCH_FIXTURE_INDICES,
        .indices = fixture->stock.indices,
        .offsets = fixture->offsets,
        .weights = fixture->stock.weights};
    fixture->bench = (struct eb_bench_case){.feeds = &fixture->feed,
        .feed_count = 1,
        .bag_count = BENCH_FIXTURE_BAGS,
        .batch_count = BENCH_FIXTURE_BATCHES,
        .thread_count = 1,
        .state = EB_BENCH_STEADY,
        .reduction = EB_REDUCTION_SUM,
        .output_type = fixture->table.table.type,
        .ops = eb_bag_ops_find(NULL),
        .schedules = &eb_bag_schedules_default};
}

void bench_fixture_deinit(struct bench_fixture *fixture)
{
    eb_bench_stock_deinit(&fixture->stock);
    eb_bench_table_deinit(&fixture->table);
    free(fixture->offsets);
}
