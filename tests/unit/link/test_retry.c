#include "proto/link/retry.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define NOW_NS (1000 * MS)

static const struct eb_retry_case lost = {
    .status = EB_STATUS_UNAVAILABLE,
    .attempts = 1,
    .retries_max = 2,
    .now_ns = NOW_NS,
    .deadline_ns = NOW_NS + 10000 * MS,
};

static void pauses_twice_as_long_each_time_up_to_a_second(void **state)
{
    (void)state;
    static const uint64_t pauses_ms[] = {10, 20, 40, 80, 160, 320, 640, 1000, 1000};
    for (uint32_t i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        assert_int_equal(eb_retry_pause_ns(i + 1, 0), pauses_ms[i] * MS);
        assert_in_range(eb_retry_pause_ns(i + 1, UINT32_MAX), pauses_ms[i] * MS / 2,
            pauses_ms[i] * MS / 2 + MS);
    }
    assert_int_equal(eb_retry_pause_ns(UINT32_MAX, 0), 1000 * MS);
}

static void tries_again_what_was_lost_as_often_as_allowed(void **state)
{
    (void)state;
    struct eb_retry_case failure = lost;
    assert_int_equal(eb_retry_at_ns(&failure, 0), NOW_NS + 10 * MS);
    failure.attempts = 2;
    assert_int_equal(eb_retry_at_ns(&failure, 0), NOW_NS + 20 * MS);
    failure.attempts = 3;
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
    failure.attempts = 1;
    failure.retries_max = 0;
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
}

static void waits_as_long_as_the_server_asks_and_by_chance_a_quarter_more(void **state)
{
    (void)state;
    struct eb_retry_case failure = lost;
    failure.status = EB_STATUS_RESOURCE_EXHAUSTED;
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
    failure.retry_after_ms = 400;
    assert_int_equal(eb_retry_at_ns(&failure, 0), NOW_NS + 400 * MS);
    assert_in_range(eb_retry_at_ns(&failure, UINT32_MAX), NOW_NS + 499 * MS, NOW_NS + 500 * MS);
    failure.retry_after_ms = UINT32_MAX;
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
}

static void does_not_try_what_would_come_too_late(void **state)
{
    (void)state;
    struct eb_retry_case failure = lost;
    failure.deadline_ns = NOW_NS + 10 * MS;
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
    failure.deadline_ns++;
    assert_int_equal(eb_retry_at_ns(&failure, 0), NOW_NS + 10 * MS);
}

static void takes_every_other_failure_as_final(void **state)
{
    (void)state;
    static const enum eb_status statuses[] = {
#define X(name, number) EB_STATUS_##name,
        EB_STATUS_LIST(X)
#undef X
    };
    struct eb_retry_case failure = lost;
    failure.retry_after_ms = 1;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        failure.status = statuses[i];
        bool again =
            statuses[i] == EB_STATUS_UNAVAILABLE || statuses[i] == EB_STATUS_RESOURCE_EXHAUSTED;
        assert_int_equal(eb_retry_at_ns(&failure, 0) != EB_RETRY_NEVER, again);
    }
}

static void moves_from_a_server_that_lacks_the_version(void **state)
{
    (void)state;
    struct eb_retry_case failure = lost;
    failure.status = EB_STATUS_NOT_FOUND;
    assert_false(eb_retry_may_move(&failure));
    failure.names_version = true;
    assert_true(eb_retry_may_move(&failure));
    /* The same server will not have it soon. */
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
}

static void moves_from_a_server_that_would_answer_too_late(void **state)
{
    (void)state;
    struct eb_retry_case failure = lost;
    failure.status = EB_STATUS_DEADLINE_EXCEEDED;
    assert_false(eb_retry_may_move(&failure));
    failure.retry_after_ms = 1;
    assert_true(eb_retry_may_move(&failure));
    assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
}

static void moves_from_a_broken_replica(void **state)
{
    (void)state;
    static const enum eb_status statuses[] = {EB_STATUS_INTERNAL, EB_STATUS_UNAUTHENTICATED,
        EB_STATUS_FAILED_PRECONDITION, EB_STATUS_CANCELLED, EB_STATUS_UNKNOWN};
    static const enum eb_status of_requests[] = {EB_STATUS_INVALID_ARGUMENT, EB_STATUS_OUT_OF_RANGE,
        EB_STATUS_NOT_FOUND, EB_STATUS_RESOURCE_EXHAUSTED, EB_STATUS_DEADLINE_EXCEEDED};
    struct eb_retry_case failure = lost;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        failure.status = statuses[i];
        failure.has_replicas = false;
        assert_false(eb_retry_may_move(&failure));
        failure.has_replicas = true;
        assert_true(eb_retry_may_move(&failure));
        assert_int_equal(eb_retry_at_ns(&failure, 0), EB_RETRY_NEVER);
        failure.status = of_requests[i];
        assert_false(eb_retry_may_move(&failure));
    }
}

EB_TEST_GROUP(retry)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_twice_as_long_each_time_up_to_a_second),
        cmocka_unit_test(tries_again_what_was_lost_as_often_as_allowed),
        cmocka_unit_test(waits_as_long_as_the_server_asks_and_by_chance_a_quarter_more),
        cmocka_unit_test(does_not_try_what_would_come_too_late),
        cmocka_unit_test(takes_every_other_failure_as_final),
        cmocka_unit_test(moves_from_a_server_that_lacks_the_version),
        cmocka_unit_test(moves_from_a_server_that_would_answer_too_late),
        cmocka_unit_test(moves_from_a_broken_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
