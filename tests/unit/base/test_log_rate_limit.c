#include "server/base/log_rate_limit.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOW_MS UINT64_C(5000000)

static uint32_t count_allowed(struct eb_log_rate_limit *limit, uint32_t asked, uint64_t now_ms)
{
    uint32_t allowed = 0;
    for (uint32_t i = 0; i < asked; i++) {
        allowed += eb_log_rate_limit_allows(limit, now_ms);
    }
    return allowed;
}

static void allows_some_lines_a_second(void **state)
{
    (void)state;
    struct eb_log_rate_limit limit = {0};
    assert_int_equal(
        count_allowed(&limit, EB_LOG_RATE_LIMIT_LINES, NOW_MS), EB_LOG_RATE_LIMIT_LINES);
    assert_int_equal(count_allowed(&limit, 1, NOW_MS + EB_LOG_RATE_LIMIT_MS - 1), 0);
    assert_int_equal(
        count_allowed(&limit, 1000, NOW_MS + EB_LOG_RATE_LIMIT_MS), EB_LOG_RATE_LIMIT_LINES);
}

static void allows_as_many_as_it_is_told(void **state)
{
    (void)state;
    struct eb_log_rate_limit limit = {.lines_max = 3};
    assert_int_equal(count_allowed(&limit, 1000, NOW_MS), 3);
    assert_int_equal(count_allowed(&limit, 1000, NOW_MS + EB_LOG_RATE_LIMIT_MS), 3);
    assert_int_equal(
        eb_log_rate_limit_take_left_out(&limit, NOW_MS + 2 * EB_LOG_RATE_LIMIT_MS), 2 * (1000 - 3));
}

static void counts_the_others_until_it_is_asked(void **state)
{
    (void)state;
    struct eb_log_rate_limit limit = {0};
    (void)count_allowed(&limit, EB_LOG_RATE_LIMIT_LINES, NOW_MS);
    assert_int_equal(eb_log_rate_limit_take_left_out(&limit, NOW_MS + EB_LOG_RATE_LIMIT_MS), 0);
    (void)count_allowed(&limit, 7, NOW_MS);
    assert_int_equal(eb_log_rate_limit_take_left_out(&limit, NOW_MS + EB_LOG_RATE_LIMIT_MS - 1), 0);
    assert_int_equal(eb_log_rate_limit_take_left_out(&limit, NOW_MS + EB_LOG_RATE_LIMIT_MS), 7);
    assert_int_equal(eb_log_rate_limit_take_left_out(&limit, NOW_MS + EB_LOG_RATE_LIMIT_MS), 0);
}

EB_TEST_GROUP(log_rate_limit)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allows_some_lines_a_second),
        cmocka_unit_test(allows_as_many_as_it_is_told),
        cmocka_unit_test(counts_the_others_until_it_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
