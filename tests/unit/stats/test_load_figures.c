#include "server/stats/load_figures.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)

static const struct eb_load_capacity capacity = {.cpus = 4, .loops = 2, .threads = 5};

static void expect_near(double number, double expected)
{
    assert_true(number > expected - 1e-9 && number < expected + 1e-9);
}

static void adds_what_loops_have_counted(void **state)
{
    (void)state;
    struct eb_loop_load loops[2] = {{1, 20, 300}, {4, 50, 600}};
    struct eb_load_sums sums = {.cpu_ns = 7};
    eb_load_sums_add(&sums, &loops[0]);
    eb_load_sums_add(&sums, &loops[1]);
    assert_int_equal(sums.loop_busy_ns, 5);
    assert_int_equal(sums.lookups, 70);
    assert_int_equal(sums.errors, 900);
    assert_int_equal(sums.cpu_ns, 7);
}

static void relates_the_time_that_was_used_to_all_that_there_was(void **state)
{
    (void)state;
    struct eb_load_sums from = {9 * S, 100 * S, 50 * S, 20 * S, 1000, 10};
    struct eb_load_sums to = {19 * S, 110 * S, 60 * S, 45 * S, 6000, 35};
    struct eb_load_figures figures = eb_load_figures_between(&from, &to, &capacity);
    expect_near(figures.cpu, 0.25);
    expect_near(figures.loops, 0.5);
    expect_near(figures.executor, 0.5);
    expect_near(figures.lookups_per_s, 500);
    expect_near(figures.errors_per_s, 2.5);
}

static void gives_zeros_for_an_idle_time(void **state)
{
    (void)state;
    struct eb_load_sums from = {1, 2, 3, 4, 5, 6};
    struct eb_load_sums to = {2, 2, 3, 4, 5, 6};
    struct eb_load_figures figures = eb_load_figures_between(&from, &to, &capacity);
    assert_true(figures.cpu == 0 && figures.loops == 0 && figures.executor == 0);
    assert_true(figures.lookups_per_s == 0 && figures.errors_per_s == 0);
}

static void gives_no_share_above_one(void **state)
{
    (void)state;
    struct eb_load_sums from = {0};
    struct eb_load_sums full = {S, 4 * S, 2 * S, 5 * S, 0, 0};
    struct eb_load_sums more = {S, 4 * S + 1000, 3 * S, 9 * S, 0, 0};
    const struct eb_load_sums *const sums[] = {&full, &more};
    for (size_t i = 0; i < 2; i++) {
        struct eb_load_figures figures = eb_load_figures_between(&from, sums[i], &capacity);
        assert_true(figures.cpu == 1 && figures.loops == 1 && figures.executor == 1);
    }
}

EB_TEST_GROUP(load_figures)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_what_loops_have_counted),
        cmocka_unit_test(relates_the_time_that_was_used_to_all_that_there_was),
        cmocka_unit_test(gives_zeros_for_an_idle_time),
        cmocka_unit_test(gives_no_share_above_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
