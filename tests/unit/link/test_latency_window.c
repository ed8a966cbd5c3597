#include "proto/link/latency_window.h"

#include "proto/splitmix64.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define SAMPLES 5000

static struct eb_latency_summary summarise(struct eb_latency_window *window, uint64_t now_ns)
{
    struct eb_latency_summary summary;
    eb_latency_window_summarise(window, now_ns, &summary);
    return summary;
}

static void add_some(
    struct eb_latency_window *window, unsigned count, uint64_t latency_ns, uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        eb_latency_window_add(window, latency_ns, now_ns);
    }
}

static void has_no_latency_without_samples(void **state)
{
    (void)state;
    struct eb_latency_window window = {0};
    struct eb_latency_summary summary = summarise(&window, 100 * SECOND);
    assert_int_equal(summary.samples, 0);
    assert_int_equal(summary.p50_ns, 0);
    assert_int_equal(summary.p98_ns, 0);
    assert_int_equal(summary.minute_p50_ns, 0);
}

static int compare_samples(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Asserts that a quantile is near the exact one. */
static void assert_near(uint64_t ns, uint64_t exact_ns)
{
    assert_in_range(ns, exact_ns - exact_ns / 16, exact_ns + exact_ns / 16);
}

static uint64_t draw_sample(unsigned distribution, uint64_t *seed)
{
    double unit = ((double)(eb_splitmix64_next(seed) >> 11) + 0.5) * 0x1p-53;
    switch (distribution) {
    case 0: return 777777;                                     /* constant */
    case 1: return 100000 + (uint64_t)(unit * 900000);         /* uniform */
    case 2: return 200000 + (uint64_t)(-log(unit) * 300000);   /* exponential */
    case 3: return unit < 0.97 ? 300000 : 40 * MS;             /* two points */
    case 4: return (uint64_t)(100000 * pow(unit, -1.0 / 1.5)); /* heavy tail */
    default: return 1000000 + (uint64_t)(unit * unit * 50000); /* within one range */
    }
}

static void finds_quantiles_within_one_range(void **state)
{
    (void)state;
    static uint64_t samples_ns[SAMPLES];
    uint64_t seed = 7;
    for (unsigned distribution = 0; distribution < 6; distribution++) {
        struct eb_latency_window window = {0};
        for (unsigned i = 0; i < SAMPLES; i++) {
            samples_ns[i] = draw_sample(distribution, &seed);
            eb_latency_window_add(&window, samples_ns[i], 100 * SECOND + i * MS);
        }
        qsort(samples_ns, SAMPLES, sizeof samples_ns[0], compare_samples);
        struct eb_latency_summary summary = summarise(&window, 105 * SECOND);
        assert_int_equal(summary.samples, SAMPLES);
        assert_near(summary.p50_ns, samples_ns[SAMPLES / 2 - 1]);
        assert_near(summary.p98_ns, samples_ns[SAMPLES / 100 * 98 - 1]);
        assert_near(summary.minute_p50_ns, samples_ns[SAMPLES / 2 - 1]);
    }
}

/* Every power of two, one below and one above it, and all between the ends of the histogram. */
static void measures_each_latency_within_one_range(void **state)
{
    (void)state;
    for (unsigned bits = EB_LATENCY_SMALLEST_BITS; bits < EB_LATENCY_LARGEST_BITS; bits++) {
        for (unsigned i = 0; i < 3; i++) {
            uint64_t latency_ns = (UINT64_C(1) << bits) - 1 + i;
            struct eb_latency_window window = {0};
            eb_latency_window_add(&window, latency_ns, SECOND);
            assert_near(summarise(&window, SECOND).p98_ns, latency_ns);
        }
    }
}

static void counts_extreme_latencies_as_the_ends(void **state)
{
    (void)state;
    struct eb_latency_window window = {0};
    eb_latency_window_add(&window, 0, SECOND);
    eb_latency_window_add(&window, 1, SECOND);
    assert_in_range(summarise(&window, SECOND).p98_ns, 0, UINT64_C(1) << EB_LATENCY_SMALLEST_BITS);
    add_some(&window, 1000, UINT64_MAX, SECOND);
    assert_int_equal(summarise(&window, SECOND).p98_ns, UINT64_C(1) << EB_LATENCY_LARGEST_BITS);
}

static void forgets_within_ten_seconds(void **state)
{
    (void)state;
    struct eb_latency_window window = {0};
    add_some(&window, 100, 8 * MS, 10 * SECOND);
    add_some(&window, 10, MS, 17 * SECOND);
    assert_int_equal(summarise(&window, 20 * SECOND - 1).samples, 110);
    assert_int_equal(summarise(&window, 20 * SECOND).samples, 10);
    assert_near(summarise(&window, 20 * SECOND).p98_ns, MS);
    assert_int_equal(summarise(&window, 30 * SECOND).samples, 0);
    assert_int_equal(summarise(&window, 30 * SECOND).p98_ns, 0);
}

static void remembers_the_median_of_a_minute(void **state)
{
    (void)state;
    struct eb_latency_window window = {0};
    add_some(&window, 1000, MS, 100 * SECOND);
    for (uint64_t second = 101; second <= 130; second++) {
        add_some(&window, 30, 10 * MS, second * SECOND);
        struct eb_latency_summary summary = summarise(&window, second * SECOND);
        assert_near(summary.minute_p50_ns, MS);
        if (second >= 110) {
            assert_near(summary.p50_ns, 10 * MS);
        }
    }
    /* More than half of the minute's samples are slow now. */
    add_some(&window, 300, 10 * MS, 135 * SECOND);
    assert_near(summarise(&window, 135 * SECOND).minute_p50_ns, 10 * MS);
    assert_int_equal(summarise(&window, 210 * SECOND).minute_p50_ns, 0);
}

static void takes_pauses_and_time_that_goes_back(void **state)
{
    (void)state;
    static const uint64_t pauses_ns[] = {9 * SECOND, 57500 * MS, 60 * SECOND, 3600 * SECOND};
    for (size_t i = 0; i < sizeof pauses_ns / sizeof pauses_ns[0]; i++) {
        struct eb_latency_window window = {0};
        add_some(&window, 100, 4 * MS, 100 * SECOND);
        add_some(&window, 50, MS, 100 * SECOND + pauses_ns[i]);
        add_some(&window, 50, MS, 90 * SECOND);
        struct eb_latency_summary summary = summarise(&window, 100 * SECOND + pauses_ns[i]);
        assert_int_equal(summary.samples, i == 0 ? 200 : 100);
        assert_near(summary.minute_p50_ns, MS);
    }
}

/* A range's count is halved with all others before it overflows. */
static void keeps_quantiles_when_counts_are_halved(void **state)
{
    (void)state;
    static struct eb_latency_window window;
    for (unsigned i = 0; i < 100000; i++) {
        add_some(&window, 1, i % 25 == 0 ? 9 * MS : MS, SECOND);
    }
    struct eb_latency_summary summary = summarise(&window, SECOND);
    assert_int_equal(summary.samples, 100000);
    assert_near(summary.p50_ns, MS);
    assert_near(summary.p98_ns, 9 * MS);
}

EB_TEST_GROUP(latency_window)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_no_latency_without_samples),
        cmocka_unit_test(finds_quantiles_within_one_range),
        cmocka_unit_test(measures_each_latency_within_one_range),
        cmocka_unit_test(counts_extreme_latencies_as_the_ends),
        cmocka_unit_test(forgets_within_ten_seconds),
        cmocka_unit_test(remembers_the_median_of_a_minute),
        cmocka_unit_test(takes_pauses_and_time_that_goes_back),
        cmocka_unit_test(keeps_quantiles_when_counts_are_halved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
