#include "client/cli/sampler.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void comes_as_often_as_the_rate_says(void **state)
{
    (void)state;
    static const double rates[] = {0.5, 1000, 1e6};
    enum { COUNT = 200000 };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct eb_load_arrival arrival;
        uint64_t last_ns = 0;
        eb_load_arrival_init(&arrival, rates[i], 7);
        for (unsigned n = 0; n < COUNT; n++) {
            uint64_t next_ns = eb_load_arrival_next_ns(&arrival);
            assert_true(next_ns >= last_ns);
            last_ns = next_ns;
        }
        /* Five standard deviations. */
        double rate = COUNT / ((double)last_ns / 1e9);
        assert_true(fabs(rate / rates[i] - 1) < 5 / sqrt(COUNT));
    }
}

/* In a Poisson process, a share of exp(-k) of the gaps is longer than k times the mean. */
static void has_gaps_without_memory(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    struct eb_load_arrival arrival;
    unsigned above[4] = {0};
    uint64_t last_ns = 0;
    eb_load_arrival_init(&arrival, 1000, 3);
    for (unsigned n = 0; n < COUNT; n++) {
        uint64_t next_ns = eb_load_arrival_next_ns(&arrival);
        for (unsigned k = 0; k < 4; k++) {
            above[k] += (double)(next_ns - last_ns) > k * 1e6;
        }
        last_ns = next_ns;
    }
    for (unsigned k = 1; k < 4; k++) {
        double wanted = exp(-(double)k);
        assert_true(fabs((double)above[k] / COUNT - wanted) < 5 * sqrt(wanted / COUNT));
    }
}

static void repeats_itself_from_the_same_seed(void **state)
{
    (void)state;
    struct eb_load_arrival one;
    struct eb_load_arrival again;
    struct eb_load_arrival other;
    eb_load_arrival_init(&one, 100, 1);
    eb_load_arrival_init(&again, 100, 1);
    eb_load_arrival_init(&other, 100, 2);
    unsigned equal = 0;
    for (unsigned n = 0; n < 100; n++) {
        uint64_t next_ns = eb_load_arrival_next_ns(&one);
        assert_int_equal(next_ns, eb_load_arrival_next_ns(&again));
        equal += next_ns == eb_load_arrival_next_ns(&other);
    }
    assert_true(equal < 10);
}

EB_TEST_GROUP(load_arrival)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_as_often_as_the_rate_says),
        cmocka_unit_test(has_gaps_without_memory),
        cmocka_unit_test(repeats_itself_from_the_same_seed),
    };
    return cmocka_run_group_tests_name("load_arrival", tests, NULL, NULL);
}
