#include "client/cli/load_stats.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct eb_load_histogram *make_histogram(void)
{
    struct eb_load_histogram *histogram = calloc(1, sizeof *histogram);
    assert_non_null(histogram);
    return histogram;
}

static void assert_near(double got, double wanted)
{
    if (fabs(got - wanted) > 0.01 * wanted) {
        fail_msg("%g is not %g", got, wanted);
    }
}

static void is_exact_where_empty(void **state)
{
    (void)state;
    struct eb_load_histogram *histogram = make_histogram();
    assert_true(eb_load_histogram_quantile_us(histogram, 0.5) == 0);
    assert_true(eb_load_histogram_mean_us(histogram) == 0);
    assert_true(eb_load_histogram_max_us(histogram) == 0);
    free(histogram);
}

static void errs_by_less_than_a_hundredth_at_any_time(void **state)
{
    (void)state;
    struct eb_load_histogram *histogram = make_histogram();
    for (double ns = 1; ns < 1e12; ns = ns * 1.07 + 1) {
        *histogram = (struct eb_load_histogram){0};
        eb_load_histogram_add(histogram, (uint64_t)ns);
        /* Adds a larger time, so that the maximum does not limit the quantile. */
        eb_load_histogram_add(histogram, UINT64_C(1) << 62);
        double got = eb_load_histogram_quantile_us(histogram, 0.5);
        /* The quantile is never less than the time itself: a call that took its whole deadline must
         * not be reported as faster. */
        assert_true(got * 1e3 >= (double)(uint64_t)ns);
        assert_near(got, (double)(uint64_t)ns / 1e3);
    }
    free(histogram);
}

static void finds_the_quantiles_of_a_sequence(void **state)
{
    (void)state;
    static const double quantiles[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999};
    struct eb_load_histogram *histogram = make_histogram();
    for (uint64_t i = 1; i <= 100000; i++) {
        eb_load_histogram_add(histogram, i * 1000);
    }
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        assert_near(eb_load_histogram_quantile_us(histogram, quantiles[i]), quantiles[i] * 100000);
    }
    assert_true(eb_load_histogram_quantile_us(histogram, 1) == 100000);
    assert_true(eb_load_histogram_max_us(histogram) == 100000);
    assert_near(eb_load_histogram_mean_us(histogram), 50000.5);
    free(histogram);
}

static void keeps_the_longest_time_exactly_beyond_its_buckets(void **state)
{
    (void)state;
    struct eb_load_histogram *histogram = make_histogram();
    eb_load_histogram_add(histogram, UINT64_C(1) << 50);
    eb_load_histogram_add(histogram, 10);
    assert_true(eb_load_histogram_max_us(histogram) == (double)(UINT64_C(1) << 50) / 1e3);
    assert_int_equal(histogram->count, 2);
    free(histogram);
}

static void merges_as_if_one_had_counted_all(void **state)
{
    (void)state;
    struct eb_load_histogram *one = make_histogram();
    struct eb_load_histogram *two = make_histogram();
    struct eb_load_histogram *all = make_histogram();
    for (uint64_t i = 0; i < 5000; i++) {
        uint64_t ns = (i * 7919) % 1000003;
        eb_load_histogram_add(i % 3 == 0 ? one : two, ns);
        eb_load_histogram_add(all, ns);
    }
    eb_load_histogram_merge(one, two);
    assert_memory_equal(one->buckets, all->buckets, sizeof all->buckets);
    assert_int_equal(one->count, all->count);
    assert_int_equal(one->max_ns, all->max_ns);
    assert_true(one->sum_ns == all->sum_ns);
    free(one);
    free(two);
    free(all);
}

EB_TEST_GROUP(load_histogram)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_exact_where_empty),
        cmocka_unit_test(errs_by_less_than_a_hundredth_at_any_time),
        cmocka_unit_test(finds_the_quantiles_of_a_sequence),
        cmocka_unit_test(keeps_the_longest_time_exactly_beyond_its_buckets),
        cmocka_unit_test(merges_as_if_one_had_counted_all),
    };
    return cmocka_run_group_tests_name("load_histogram", tests, NULL, NULL);
}
