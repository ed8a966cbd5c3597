#include "tests/unit/bench/bench_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct bench_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    bench_fixture_init(&fixture, EB_STORAGE_F32, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    bench_fixture_deinit(&fixture);
    return 0;
}

static void takes_every_batch_of_the_stock_in_turn(void **state)
{
    (void)state;
    const struct eb_bench_case *bench = &fixture.bench;
    assert_int_equal(eb_bench_case_rows(bench), BENCH_FIXTURE_BAGS * BENCH_FIXTURE_INDICES);
    assert_int_equal(eb_bench_case_period(bench), BENCH_FIXTURE_BATCHES);
    for (uint64_t position = 0; position < 40; position++) {
        assert_int_equal(eb_bench_case_batch(bench, 0, position), position % BENCH_FIXTURE_BATCHES);
    }
}

static void gives_threads_batches_of_their_own(void **state)
{
    (void)state;
    unsigned taken[BENCH_FIXTURE_BATCHES] = {0};
    fixture.bench.thread_count = 3;
    for (unsigned thread = 0; thread < 3; thread++) {
        for (uint64_t position = 0; position < 100; position++) {
            taken[eb_bench_case_batch(&fixture.bench, thread, position)] |= 1u << thread;
        }
    }
    for (unsigned i = 0; i < BENCH_FIXTURE_BATCHES; i++) {
        assert_int_equal(taken[i], i < 15 ? 1u << i / 5 : 0);
    }
}

static void repeats_one_batch_where_hot(void **state)
{
    (void)state;
    fixture.bench.thread_count = 2;
    fixture.bench.state = EB_BENCH_HOT;
    assert_int_equal(eb_bench_case_batch(&fixture.bench, 0, 5), 0);
    assert_int_equal(eb_bench_case_batch(&fixture.bench, 0, 6), 0);
    assert_int_equal(eb_bench_case_batch(&fixture.bench, 1, 5), 1);
}

static void finds_indices_weights_and_results(void **state)
{
    (void)state;
    struct eb_bench_feed feeds[2] = {fixture.feed, fixture.feed};
    const struct eb_bench_case *bench = &fixture.bench;
    fixture.bench.feeds = feeds;
    fixture.bench.feed_count = 2;
    feeds[1].weights = NULL;
    assert_int_equal(eb_bench_case_rows(bench), 30);
    assert_ptr_equal(eb_bench_case_indices(bench, 0, 2), fixture.stock.indices + 30);
    assert_ptr_equal(eb_bench_case_weights(bench, 0, 2), (const float *)fixture.stock.weights + 30);
    assert_null(eb_bench_case_weights(bench, 1, 2));
    assert_int_equal(eb_bench_case_result_offset(bench, 1), 3 * 24 * 4);
    assert_int_equal(eb_bench_case_result_offset(bench, 2), 2 * 3 * 24 * 4);
    fixture.bench.reduction = EB_REDUCTION_NONE;
    fixture.bench.output_type = EB_F16;
    assert_int_equal(eb_bench_case_result_offset(bench, 2), 2 * 15 * 24 * 2);
}

EB_TEST_GROUP(bench_case)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_every_batch_of_the_stock_in_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gives_threads_batches_of_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repeats_one_batch_where_hot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finds_indices_weights_and_results, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("bench_case", tests, NULL, NULL);
}
