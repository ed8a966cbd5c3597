/* Versions that requests pin, because they name them by their numbers. */
#include "tests/unit/models/registry_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TTL_MS UINT64_C(5000)
#define NEXT_WAIT_MS UINT64_C(60000)
/* Time after which a version that is no longer to be loaded no longer lacks memory. */
#define LACK_MS UINT64_C(600000)
#define NS_PER_MS UINT64_C(1000000)

static struct eb_registry_version *find_version(struct registry_fixture *fixture, uint64_t number)
{
    return eb_registry_find_version(eb_registry_find(&fixture->registry, "m"), number);
}

/* Names a version in memory. The time is then a whole second. */
static void name_version(struct registry_fixture *fixture, uint64_t number)
{
    fixture->now_ms += 1000 - fixture->now_ms % 1000;
    eb_model_version_note_named(
        find_version(fixture, number)->loaded, fixture->now_ms * NS_PER_MS - 1);
}

static enum eb_version_state find_state(struct registry_fixture *fixture, uint64_t number)
{
    return registry_fixture_state_of(fixture, "m", number);
}

/* Serves version 2, and keeps version 1 only if it is pinned. */
static void serve_second(struct registry_fixture *fixture, const char *config)
{
    fixture->registry.limits.pin_ttl_ms = TTL_MS;
    fixture->registry.limits.next_wait_ms = NEXT_WAIT_MS;
    registry_fixture_write_config(fixture, config);
    registry_fixture_begin_second(fixture);
    name_version(fixture, 1);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 2);
}

static void keeps_a_version_while_requests_name_it(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second(fixture, "versions: {keep: 1, keep_s: 0}\n");
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    assert_true(fixture->wake_ms == fixture->now_ms + TTL_MS);
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) == fixture->now_ms + TTL_MS);
    /* A later request does not wake the registry: it is found when the former pin would end. */
    fixture->now_ms += TTL_MS - 1000;
    name_version(fixture, 1);
    uint64_t end_ms = fixture->now_ms + TTL_MS;
    fixture->now_ms = fixture->wake_ms;
    registry_fixture_decide(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    assert_true(fixture->wake_ms == end_ms);
    fixture->now_ms = end_ms - 1;
    registry_fixture_follow(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    fixture->now_ms = end_ms;
    registry_fixture_decide(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_RETIRED);
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) == 0);
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 7) == 0);
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "n", 1) == 0);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
}

static void keeps_a_version_for_keep_s_after_its_pin(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second(fixture, "versions: {keep: 1}\n");
    uint64_t end_ms = fixture->now_ms + TTL_MS;
    fixture->now_ms = end_ms;
    registry_fixture_decide(fixture);
    assert_true(fixture->wake_ms == end_ms + KEEP_MS);
    fixture->now_ms = end_ms + KEEP_MS - 1;
    registry_fixture_decide(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    fixture->now_ms++;
    registry_fixture_decide(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_RETIRED);
}

static void evicts_no_pinned_version(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_versions_max = 1;
    fixture->registry.limits.kept_bytes_max = 1;
    serve_second(fixture, "versions: {keep: 1}\n");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/4");
    registry_fixture_follow(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    assert_int_equal(find_state(fixture, 2), EB_VERSION_RETIRED);
    assert_int_equal(find_state(fixture, 3), EB_VERSION_READY);
}

static void pins_nothing_with_pin_ttl_s_0_or_on_a_part_server(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second(fixture, "versions: {keep: 1, keep_s: 0}\n");
    fixture->registry.part = (struct eb_part_choice){.parts = 2};
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) == 0);
    fixture->registry.part = (struct eb_part_choice){0};
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) != 0);
    fixture->registry.limits.pin_ttl_ms = 0;
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) == 0);
    registry_fixture_decide(fixture);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_RETIRED);
}

static void gives_way_to_a_load_that_has_lacked_memory_for_long(void **state)
{
    struct registry_fixture *fixture = *state;
    struct eb_registry *registry = &fixture->registry;
    serve_second(fixture, "versions: {keep: 1, keep_s: 1}\n");
    registry->limits.pin_ttl_ms = 1000000;
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    uint64_t short_ms = fixture->now_ms;
    for (uint64_t wait_ms = 0; wait_ms < NEXT_WAIT_MS; wait_ms += NEXT_WAIT_MS - 1) {
        fixture->now_ms = short_ms + wait_ms;
        assert_int_equal(registry_fixture_next(fixture, "m"), 3);
        assert_false(eb_registry_make_room(registry, "m", VERSION_BYTES, fixture->now_ms));
        eb_registry_fail(registry, "m", 3, "short", EB_REGISTRY_SHORT);
        registry_fixture_decide(fixture);
        assert_true(fixture->wake_ms <= short_ms + NEXT_WAIT_MS);
        eb_registry_forgive_short(registry);
        registry_fixture_decide(fixture);
    }
    fixture->now_ms = short_ms + NEXT_WAIT_MS;
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    assert_false(eb_registry_make_room(registry, "m", VERSION_BYTES + 1, fixture->now_ms));
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    assert_true(eb_registry_make_room(registry, "m", VERSION_BYTES, fixture->now_ms));
    assert_int_equal(find_state(fixture, 1), EB_VERSION_RETIRED);
    assert_int_equal(find_state(fixture, 2), EB_VERSION_SERVING);
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_decide(fixture);
    /* The next load that lacks memory waits as long. */
    assert_int_equal(find_state(fixture, 2), EB_VERSION_READY);
    name_version(fixture, 2);
    fixture->now_ms += 2000;
    registry_fixture_make(fixture, "m/4");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 4);
    assert_false(eb_registry_make_room(registry, "m", VERSION_BYTES, fixture->now_ms));
}

