#include "tests/unit/models/registry_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void leaves_the_old_one_where_the_new_one_fails(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_begin_second(fixture);
    fixture->told[0] = '\0';
    eb_registry_fail(&fixture->registry, "m", 2, "broken", EB_REGISTRY_BROKEN);
    assert_string_equal(fixture->told, "failed m 2 broken\n");
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_FAILED);
    /* The failed version is not tried again until its directory changes. */
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_make(fixture, "m/2/x");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 2);
}

static void tries_again_what_lacked_memory_when_some_is_freed(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/3");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/4");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 4);
    eb_registry_fail(&fixture->registry, "m", 4, "too large", EB_REGISTRY_SHORT);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_drop(&fixture->registry, model, eb_registry_find_version(model, 2));
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_registry_note_unloaded(&fixture->registry, "m", 2);
    assert_int_equal(registry_fixture_next(fixture, "m"), 4);
    eb_registry_fail(&fixture->registry, "m", 4, NULL, EB_REGISTRY_BROKEN);
    assert_int_equal(registry_fixture_next(fixture, "m"), 4);
}

static void counts_loads_that_are_done_and_those_that_failed(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_fail(&fixture->registry, "m", 2, NULL, EB_REGISTRY_BROKEN); /* NULL: given up */
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_fail(&fixture->registry, "m", 2, "broken", EB_REGISTRY_BROKEN);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_drop(&fixture->registry, model, eb_registry_find_version(model, 1));
    eb_registry_note_unloaded(&fixture->registry, "m", 1);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->loads.done, 1);
    assert_int_equal(snapshot->loads.failed, 1);
    assert_int_equal(snapshot->loads.freed, 1);
    eb_snapshot_free(snapshot);
}

static void tries_again_what_failed_by_the_settings_that_were(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    registry_fixture_write_config(fixture, "features: [{name: f, table: none}]\n");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_make(fixture, "m/0");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_fail(&fixture->registry, "m", 2, "no such table", EB_REGISTRY_BROKEN);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_write_config(fixture, "versions: {keep: 2}\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
}

static void does_not_blame_a_directory_for_the_one_before_it(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_begin_second(fixture);
    assert_true(eb_registry_is_due(&fixture->registry, "m", 2));
    registry_fixture_make(fixture, "m/2/x");
    registry_fixture_look(fixture);
    assert_false(eb_registry_is_due(&fixture->registry, "m", 2));
    fixture->told[0] = '\0';
    eb_registry_fail(&fixture->registry, "m", 2, "half of it is another's", EB_REGISTRY_BROKEN);
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
}

static void tries_again_what_failed_when_one_of_its_files_changes(void **state)
{
    struct registry_fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write(&fixture->scratch, "m/2/t.npy", "half", 4);
    eb_scratch_path(&fixture->scratch, "m/2", path);
    registry_fixture_make(fixture, "m/1");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_note_files(&fixture->registry, "m", 2,
        eb_repository_stamp_files(path, &(struct eb_repository_terms){0}));
    eb_registry_fail(&fixture->registry, "m", 2, "it is cut short", EB_REGISTRY_BROKEN);
    registry_fixture_follow(fixture);
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_scratch_path(&fixture->scratch, "m/2/t.npy", path);
    assert_int_equal(truncate(path, 8), 0);
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
}

static void tells_of_a_lack_of_memory_once(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    for (int i = 0; i < 3; i++) {
        fixture->told[0] = '\0';
        assert_int_equal(registry_fixture_next(fixture, "m"), 2);
        eb_registry_fail(
            &fixture->registry, "m", 2, i == 0 ? "1 too few" : "2 too few", EB_REGISTRY_SHORT);
        assert_string_equal(fixture->told, i == 0 ? "failed m 2 1 too few\n" : "");
        registry_fixture_look(fixture);
        assert_int_equal(registry_fixture_next(fixture, "m"), 0);
        eb_registry_forgive_short(&fixture->registry);
    }
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_fail(&fixture->registry, "m", 2, "unread", EB_REGISTRY_HINDERED);
    assert_string_equal(fixture->told, "failed m 2 unread\n");
}

/* Fails version 2 and lets its pause pass, which must last at least `least_ms` and at most a
 * quarter longer. */
static void wait_out(
    struct registry_fixture *fixture, enum eb_registry_failure failure, uint64_t least_ms)
{
    eb_registry_fail(&fixture->registry, "m", 2, "it may pass", failure);
    registry_fixture_decide(fixture);
    assert_in_range(fixture->wake_ms - fixture->now_ms, least_ms, least_ms + least_ms / 4);
    /* A scan does not end the pause. */
    fixture->now_ms = fixture->wake_ms - 1;
    registry_fixture_look(fixture);
    eb_registry_forgive(&fixture->registry, fixture->now_ms);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_decide(fixture);
    assert_int_equal(fixture->wake_ms, fixture->now_ms + 1);
    fixture->now_ms++;
    eb_registry_forgive(&fixture->registry, fixture->now_ms);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
}

static void expect_longer_pauses(struct registry_fixture *fixture, enum eb_registry_failure failure)
{
    static const uint64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300};
    registry_fixture_write_config(fixture, "versions: {keep_s: 0}");
    registry_fixture_begin_second(fixture);
    for (size_t i = 0; i < sizeof pauses_s / sizeof pauses_s[0]; i++) {
        wait_out(fixture, failure, pauses_s[i] * 1000);
    }
    /* A directory that has changed has not failed yet. */
    registry_fixture_make(fixture, "m/2/x");
    registry_fixture_look(fixture);
    eb_registry_fail(&fixture->registry, "m", 2, "it has changed", EB_REGISTRY_BROKEN);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_decide(fixture);
    assert_true(fixture->wake_ms == UINT64_MAX);
}

