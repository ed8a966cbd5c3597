#include "server/base/counters.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Returns the range that one time falls into. */
static unsigned range_of(uint64_t ns)
{
    struct eb_histogram histogram = {0};
    unsigned found = EB_HISTOGRAM_RANGES;
    eb_histogram_add(&histogram, ns);
    for (unsigned i = 0; i < EB_HISTOGRAM_RANGES; i++) {
        if (histogram.counts[i] > 0) {
            assert_int_equal(found, EB_HISTOGRAM_RANGES);
            found = i;
        }
    }
    return found;
}

static void ranges_end_at_four_steps_to_a_power_of_two(void **state)
{
    (void)state;
    static const uint64_t ends_ns[] = {1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096};
    for (unsigned i = 0; i < sizeof ends_ns / sizeof ends_ns[0]; i++) {
        assert_int_equal(eb_histogram_end_ns(i), ends_ns[i]);
    }
    assert_int_equal(eb_histogram_end_ns(EB_HISTOGRAM_RANGES - 2), UINT64_C(1) << 36);
    assert_true(eb_histogram_end_ns(EB_HISTOGRAM_RANGES - 1) == UINT64_MAX);
}

static void a_time_falls_into_the_range_that_ends_at_it_or_next_after_it(void **state)
{
    (void)state;
    assert_int_equal(range_of(0), 0);
    assert_int_equal(range_of(1), 0);
    for (unsigned i = 0; i + 1 < EB_HISTOGRAM_RANGES; i++) {
        uint64_t end_ns = eb_histogram_end_ns(i);
        assert_int_equal(range_of(end_ns - 1), i);
        assert_int_equal(range_of(end_ns), i);
        assert_int_equal(range_of(end_ns + 1), i + 1);
    }
    assert_int_equal(range_of(UINT64_MAX), EB_HISTOGRAM_RANGES - 1);
}

static void counts_what_took_at_most_the_end_of_a_range(void **state)
{
    (void)state;
    struct eb_histogram histogram = {0};
    static const uint64_t times_ns[] = {1, 1024, 1025, 2048, 2049, UINT64_C(1) << 40};
    for (unsigned i = 0; i < sizeof times_ns / sizeof times_ns[0]; i++) {
        eb_histogram_add(&histogram, times_ns[i]);
    }
    assert_int_equal(eb_histogram_count_below(&histogram, 1024), 2);
    assert_int_equal(eb_histogram_count_below(&histogram, 1280), 3);
    assert_int_equal(eb_histogram_count_below(&histogram, 2048), 4);
    assert_int_equal(eb_histogram_count_below(&histogram, UINT64_C(1) << 36), 5);
    assert_int_equal(eb_histogram_count_below(&histogram, UINT64_MAX), 6);
    assert_int_equal(eb_histogram_count(&histogram), 6);
    assert_int_equal(histogram.sum_ns, 1 + 1024 + 1025 + 2048 + 2049 + (UINT64_C(1) << 40));
}

static void adds_what_another_has_counted(void **state)
{
    (void)state;
    struct eb_histogram one = {0};
    struct eb_histogram other = {0};
    for (uint64_t ns = 1; ns < UINT64_C(1) << 38; ns = ns * 3 / 2 + 1) {
        eb_histogram_add(&one, ns);
        eb_histogram_add(&other, ns);
        eb_histogram_add(&other, ns + 7);
    }
    struct eb_histogram sum = one;
    eb_histogram_merge(&sum, &other);
    assert_int_equal(eb_histogram_count(&sum), 3 * eb_histogram_count(&one));
    assert_int_equal(sum.sum_ns, one.sum_ns + other.sum_ns);
    for (unsigned i = 0; i < EB_HISTOGRAM_RANGES; i++) {
        assert_int_equal(sum.counts[i], one.counts[i] + other.counts[i]);
    }
}

EB_TEST_GROUP(histogram)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_end_at_four_steps_to_a_power_of_two),
        cmocka_unit_test(a_time_falls_into_the_range_that_ends_at_it_or_next_after_it),
        cmocka_unit_test(counts_what_took_at_most_the_end_of_a_range),
        cmocka_unit_test(adds_what_another_has_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
