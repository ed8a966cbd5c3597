#include "tests/bench/bench_measure.h"
#include "tests/lib/test_group.h"
#include "tests/unit/bench/bench_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct eb_bench_plan plan = {.pair_count = 3, .reading_us = 5, .reading_count = 3};

static void measures_every_state_and_any_threads(void **state)
{
    (void)state;
    static const enum eb_bench_state states[] = {EB_BENCH_HOT, EB_BENCH_STEADY, EB_BENCH_FLUSHED};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct bench_fixture fixture;
            bench_fixture_init(&fixture, EB_STORAGE_INT4, true);
            fixture.bench.state = states[i];
            fixture.bench.thread_count = threads;
            fixture.bench.is_ahead = threads == 2;
            struct eb_bench_figures figures = eb_bench_measure_case(&fixture.bench, &plan, NULL);
            assert_true(figures.ns_per_row > 0);
            assert_true(figures.check_ns_per_row > 0);
            assert_true(figures.call_count > 0);
            assert_false(figures.peer_ns_per_row > 0);
            const char *way = NULL;
            assert_true(eb_bench_measure_roofline(&fixture.bench, &plan, &way) > 0);
            assert_non_null(way);
            bench_fixture_deinit(&fixture);
        }
    }
}

static void takes_as_many_batches_as_the_stock_has_at_most(void **state)
{
    (void)state;
    struct eb_bench_plan long_plan = {.pair_count = 1, .reading_us = 1e6, .reading_count = 3};
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_F32, false);
    struct eb_bench_figures figures = eb_bench_measure_case(&fixture.bench, &long_plan, NULL);
    assert_int_equal(figures.call_count, BENCH_FIXTURE_BATCHES / 3);
    bench_fixture_deinit(&fixture);
}

EB_TEST_GROUP(bench_measure)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_every_state_and_any_threads),
        cmocka_unit_test(takes_as_many_batches_as_the_stock_has_at_most),
    };
    return cmocka_run_group_tests_name("bench_measure", tests, NULL, NULL);
}