static void pauses_ever_longer_before_it_tries_again_what_was_hindered(void **state)
{
    expect_longer_pauses(*state, EB_REGISTRY_HINDERED);
}

/* Finding out that memory is short may be expensive. */
static void pauses_ever_longer_before_it_tries_again_what_lacked_memory(void **state)
{
    expect_longer_pauses(*state, EB_REGISTRY_SHORT);
}

static void memory_ends_only_the_pauses_of_what_lacked_it(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_begin_second(fixture);
    eb_registry_fail(&fixture->registry, "m", 2, "unread", EB_REGISTRY_HINDERED);
    registry_fixture_decide(fixture);
    eb_registry_forgive_short(&fixture->registry);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_registry_forgive(&fixture->registry, fixture->wake_ms);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    eb_registry_fail(&fixture->registry, "m", 2, "too large", EB_REGISTRY_SHORT);
    registry_fixture_decide(fixture);
    eb_registry_forgive_short(&fixture->registry);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
}

/* ---- versions in memory that are outdated ---- */

/* Serves version 1 of m and marks its tables as outdated. */
static void serve_outdated(struct registry_fixture *fixture)
{
    struct eb_failure failure;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    struct eb_table_memory *memory = &model->served->tables.memory;
    const void *table = eb_table_memory_take(memory, 64, &failure);
    assert_non_null(table);
    assert_true(eb_table_memory_seal(memory, &failure));
    atomic_store(&eb_table_memory_find(memory, table)->is_outdated, true);
    fixture->told[0] = '\0';
}

static void replaces_a_version_whose_tables_are_outdated(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_outdated(fixture);
    const struct eb_model_version *old = eb_registry_find(&fixture->registry, "m")->served;
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(eb_registry_is_due(&fixture->registry, "m", 1));
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_SERVING);
    registry_fixture_put(fixture, "m", 1);
    assert_string_equal(fixture->told, "retired m 1\n");
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_SERVING);
    assert_true(eb_registry_find(&fixture->registry, "m")->served != old);
    registry_fixture_settle(fixture, "m");
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    eb_registry_note_unloaded(&fixture->registry, "m", 1);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->loads.done, 2);
    assert_int_equal(snapshot->loads.freed, 1);
    eb_snapshot_free(snapshot);
}

static void keeps_an_outdated_version_that_cannot_be_loaded_again(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_outdated(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    eb_registry_fail(&fixture->registry, "m", 1, "unread", EB_REGISTRY_HINDERED);
    assert_string_equal(fixture->told, "failed m 1 unread\n");
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_SERVING);
    eb_registry_forgive(&fixture->registry, fixture->wake_ms);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    eb_registry_fail(&fixture->registry, "m", 1, "broken", EB_REGISTRY_BROKEN);
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_SERVING);
    registry_fixture_make(fixture, "m/1/x");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
}

static void loads_a_new_version_before_an_outdated_one(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_outdated(fixture);
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0); /* it is no longer wanted */
    registry_fixture_write_config(fixture, "versions: {labels: [{name: old, version: 1}]}\n");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    assert_int_equal(registry_fixture_served(fixture, "m"), 2);
}

static void loads_an_outdated_version_that_was_dropped_meanwhile(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_outdated(fixture);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    eb_registry_drop(&fixture->registry, model, eb_registry_find_version(model, 1));
    registry_fixture_put(fixture, "m", 1);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_registry_note_unloaded(&fixture->registry, "m", 1);
}

EB_TEST_GROUP(registry_retry)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, registry_fixture_open, registry_fixture_close)
    const struct CMUnitTest tests[] = {
        FIXTURE(leaves_the_old_one_where_the_new_one_fails),
        FIXTURE(tries_again_what_lacked_memory_when_some_is_freed),
        FIXTURE(counts_loads_that_are_done_and_those_that_failed),
        FIXTURE(tries_again_what_failed_by_the_settings_that_were),
        FIXTURE(does_not_blame_a_directory_for_the_one_before_it),
        FIXTURE(tries_again_what_failed_when_one_of_its_files_changes),
        FIXTURE(tells_of_a_lack_of_memory_once),
        FIXTURE(pauses_ever_longer_before_it_tries_again_what_was_hindered),
        FIXTURE(pauses_ever_longer_before_it_tries_again_what_lacked_memory),
        FIXTURE(memory_ends_only_the_pauses_of_what_lacked_it),
        FIXTURE(replaces_a_version_whose_tables_are_outdated),
        FIXTURE(keeps_an_outdated_version_that_cannot_be_loaded_again),
        FIXTURE(loads_a_new_version_before_an_outdated_one),
        FIXTURE(loads_an_outdated_version_that_was_dropped_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
