#include "server/stats/hot_rows.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define WINDOW EB_INDEX_SAMPLER_WINDOW_NS
#define SAMPLES EB_INDEX_SAMPLER_WINDOW_SAMPLES
#define POSITIONS 26
#define START_NS UINT64_C(5000000000000)

static uint64_t taken[POSITIONS]; /* number of samples, by position in the request */

/* Passes a request of `count` indices. Returns how many of them were sampled. */
static uint64_t pass(struct eb_index_sampler *sampler, uint64_t count, uint64_t now_ns)
{
    uint64_t found = 0;
    if (!eb_index_sampler_pass(sampler, count, now_ns)) {
        return 0;
    }
    while (sampler->skip < count) {
        taken[sampler->skip % POSITIONS]++;
        sampler->skip += eb_index_sampler_step(sampler);
        found++;
    }
    sampler->skip -= count;
    return found;
}

static uint64_t pass_window(
    struct eb_index_sampler *sampler, uint64_t requests, uint64_t count, uint64_t begin_ns)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < requests; i++) {
        found += pass(sampler, count, begin_ns + i * WINDOW / requests);
    }
    return found;
}

static void looks_at_all_where_few_come(void **state)
{
    (void)state;
    struct eb_index_sampler sampler;
    eb_index_sampler_init(&sampler);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(pass(&sampler, 5, START_NS + i * WINDOW), 5);
        assert_int_equal(pass(&sampler, 0, START_NS + i * WINDOW), 0);
    }
}

static void looks_at_a_bounded_number_whatever_comes(void **state)
{
    (void)state;
    struct eb_index_sampler sampler;
    eb_index_sampler_init(&sampler);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t begin_ns = START_NS * (i + 1);
        /* Few indices arrive, so that everything that comes next would be sampled. */
        (void)pass(&sampler, 1, begin_ns);
        assert_int_equal(pass(&sampler, 1, begin_ns + WINDOW), 1);
        assert_int_equal(pass(&sampler, UINT64_C(1) << 40, begin_ns + 2 * WINDOW), SAMPLES);
        assert_int_equal(pass(&sampler, UINT64_C(1) << 40, begin_ns + 3 * WINDOW - 1), 0);
    }
}

static void spreads_samples_over_the_window(void **state)
{
    (void)state;
    struct eb_index_sampler sampler;
    eb_index_sampler_init(&sampler);
    pass_window(&sampler, 4000, 250, START_NS);
    for (uint64_t window = 1; window < 4; window++) {
        for (uint64_t quarter = 0; quarter < 4; quarter++) {
            uint64_t found = 0;
            for (uint64_t i = 0; i < 1000; i++) {
                uint64_t at = quarter * 1000 + i;
                found += pass(&sampler, 250, START_NS + window * WINDOW + at * WINDOW / 4000);
            }
            assert_in_range(found, SAMPLES / 4 * 3 / 5, SAMPLES / 4 * 7 / 5);
        }
    }
}

static void prefers_no_place_of_regular_requests(void **state)
{
    (void)state;
    struct eb_index_sampler sampler;
    eb_index_sampler_init(&sampler);
    pass_window(&sampler, 2048, POSITIONS, START_NS);
    memset(taken, 0, sizeof taken);
    uint64_t found = 0;
    for (uint64_t window = 1; window <= 200; window++) {
        found += pass_window(&sampler, 2048, POSITIONS, START_NS + window * WINDOW);
    }
    for (size_t i = 0; i < POSITIONS; i++) {
        assert_in_range(taken[i], found / POSITIONS * 9 / 10, found / POSITIONS * 11 / 10);
    }
}

EB_TEST_GROUP(index_sampler)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_at_all_where_few_come),
        cmocka_unit_test(looks_at_a_bounded_number_whatever_comes),
        cmocka_unit_test(spreads_samples_over_the_window),
        cmocka_unit_test(prefers_no_place_of_regular_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
