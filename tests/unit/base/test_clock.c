#include "server/base/clock.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static void tells_the_time_of_both_clocks(void **state)
{
    (void)state;
    struct timespec before;
    struct timespec behind;
    clock_gettime(CLOCK_REALTIME, &before);
    uint64_t unix_ms = eb_clock_unix_ms();
    clock_gettime(CLOCK_REALTIME, &behind);
    assert_in_range(unix_ms / 1000, before.tv_sec, behind.tv_sec);
    clock_gettime(CLOCK_MONOTONIC, &before);
    uint64_t steady_ms = eb_clock_steady_ms();
    clock_gettime(CLOCK_MONOTONIC, &behind);
    assert_in_range(steady_ms / 1000, before.tv_sec, behind.tv_sec);
    uint64_t steady_ns = eb_clock_steady_ns();
    assert_in_range(steady_ns / 1000000, steady_ms, eb_clock_steady_ms());
}

static void does_not_run_back(void **state)
{
    (void)state;
    uint64_t last_ms = eb_clock_steady_ms();
    uint64_t end_ms = last_ms + 5;
    while (last_ms < end_ms) {
        uint64_t now_ms = eb_clock_steady_ms();
        assert_true(now_ms >= last_ms);
        last_ms = now_ms;
    }
}

EB_TEST_GROUP(clock)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_time_of_both_clocks),
        cmocka_unit_test(does_not_run_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
