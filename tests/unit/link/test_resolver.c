#include "proto/link/resolver.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOUR_NS UINT64_C(3600000000000)

struct resolver_fixture {
    uv_loop_t uv;
    struct eb_targets targets;
    struct eb_resolver resolver;
    unsigned result_count; /* resolutions that have ended */
    uint32_t address_count;
};

static void note_results(void *context, const struct eb_resolver_result *results)
{
    struct resolver_fixture *fixture = context;
    fixture->result_count++;
    fixture->address_count = results[0].count;
}

/* Opens a resolver that looks a name up every hour. */
static int open_resolver(void **state)
{
    struct resolver_fixture *fixture = calloc(1, sizeof *fixture);
    struct eb_error error;
    assert_non_null(fixture);
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    assert_true(eb_targets_parse("localhost:1", &fixture->targets, &error));
    fixture->resolver = (struct eb_resolver){.targets = &fixture->targets,
        .interval_ns = HOUR_NS,
        .on_results = note_results,
        .context = fixture};
    assert_int_equal(eb_resolver_open(&fixture->resolver, &fixture->uv), 0);
    *state = fixture;
    return 0;
}

static int close_resolver(void **state)
{
    struct resolver_fixture *fixture = *state;
    eb_resolver_close(&fixture->resolver);
    (void)uv_run(&fixture->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    eb_targets_free(&fixture->targets);
    free(fixture);
    return 0;
}

/* Starts the resolution that is due. */
static void begin_look_up(struct resolver_fixture *fixture, uint64_t now_ns)
{
    assert_int_equal(eb_resolver_run(&fixture->resolver, now_ns), UINT64_MAX);
}

static void await_results(struct resolver_fixture *fixture, unsigned count)
{
    while (fixture->result_count < count) {
        (void)uv_run(&fixture->uv, UV_RUN_ONCE);
    }
    assert_true(fixture->address_count >= 1);
}

/* Returns the time from the end of the last resolution to the next one. */
static uint64_t find_pause(struct resolver_fixture *fixture)
{
    uint64_t ended_ns = fixture->resolver.ended_ns;
    return eb_resolver_run(&fixture->resolver, ended_ns) - ended_ns;
}

static void looks_up_again_after_the_interval(void **state)
{
    struct resolver_fixture *fixture = *state;
    begin_look_up(fixture, uv_hrtime());
    await_results(fixture, 1);
    uint64_t pause_ns = find_pause(fixture);
    assert_in_range(pause_ns, HOUR_NS / 5 * 4, HOUR_NS / 5 * 6);
    begin_look_up(fixture, fixture->resolver.ended_ns + pause_ns);
    await_results(fixture, 2);
}

static void looks_up_soon_after_a_loss(void **state)
{
    struct resolver_fixture *fixture = *state;
    begin_look_up(fixture, uv_hrtime());
    await_results(fixture, 1);
    eb_resolver_hurry(&fixture->resolver);
    assert_int_equal(find_pause(fixture), EB_RESOLVER_PAUSE_NS);
}

static void looks_up_soon_after_a_loss_during_a_look_up(void **state)
{
    struct resolver_fixture *fixture = *state;
    begin_look_up(fixture, uv_hrtime());
    /* What is being resolved may have been right before the loss. */
    eb_resolver_hurry(&fixture->resolver);
    await_results(fixture, 1);
    assert_int_equal(find_pause(fixture), EB_RESOLVER_PAUSE_NS);
    begin_look_up(fixture, fixture->resolver.ended_ns + EB_RESOLVER_PAUSE_NS);
    await_results(fixture, 2);
    assert_true(find_pause(fixture) >= HOUR_NS / 5 * 4);
}

static void drops_a_look_up_that_is_under_way_when_it_is_closed(void **state)
{
    struct resolver_fixture *fixture = *state;
    begin_look_up(fixture, uv_hrtime());
}

EB_TEST_GROUP(resolver)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            looks_up_again_after_the_interval, open_resolver, close_resolver),
        cmocka_unit_test_setup_teardown(looks_up_soon_after_a_loss, open_resolver, close_resolver),
        cmocka_unit_test_setup_teardown(
            looks_up_soon_after_a_loss_during_a_look_up, open_resolver, close_resolver),
        cmocka_unit_test_setup_teardown(
            drops_a_look_up_that_is_under_way_when_it_is_closed, open_resolver, close_resolver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