/* Tries to load the version that is due, and fails for lack of memory. */
static void lack_memory(struct registry_fixture *fixture, uint64_t number)
{
    assert_int_equal(registry_fixture_next(fixture, "m"), number);
    assert_false(eb_registry_make_room(&fixture->registry, "m", VERSION_BYTES, fixture->now_ms));
    eb_registry_fail(&fixture->registry, "m", number, "short", EB_REGISTRY_SHORT);
    registry_fixture_decide(fixture);
}

/* Serves version 2 by command while version 1 is pinned, so that nothing else is to be loaded. */
static void serve_second_by_command(struct registry_fixture *fixture)
{
    serve_second(fixture, "versions: {keep: 1, keep_s: 1}\n");
    fixture->registry.limits.pin_ttl_ms = 10 * LACK_MS;
    eb_registry_find(&fixture->registry, "m")->commanded = 2;
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
}

static void forgets_a_lack_of_memory_with_the_load_that_had_it(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second_by_command(fixture);
    /* A command loads version 3, and is over when that fails. */
    find_version(fixture, 3)->is_held = true;
    lack_memory(fixture, 3);
    find_version(fixture, 3)->is_held = false;
    eb_registry_forgive_short(&fixture->registry);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    fixture->now_ms += LACK_MS > NEXT_WAIT_MS ? LACK_MS : NEXT_WAIT_MS;
    find_version(fixture, 3)->is_held = true;
    registry_fixture_decide(fixture);
    lack_memory(fixture, 3);
    assert_int_equal(find_state(fixture, 1), EB_VERSION_READY);
    fixture->now_ms += NEXT_WAIT_MS;
    eb_registry_forgive_short(&fixture->registry);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    assert_true(eb_registry_make_room(&fixture->registry, "m", VERSION_BYTES, fixture->now_ms));
}

static void remembers_a_lack_of_memory_between_attempts(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second_by_command(fixture);
    fixture->registry.limits.next_wait_ms = 3 * LACK_MS;
    /* The version of a router is not wanted in the pause after it has failed. */
    for (unsigned i = 0; i < 2; i++) {
        find_version(fixture, 3)->is_held = true;
        lack_memory(fixture, 3);
        find_version(fixture, 3)->is_held = false;
        registry_fixture_decide(fixture);
        fixture->now_ms += LACK_MS - 1;
        eb_registry_forgive_short(&fixture->registry);
        registry_fixture_decide(fixture);
    }
    /* A load may take any time. */
    find_version(fixture, 3)->is_held = true;
    registry_fixture_decide(fixture);
    fixture->now_ms += 2;
    lack_memory(fixture, 3);
    fixture->now_ms += LACK_MS;
    registry_fixture_decide(fixture);
    eb_registry_forgive_short(&fixture->registry);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    assert_true(eb_registry_make_room(&fixture->registry, "m", VERSION_BYTES, fixture->now_ms));
}

static void keeps_its_pin_when_it_is_loaded_again(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_second(fixture, "versions: {keep: 1, keep_s: 0}\n");
    uint64_t end_ms = eb_registry_pin_end_ms(&fixture->registry, "m", 1);
    find_version(fixture, 1)->is_loading = true;
    registry_fixture_put(fixture, "m", 1);
    assert_true(eb_registry_pin_end_ms(&fixture->registry, "m", 1) == end_ms);
}

#define PINS_TEST(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, registry_fixture_open, registry_fixture_close)

EB_TEST_GROUP(pins)
{
    const struct CMUnitTest tests[] = {
        PINS_TEST(keeps_a_version_while_requests_name_it),
        PINS_TEST(keeps_a_version_for_keep_s_after_its_pin),
        PINS_TEST(evicts_no_pinned_version),
        PINS_TEST(pins_nothing_with_pin_ttl_s_0_or_on_a_part_server),
        PINS_TEST(gives_way_to_a_load_that_has_lacked_memory_for_long),
        PINS_TEST(forgets_a_lack_of_memory_with_the_load_that_had_it),
        PINS_TEST(remembers_a_lack_of_memory_between_attempts),
        PINS_TEST(keeps_its_pin_when_it_is_loaded_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
