#include "server/net/conn_age.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define OPENED_MS UINT64_C(1000000)

static const struct eb_conn_age_limits never = {0};

static void ends_nothing_where_all_is_off(void **state)
{
    (void)state;
    struct eb_conn_age age;
    eb_conn_age_init(&age, &never, OPENED_MS, 7);
    for (uint64_t ms = 0; ms < 1000000000; ms += 1000000) {
        assert_int_equal(eb_conn_age_look(&age, &never, OPENED_MS + ms, 0, 0), EB_CONN_AGE_NOTHING);
    }
}

static void retires_a_connection_that_is_old_and_then_ends_it_step_by_step(void **state)
{
    static const struct eb_conn_age_limits limits = {
        .age_max_ms = 1000, .grace_ms = 50, .end_ms = 30};
    (void)state;
    struct eb_conn_age age;
    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    uint64_t old_ms = age.old_ms;
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms - 1, 3, 9), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms, 3, 9), EB_CONN_AGE_RETIRE);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms, 3, 9), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms + 49, 3, 9), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms + 50, 3, 9), EB_CONN_AGE_FINISH);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms + 79, 3, 9), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms + 80, 3, 9), EB_CONN_AGE_CUT);
    assert_int_equal(eb_conn_age_look(&age, &limits, old_ms + 999, 3, 9), EB_CONN_AGE_NOTHING);
}

static void lets_connections_grow_old_within_a_tenth_of_each_other(void **state)
{
    static const struct eb_conn_age_limits limits = {.age_max_ms = 10000};
    (void)state;
    uint64_t least_ms = UINT64_MAX;
    uint64_t most_ms = 0;
    for (uint64_t chance = 0; chance < 1000; chance++) {
        struct eb_conn_age age;
        eb_conn_age_init(&age, &limits, OPENED_MS, chance);
        uint64_t lives_ms = age.old_ms - OPENED_MS;
        least_ms = lives_ms < least_ms ? lives_ms : least_ms;
        most_ms = lives_ms > most_ms ? lives_ms : most_ms;
    }
    assert_in_range(least_ms, 9000, 9050);
    assert_in_range(most_ms, 10950, 11000);
}

/* The chances are like those of connections that are accepted in a row: 30 us apart, and one
 * descriptor further each time. */
static void lets_connections_that_opened_together_end_at_an_even_rate(void **state)
{
    static const struct eb_conn_age_limits limits = {.age_max_ms = 600000};
    enum { CONNS = 2000, PERIODS = 100 };
    unsigned counts[PERIODS] = {0};
    (void)state;
    for (uint64_t i = 0; i < CONNS; i++) {
        struct eb_conn_age age;
        eb_conn_age_init(&age, &limits, OPENED_MS, UINT64_C(123456789012) + i * 30001);
        uint64_t later_ms = age.old_ms - OPENED_MS - 540000;
        assert_in_range(later_ms, 0, 120000);
        counts[later_ms * PERIODS / 120001]++;
    }
    for (int i = 0; i < PERIODS; i++) {
        assert_in_range(counts[i], 0, 3 * CONNS / PERIODS);
    }
}

static void retires_a_connection_on_which_nobody_calls_who_is_known(void **state)
{
    static const struct eb_conn_age_limits limits = {.unknown_max_ms = 1000};
    (void)state;
    struct eb_conn_age age;
    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 999, 3, 9), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 1000, 3, 9), EB_CONN_AGE_RETIRE);
    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    age.is_known = true;
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 1000, 0, 0), EB_CONN_AGE_NOTHING);
}

static void takes_an_age_too_small_to_be_divided(void **state)
{
    static const struct eb_conn_age_limits limits = {.age_max_ms = 1};
    (void)state;
    struct eb_conn_age age;
    eb_conn_age_init(&age, &limits, OPENED_MS, UINT64_MAX);
    assert_int_equal(age.old_ms, OPENED_MS + 1);
}

static void retires_a_connection_without_calls(void **state)
{
    static const struct eb_conn_age_limits limits = {.idle_max_ms = 100};
    (void)state;
    struct eb_conn_age age;
    uint64_t ms = OPENED_MS;
    eb_conn_age_init(&age, &limits, ms, 7);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 0, 0), EB_CONN_AGE_NOTHING);
    /* A call is in flight. */
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 1, 1), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 500, 1, 1), EB_CONN_AGE_NOTHING);
    /* Another call has begun and ended since the last look. */
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 500, 0, 2), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 0, 2), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms + 1, 0, 2), EB_CONN_AGE_RETIRE);
}

static void asks_a_silent_peer_and_gives_it_up(void **state)
{
    static const struct eb_conn_age_limits limits = {.silence_ms = 100, .silence_more_ms = 20};
    (void)state;
    struct eb_conn_age age;
    uint64_t ms = OPENED_MS;
    eb_conn_age_init(&age, &limits, ms, 7);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 0, 0), EB_CONN_AGE_NOTHING);
    age.heard_ms = ms;
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 0, 0), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 1, 0, 0), EB_CONN_AGE_PING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 19, 0, 0), EB_CONN_AGE_NOTHING);
    age.heard_ms = ms;
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 99, 0, 0), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms += 1, 0, 0), EB_CONN_AGE_PING);
    assert_int_equal(eb_conn_age_look(&age, &limits, ms + 20, 0, 0), EB_CONN_AGE_DEAD);
}

static void counts_no_time_in_which_the_peer_was_not_read(void **state)
{
    static const struct eb_conn_age_limits limits = {
        .unknown_max_ms = 1000, .idle_max_ms = 2000, .silence_ms = 3000};
    (void)state;
    struct eb_conn_age age;
    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    eb_conn_age_postpone(&age, 500, OPENED_MS + 900);
    eb_conn_age_postpone(&age, 0, OPENED_MS + 1000);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 1499, 0, 0), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 1500, 0, 0), EB_CONN_AGE_RETIRE);

    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    age.is_known = true;
    eb_conn_age_postpone(&age, 700, OPENED_MS + 900);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 2699, 0, 0), EB_CONN_AGE_NOTHING);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 2700, 0, 0), EB_CONN_AGE_RETIRE);
    /* A postponement cannot move a start beyond the present. */
    eb_conn_age_init(&age, &limits, OPENED_MS, 7);
    age.is_known = true;
    eb_conn_age_postpone(&age, 100000, OPENED_MS + 10);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 2010, 0, 0), EB_CONN_AGE_RETIRE);
    assert_int_equal(eb_conn_age_look(&age, &limits, OPENED_MS + 3009, 3, 0), EB_CONN_AGE_FINISH);
}

EB_TEST_GROUP(conn_age)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_nothing_where_all_is_off),
        cmocka_unit_test(retires_a_connection_that_is_old_and_then_ends_it_step_by_step),
        cmocka_unit_test(lets_connections_grow_old_within_a_tenth_of_each_other),
        cmocka_unit_test(lets_connections_that_opened_together_end_at_an_even_rate),
        cmocka_unit_test(retires_a_connection_on_which_nobody_calls_who_is_known),
        cmocka_unit_test(takes_an_age_too_small_to_be_divided),
        cmocka_unit_test(retires_a_connection_without_calls),
        cmocka_unit_test(counts_no_time_in_which_the_peer_was_not_read),
        cmocka_unit_test(asks_a_silent_peer_and_gives_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
