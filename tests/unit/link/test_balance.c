#include "tests/unit/link/server_simulation.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

/* Three servers with four threads each. At this rate they are busy for half of the time. */
#define HALF_LOAD 20000

static const struct eb_sim_settings DEFAULTS = {.servers = 3,
    .calls_per_second = HALF_LOAD,
    .service_ns = 300000,
    .timeout_ns = SECOND,
    .hedge_percent = EB_HEDGE_PERCENT,
    .seed = 1};

static int set_up(void **state)
{
    *state = eb_sim_create(&DEFAULTS);
    return 0;
}

static int set_up_few_calls(void **state)
{
    struct eb_sim_settings settings = DEFAULTS;
    settings.calls_per_second = 1000;
    *state = eb_sim_create(&settings);
    return 0;
}

static int set_up_without_hedges(void **state)
{
    struct eb_sim_settings settings = DEFAULTS;
    settings.calls_per_second = 1000;
    settings.hedge_percent = 0;
    *state = eb_sim_create(&settings);
    return 0;
}

static int tear_down(void **state)
{
    eb_sim_destroy(*state);
    return 0;
}

static void set_modes(struct eb_sim *sim, uint32_t servers, enum eb_sim_mode mode)
{
    for (uint32_t i = 0; i < servers; i++) {
        eb_sim_server(sim, i)->mode = mode;
    }
}

static void gives_equal_servers_equal_shares(void **state)
{
    struct eb_sim *sim = *state;
    (void)eb_sim_run(sim, 5 * SECOND);
    struct eb_sim_counts counts = eb_sim_run(sim, 10 * SECOND);
    assert_in_range(counts.calls, 195000, 205000);
    assert_int_equal(counts.failed, 0);
    assert_true(counts.hedges * 100 <= counts.calls * EB_HEDGE_PERCENT);
    for (uint32_t i = 0; i < 3; i++) {
        assert_in_range(eb_sim_share(sim, i), 317, 350);
    }
}

/* Its errors come six times as fast as answers. */
static void gives_a_failing_server_hardly_anything(void **state)
{
    struct eb_sim *sim = *state;
    (void)eb_sim_run(sim, 2 * SECOND);
    eb_sim_server(sim, 1)->mode = EB_SIM_FAILS;
    assert_int_equal(eb_sim_run(sim, SECOND).failed, 0);
    assert_in_range(eb_sim_share(sim, 1), 0, 30);
    assert_int_equal(eb_sim_run(sim, 10 * SECOND).failed, 0);
    assert_in_range(eb_sim_share(sim, 1), 0, 19);
}

static void gives_a_slow_server_little(void **state)
{
    struct eb_sim *sim = *state;
    (void)eb_sim_run(sim, 2 * SECOND);
    eb_sim_server(sim, 1)->slowness = 10;
    (void)eb_sim_run(sim, SECOND);
    (void)eb_sim_run(sim, 10 * SECOND);
    assert_in_range(eb_sim_share(sim, 1), 0, 80);
    eb_sim_server(sim, 1)->slowness = 1;
    (void)eb_sim_run(sim, SECOND);
    (void)eb_sim_run(sim, 10 * SECOND);
    assert_in_range(eb_sim_share(sim, 1), 300, 367);
}

static void gives_a_new_server_more_and_more(void **state)
{
    struct eb_sim *sim = *state;
    static const uint32_t shares_max[] = {60, 100, 140, 190, 245, 310};
    eb_sim_leave(sim, 2);
    (void)eb_sim_run(sim, 12 * SECOND);
    assert_int_equal(eb_sim_share(sim, 2), 0);
    eb_sim_join(sim, 2);
    uint32_t before = 0;
    for (size_t i = 0; i < sizeof shares_max / sizeof shares_max[0]; i++) {
        (void)eb_sim_run(sim, SECOND);
        uint32_t share = eb_sim_share(sim, 2);
        assert_in_range(share, 4, shares_max[i]);
        assert_true(share + 30 >= before);
        before = share;
    }
    (void)eb_sim_run(sim, 4 * SECOND);
    (void)eb_sim_run(sim, 20 * SECOND);
    assert_in_range(eb_sim_share(sim, 2), 300, 367);
}

static void loses_no_call_when_a_server_stops(void **state)
{
    struct eb_sim *sim = *state;
    (void)eb_sim_run(sim, 12 * SECOND);
    eb_sim_server(sim, 2)->mode = EB_SIM_STOPS;
    struct eb_sim_counts counts = eb_sim_run(sim, 5 * SECOND);
    assert_int_equal(counts.failed, 0);
    assert_true(eb_sim_server(sim, 2)->replica.suspicion.is_suspect);
    /* Those that were in flight, and a few. */
    assert_true(counts.slow * 1000 <= counts.calls);
    eb_sim_server(sim, 2)->mode = EB_SIM_SERVES;
    (void)eb_sim_run(sim, 2 * SECOND);
    assert_int_equal(eb_sim_run(sim, 10 * SECOND).failed, 0);
    assert_in_range(eb_sim_share(sim, 2), 300, 367);
}

static void hedges_hardly_when_all_are_slow(void **state)
{
    struct eb_sim *sim = *state;
    struct eb_sim_counts counts = eb_sim_run(sim, 30 * SECOND);
    assert_true(counts.hedges * 100 >= counts.calls);
    for (uint32_t i = 0; i < 3; i++) {
        eb_sim_server(sim, i)->slowness = 10;
    }
    (void)eb_sim_run(sim, 10 * SECOND);
    counts = eb_sim_run(sim, 15 * SECOND);
    assert_int_equal(counts.failed, 0);
    assert_true(counts.hedges * 100 <= counts.calls);
}

/* While all fail, at most half are ejected, and the others get the calls. */
static void sends_few_calls_again_when_all_refuse(void **state)
{
    struct eb_sim *sim = *state;
    static const enum eb_sim_mode modes[] = {EB_SIM_REFUSES, EB_SIM_FAILS};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        (void)eb_sim_run(sim, 5 * SECOND);
        set_modes(sim, 3, modes[i]);
        struct eb_sim_counts counts = eb_sim_run(sim, 15 * SECOND);
        assert_true(counts.attempts * 10 <= counts.calls * 12);
        assert_true(eb_replica_group_excluded(eb_sim_group(sim)) <= 1);
        set_modes(sim, 3, EB_SIM_SERVES);
        (void)eb_sim_run(sim, 2 * SECOND);
        assert_int_equal(eb_sim_run(sim, SECOND).failed, 0);
    }
}

EB_TEST_GROUP(balance)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gives_equal_servers_equal_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            gives_a_failing_server_hardly_anything, set_up_few_calls, tear_down),
        cmocka_unit_test_setup_teardown(
            gives_a_slow_server_little, set_up_without_hedges, tear_down),
        cmocka_unit_test_setup_teardown(
            gives_a_new_server_more_and_more, set_up_few_calls, tear_down),
        cmocka_unit_test_setup_teardown(
            loses_no_call_when_a_server_stops, set_up_few_calls, tear_down),
        cmocka_unit_test_setup_teardown(
            hedges_hardly_when_all_are_slow, set_up_few_calls, tear_down),
        cmocka_unit_test_setup_teardown(
            sends_few_calls_again_when_all_refuse, set_up_few_calls, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
