#include "proto/grpc_guard.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static size_t spend_all(struct eb_grpc_budget *budget)
{
    size_t count = 0;
    while (count < 100000 && eb_grpc_budget_spend_noise(budget)) {
        count++;
    }
    return count;
}

static void forgives_noise_with_time_and_with_calls(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    eb_grpc_budget_refill(&budget, 100000);
    size_t burst = spend_all(&budget);
    assert_in_range(burst, 500, 5000);
    eb_grpc_budget_refill(&budget, 100099);
    assert_int_equal(spend_all(&budget), 0);
    eb_grpc_budget_refill(&budget, 100100);
    assert_int_equal(spend_all(&budget), 1);
    eb_grpc_budget_refill(&budget, 102100);
    assert_int_equal(spend_all(&budget), 20);
    eb_grpc_budget_refill(&budget, UINT64_C(1) << 60);
    assert_int_equal(spend_all(&budget), burst);
    eb_grpc_budget_calm(&budget);
    assert_int_equal(spend_all(&budget), burst);
}

/* Sends a ping `gap_ms` after the previous one. Returns whether the budget allows it. */
static bool spend_ping(struct eb_grpc_budget *budget, uint64_t gap_ms)
{
    static uint64_t now_ms = 1000;
    now_ms += gap_ms;
    return eb_grpc_budget_spend_ping(budget, now_ms, 100);
}

static void takes_pings_that_keep_their_distance_for_ever(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_true(spend_ping(&budget, 100));
    }
}

static void strikes_a_peer_out_whose_pings_come_too_soon(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    assert_true(spend_ping(&budget, 0));
    assert_true(spend_ping(&budget, 99));
    assert_true(spend_ping(&budget, 100));
    assert_true(spend_ping(&budget, 99));
    assert_false(spend_ping(&budget, 99));
}

static void forgives_pings_when_something_is_sent(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_true(spend_ping(&budget, 0));
        assert_true(spend_ping(&budget, 0));
        assert_true(spend_ping(&budget, 0));
        eb_grpc_budget_calm(&budget);
    }
    assert_true(eb_grpc_budget_spend_ping(&budget, 1, 0));
}

static void counts_resets_against_normal_ends(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 2, 1000);
    eb_grpc_budget_earn_reset(&budget);
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_false(eb_grpc_budget_spend_reset(&budget));
    eb_grpc_budget_earn_reset(&budget);
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_false(eb_grpc_budget_spend_reset(&budget));
}

/* Spends resets at a steady pace from `from_ms`. Returns how many of `count` pass. */
static size_t reset_at_pace(
    struct eb_grpc_budget *budget, uint64_t from_ms, size_t per_second, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        eb_grpc_budget_refill(budget, from_ms + i * 1000 / per_second);
        if (!eb_grpc_budget_spend_reset(budget)) {
            return i;
        }
    }
    return count;
}

static void lets_a_client_cancel_at_a_steady_pace_for_ever(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 4000, 1000);
    assert_int_equal(reset_at_pace(&budget, 7000, 750, 12000), 12000);
    assert_int_equal(reset_at_pace(&budget, 23000, 1000, 12000), 12000);
    /* A faster pace uses up the rest of the budget. */
    assert_in_range(reset_at_pace(&budget, 35000, 4000, 12000), 5000, 5400);
}

static void refills_resets_with_time_and_to_the_brim_only(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    assert_int_equal(reset_at_pace(&budget, 9000, 1000000, 7), 5);
    eb_grpc_budget_refill(&budget, 9000);
    assert_false(eb_grpc_budget_spend_reset(&budget));
    assert_int_equal(reset_at_pace(&budget, 9001, 1000000, 7), 1);
    assert_int_equal(reset_at_pace(&budget, UINT64_C(1) << 60, 1000000, 7), 5);
}

static void forgives_large_header_blocks_with_time(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5, 1000);
    eb_grpc_budget_refill(&budget, 9000);
    assert_true(eb_grpc_budget_spend_excess(&budget, 3000));
    assert_true(eb_grpc_budget_spend_excess(&budget, 0));
    assert_false(eb_grpc_budget_spend_excess(&budget, 1));
    /* Time counts even if refills are a millisecond apart. */
    for (uint64_t ms = 9000; ms <= 9500; ms++) {
        eb_grpc_budget_refill(&budget, ms);
    }
    assert_true(eb_grpc_budget_spend_excess(&budget, 500));
    assert_false(eb_grpc_budget_spend_excess(&budget, 1));
    eb_grpc_budget_refill(&budget, UINT64_C(1) << 60);
    assert_true(eb_grpc_budget_spend_excess(&budget, 3000));
    assert_false(eb_grpc_budget_spend_excess(&budget, 1));
    /* When a call makes progress, noise is forgiven, but header blocks are not. */
    eb_grpc_budget_calm(&budget);
    assert_false(eb_grpc_budget_spend_excess(&budget, 1));
}

EB_TEST_GROUP(grpc_budget)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgives_noise_with_time_and_with_calls),
        cmocka_unit_test(takes_pings_that_keep_their_distance_for_ever),
        cmocka_unit_test(strikes_a_peer_out_whose_pings_come_too_soon),
        cmocka_unit_test(forgives_pings_when_something_is_sent),
        cmocka_unit_test(counts_resets_against_normal_ends),
        cmocka_unit_test(lets_a_client_cancel_at_a_steady_pace_for_ever),
        cmocka_unit_test(refills_resets_with_time_and_to_the_brim_only),
        cmocka_unit_test(forgives_large_header_blocks_with_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
