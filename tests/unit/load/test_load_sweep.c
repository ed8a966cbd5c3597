#include "client/cli/load_sweep.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Returns whether the load is saturated in a second in which `due` requests were due and `answers`
 * were answered, each after `us` microseconds. */
static bool is_saturated(uint64_t due, uint64_t answers, uint64_t us)
{
    struct eb_load_result *result = calloc(1, sizeof *result);
    assert_non_null(result);
    struct eb_load_stats *stats = &result->stats;
    result->seconds = 1;
    result->rate = (double)due;
    stats->by_status[0] = answers;
    stats->unsent_count = due - answers;
    stats->window_answers = answers;
    for (uint64_t i = 0; i < answers; i++) {
        eb_load_histogram_add(&stats->latency, us * 1000);
    }
    bool is = eb_load_sweep_is_saturated(result);
    free(result);
    return is;
}

static void keeps_up_where_nearly_all_is_answered(void **state)
{
    (void)state;
    assert_false(is_saturated(1000, 1000, 100));
    assert_false(is_saturated(1000, 960, 100));
}

static void is_saturated_where_answers_are_missing(void **state)
{
    (void)state;
    assert_true(is_saturated(1000, 900, 100));
    assert_true(is_saturated(1000, 0, 0));
}

static void forgives_what_is_on_its_way_at_the_end(void **state)
{
    (void)state;
    /* Of 100 requests a second that take 50 ms each, about five are in flight. */
    assert_false(is_saturated(100, 92, 50000));
    assert_true(is_saturated(100, 80, 500000));
}

EB_TEST_GROUP(load_sweep)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_up_where_nearly_all_is_answered),
        cmocka_unit_test(is_saturated_where_answers_are_missing),
        cmocka_unit_test(forgives_what_is_on_its_way_at_the_end),
    };
    return cmocka_run_group_tests_name("load_sweep", tests, NULL, NULL);
}
