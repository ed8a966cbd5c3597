#include "tests/unit/models/registry_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void serves_a_new_version_and_keeps_the_one_before(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_LOADING);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), 0);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_settle(fixture, "m");
    assert_string_equal(fixture->told, "served m 2 after 0\n");
    registry_fixture_make(fixture, "m/3");
    fixture->now_ms += KEEP_MS;
    registry_fixture_follow(fixture);
    assert_string_equal(fixture->told, "served m 3 after 2\n");
    assert_int_equal(registry_fixture_state_of(fixture, "m", 3), EB_VERSION_SERVING);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    assert_true(fixture->wake_ms == fixture->now_ms + KEEP_MS);
    fixture->now_ms += KEEP_MS;
    registry_fixture_decide(fixture);
    assert_true(fixture->wake_ms == UINT64_MAX);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    assert_false(
        eb_registry_make_room(&fixture->registry, "m", VERSION_BYTES + 1, fixture->now_ms));
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    assert_true(eb_registry_make_room(&fixture->registry, "m", VERSION_BYTES, fixture->now_ms));
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_RETIRED);
    assert_false(eb_registry_make_room(&fixture->registry, "m", 1, fixture->now_ms));
    eb_registry_note_unloaded(&fixture->registry, "m", 2);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), 0);
}

/* Returns the figures of the snapshot on loads and on kept versions. */
static struct eb_snapshot_loads loads_of(struct registry_fixture *fixture)
{
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    struct eb_snapshot_loads loads = snapshot->loads;
    eb_snapshot_free(snapshot);
    return loads;
}

/* Publishes versions `first` to `last` of m, one after the other. */
static void publish_versions(struct registry_fixture *fixture, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char name[16];
        snprintf(name, sizeof name, "m/%d", i);
        registry_fixture_make(fixture, name);
        fixture->now_ms += 60;
        registry_fixture_follow(fixture);
    }
}

static void evicts_the_oldest_where_too_many_are_kept(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_versions_max = 3;
    publish_versions(fixture, 1, 4);
    assert_int_equal(loads_of(fixture).kept, 3);
    assert_int_equal(loads_of(fixture).kept_bytes, 3 * VERSION_BYTES);
    assert_int_equal(loads_of(fixture).evicted, 0);
    publish_versions(fixture, 5, 5);
    assert_string_equal(
        fixture->told, "served m 5 after 4\nevicted m 1 for kept_versions_max\nretired m 1\n");
    publish_versions(fixture, 6, 50);
    assert_int_equal(loads_of(fixture).kept, 3);
    assert_int_equal(loads_of(fixture).evicted, 46);
    assert_int_equal(registry_fixture_served(fixture, "m"), 50);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 46), EB_VERSION_RETIRED);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 47), EB_VERSION_READY);
}

static void evicts_neither_labelled_nor_held_versions(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_versions_max = 1;
    fixture->registry.limits.kept_bytes_max = 1;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_write_config(fixture, "versions: {labels: [{name: stable, version: 1}]}\n");
    publish_versions(fixture, 2, 2);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_find_version(model, 2)->is_held = true;
    publish_versions(fixture, 3, 9);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 8), EB_VERSION_READY);
    assert_int_equal(loads_of(fixture).kept, 1);
    assert_int_equal(loads_of(fixture).evicted, 5);
}

static void evicts_the_oldest_where_kept_ones_take_too_much_memory(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_bytes_max = VERSION_BYTES;
    publish_versions(fixture, 1, 3);
    assert_int_equal(loads_of(fixture).evicted, 0);
    publish_versions(fixture, 4, 4);
    assert_string_equal(
        fixture->told, "served m 4 after 3\nevicted m 1 for kept_bytes_max\nretired m 1\n");
    assert_int_equal(loads_of(fixture).kept_bytes, 2 * VERSION_BYTES);
    /* The last kept version stays, however much memory it takes. */
    fixture->registry.limits.kept_bytes_max = 1;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_RETIRED);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 3), EB_VERSION_READY);
    publish_versions(fixture, 5, 9);
    assert_int_equal(loads_of(fixture).kept, 1);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 8), EB_VERSION_READY);
}

/* Loads version `number` of a model with a size of `bytes`. */
static void put_large(
    struct registry_fixture *fixture, const char *model, uint64_t number, uint64_t bytes)
{
    assert_int_equal(registry_fixture_next(fixture, model), number);
    registry_fixture_put(fixture, model, number);
    struct eb_registry_model *found = eb_registry_find(&fixture->registry, model);
    eb_registry_find_version(found, number)->loaded->tables.bytes = bytes;
    registry_fixture_decide(fixture);
}

static void a_large_version_that_may_not_go_evicts_no_other(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_bytes_max = 2 * VERSION_BYTES;
    registry_fixture_make(fixture, "n/1");
    registry_fixture_look(fixture);
    put_large(fixture, "n", 1, 100 * VERSION_BYTES);
    registry_fixture_make(fixture, "n/2");
    registry_fixture_look(fixture);
    put_large(fixture, "n", 2, 100 * VERSION_BYTES);
    publish_versions(fixture, 1, 4);
    assert_int_equal(loads_of(fixture).evicted, 0);
    assert_int_equal(registry_fixture_state_of(fixture, "n", 1), EB_VERSION_READY);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    /* A model that has left the disk is served for a while. It still evicts no other. */
    registry_fixture_take_away(fixture, "n/1");
    registry_fixture_take_away(fixture, "n/2");
    registry_fixture_take_away(fixture, "n");
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "n"), 2);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
}

static void evicts_of_the_model_that_keeps_most(void **state)
{
    struct registry_fixture *fixture = *state;
    publish_versions(fixture, 1, 4);
    for (uint64_t number = 1; number <= 3; number++) {
        char name[16];
        snprintf(name, sizeof name, "n/%d", (int)number);
        registry_fixture_make(fixture, name);
        registry_fixture_look(fixture);
        put_large(fixture, "n", number, 10 * VERSION_BYTES);
    }
    assert_int_equal(loads_of(fixture).evicted, 0);
    fixture->registry.limits.kept_bytes_max = 2 * VERSION_BYTES;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "n", 1), EB_VERSION_RETIRED);
    assert_int_equal(registry_fixture_state_of(fixture, "n", 2), EB_VERSION_READY);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    assert_int_equal(loads_of(fixture).evicted, 1);
    fixture->registry.limits.kept_bytes_max = VERSION_BYTES;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_RETIRED);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
}

static void keeps_as_many_as_the_settings_say_whatever_they_take(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.limits.kept_bytes_max = 1;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_write_config(fixture, "versions: {keep: 3}\n");
    publish_versions(fixture, 2, 9);
    assert_int_equal(loads_of(fixture).kept, 2);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 6), EB_VERSION_RETIRED);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 7), EB_VERSION_READY);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 8), EB_VERSION_READY);
}

static void loads_what_is_to_be_served_before_what_has_a_label(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_write_config(fixture, "versions: {labels: [{name: stable, version: 1}]}\n");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_make(fixture, "n/1");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "n"), 1);
    registry_fixture_put(fixture, "n", 1);
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), "stable"), 1);
    eb_snapshot_free(snapshot);
}

static void follows_model_yaml_and_passes_over_a_broken_one(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_follow(fixture);
    registry_fixture_write_config(fixture, "versions: {serve: 1}\n");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    registry_fixture_write_config(fixture, "versions: {serve: none}\n");
    registry_fixture_look(fixture);
    eb_scratch_expect(fixture->told, "config m ");
    eb_scratch_expect(fixture->told, "/m/model.yaml");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    registry_fixture_write_config(fixture, "versions: {serve: highest, keep_s: 0, keep: 1}\n");
    registry_fixture_follow(fixture);
    assert_string_equal(fixture->told, "served m 2 after 1\nretired m 1\n");
}

static void waits_with_a_model_until_it_can_be_read(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_write_config(fixture, "nonsense\n");
    registry_fixture_make(fixture, "a\tb/1");
    registry_fixture_look(fixture);
    eb_scratch_expect(fixture->told, "config m ");
    eb_scratch_expect(fixture->told, "failed a\tb 0 ");
    assert_int_equal(registry_fixture_next(fixture, ""), 0);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->count, 1);
    assert_null(snapshot->models[0].served);
    eb_snapshot_free(snapshot);
    registry_fixture_write_config(fixture, "versions: {}\n");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
}

static void keeps_a_model_that_has_left_the_disk_for_its_time(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "n/1");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    registry_fixture_settle(fixture, "n");
    registry_fixture_take_away(fixture, "m/1");
    registry_fixture_take_away(fixture, "m");
    registry_fixture_look(fixture);
    fixture->now_ms += KEEP_MS - 1;
    registry_fixture_settle(fixture, "n");
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    fixture->now_ms += KEEP_MS;
    registry_fixture_settle(fixture, "n");
    assert_int_equal(registry_fixture_served(fixture, "m"), 0);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_RETIRED);
    eb_registry_note_unloaded(&fixture->registry, "m", 1);
    registry_fixture_look(fixture);
    assert_null(eb_registry_find(&fixture->registry, "m"));
    assert_int_equal(registry_fixture_served(fixture, "n"), 1);
}

static void shows_what_is_wrong_with_model_yaml_and_what_a_command_serves(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    fixture->registry.is_dirty = false;
    registry_fixture_write_config(fixture, "versions: {serve: none}\n");
    registry_fixture_look(fixture);
    assert_true(fixture->registry.is_dirty);
    fixture->registry.models[0].commanded = 1;
    fixture->registry.models[0].versions[0].is_held = true;
    struct eb_snapshot *snapshot = eb_registry_snapshot(&fixture->registry);
    eb_scratch_expect(snapshot->models[0].failure, "/m/model.yaml");
    assert_int_equal(snapshot->models[0].commanded, 1);
    assert_true(snapshot->models[0].versions[0].is_held);
    eb_snapshot_free(snapshot);
    fixture->registry.is_dirty = false;
    registry_fixture_write_config(fixture, "versions: {}\n");
    registry_fixture_look(fixture);
    assert_true(fixture->registry.is_dirty);
    snapshot = eb_registry_snapshot(&fixture->registry);
    assert_null(snapshot->models[0].failure);
    eb_snapshot_free(snapshot);
}

static void says_nothing_is_new_where_nothing_is(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/0");
    registry_fixture_look(fixture);
    assert_true(fixture->registry.is_dirty);
    registry_fixture_settle(fixture, "m");
    assert_true(fixture->registry.is_dirty);
    fixture->registry.is_dirty = false;
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
    assert_false(fixture->registry.is_dirty);
    registry_fixture_take_away(fixture, "m/0");
    registry_fixture_look(fixture);
    assert_true(fixture->registry.is_dirty);
}

static void knows_one_version_by_whatever_directory(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/007");
    registry_fixture_make(fixture, "m/6");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 7);
    /* A second directory with the same number fails. The version in memory is not affected. */
    fixture->told[0] = '\0';
    registry_fixture_make(fixture, "m/7");
    registry_fixture_look(fixture);
    eb_scratch_expect(fixture->told, "failed m 7 ");
    eb_scratch_expect(fixture->told, "/m/7: another directory is also version 7");
    fixture->now_ms += 2 * KEEP_MS;
    registry_fixture_settle(fixture, "m");
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_served(fixture, "m"), 7);
    registry_fixture_take_away(fixture, "m/007");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 7);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 7), EB_VERSION_SERVING);
    assert_int_equal(eb_registry_find(&fixture->registry, "m")->count, 2);
}

/* Returns the version that the label points to, or 0 if there is none. */
static uint64_t labelled(struct registry_fixture *fixture, const char *label)
{
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    uint64_t number = eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), label);
    eb_snapshot_free(snapshot);
    return number;
}

static void moves_a_label_when_its_version_is_in_memory(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_write_config(
        fixture, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 1}]}");
    registry_fixture_follow(fixture);
    assert_int_equal(labelled(fixture, "a"), 1);
    registry_fixture_make(fixture, "m/3");
    registry_fixture_write_config(
        fixture, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 3}]}");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_decide(fixture);
    assert_int_equal(labelled(fixture, "a"), 1);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    eb_registry_fail(&fixture->registry, "m", 3, "broken", EB_REGISTRY_BROKEN);
    registry_fixture_decide(fixture);
    assert_int_equal(labelled(fixture, "a"), 1);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    registry_fixture_make(fixture, "m/3/x");
    registry_fixture_follow(fixture);
    assert_int_equal(labelled(fixture, "a"), 3);
    assert_string_equal(fixture->told, "retired m 1\n");
}

static void tells_once_of_versions_that_are_named_and_not_there(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_write_config(fixture, "versions: {serve: 3, labels: [{name: a, version: 1}, "
                                           "{name: b, version: 18446744073709551615}]}");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "missing m 3 to serve\nmissing m 18446744073709551615 b\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_write_config(fixture, "versions: {serve: 3, labels: [{name: a, version: 2}]}");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "missing m 2 a\n");
}

static void serves_what_is_in_memory_while_a_higher_one_is_loaded(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_begin_second(fixture);
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    assert_true(eb_registry_is_due(&fixture->registry, "m", 2));
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "served m 2 after 1\n");
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_write_config(fixture, "versions: {serve: 1}\n");
    registry_fixture_look(fixture);
    assert_false(eb_registry_is_due(&fixture->registry, "m", 3));
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "served m 1 after 2\n");
}

static void keeps_what_is_served_while_its_directory_cannot_be_read(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    struct eb_repository_model broken = {.name = fixture->seen.models[0].name,
        .path = fixture->seen.models[0].path,
        .failure = "unreadable"};
    struct eb_repository seen = {.count = 1, .models = &broken};
    assert_true(eb_registry_update(&fixture->registry, &seen));
    assert_true(eb_registry_update(&fixture->registry, &seen));
    fixture->now_ms += 2 * KEEP_MS;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    registry_fixture_look(fixture);
    assert_null(eb_registry_find(&fixture->registry, "m")->failure);
}

static void holds_back_a_new_model_whose_model_yaml_is_broken(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m");
    registry_fixture_look(fixture);
    registry_fixture_write_config(fixture, "nonsense\n");
    registry_fixture_look(fixture);
    eb_scratch_expect(fixture->told, "config m ");
    registry_fixture_make(fixture, "m/1");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->count, 1);
    eb_scratch_expect(snapshot->models[0].failure, "/m/model.yaml");
    eb_snapshot_free(snapshot);
    registry_fixture_write_config(fixture, "versions: {keep: 1}\n");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
}

static void holds_back_a_version_that_had_no_time_to_load(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_look(fixture);
    registry_fixture_write_config(fixture, "nonsense\n");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
}

static void shows_what_cannot_be_looked_at(void **state)
{
    struct registry_fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    registry_fixture_make(fixture, "m/1");
    eb_scratch_path(&fixture->scratch, "n", path);
    assert_int_equal(symlink("n", path), 0);
    registry_fixture_make(fixture, "odd\t/1");
    registry_fixture_follow(fixture);
    fixture->registry.is_dirty = false;
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->count, 2);
    eb_scratch_expect(eb_snapshot_find(snapshot, "n")->failure, "/n: it cannot be accessed (");
    eb_snapshot_free(snapshot);
    assert_int_equal(unlink(path), 0);
    registry_fixture_make(fixture, "n/1");
    registry_fixture_look(fixture);
    assert_true(fixture->registry.is_dirty);
    assert_int_equal(registry_fixture_next(fixture, "n"), 1);
    registry_fixture_put(fixture, "n", 1);
}

static void counts_what_cannot_be_looked_at_as_a_load_that_failed(void **state)
{
    struct registry_fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    assert_int_equal(fixture->registry.loads.failed, 0);
    eb_scratch_path(&fixture->scratch, "m/2", path);
    assert_int_equal(symlink("2", path), 0);
    registry_fixture_make(fixture, "m/0");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_FAILED);
    assert_int_equal(fixture->registry.loads.failed, 2);
    /* Nothing is counted again while nothing changes. */
    registry_fixture_follow(fixture);
    assert_int_equal(fixture->registry.loads.failed, 2);
    assert_int_equal(fixture->registry.loads.done, 1);
    assert_int_equal(unlink(path), 0);
}

static void tells_once_of_a_directory_that_changes_after_its_load(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    registry_fixture_make(fixture, "m/1/x");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "changed m 1\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
}

/* The same version after a copy has other inodes and times. Its manifest says that it is the same.
 */
static void takes_a_copy_with_the_same_manifest_for_the_same_version(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    eb_scratch_write_text(&fixture->scratch, "m/1/manifest.yaml", "files: one\n");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/1/x");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    eb_scratch_write_text(&fixture->scratch, "m/1/manifest.yaml", "files: two\n");
    registry_fixture_make(fixture, "m/1/y");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "changed m 1\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
}

static void tells_of_a_description_that_does_not_hold_for_what_is_in_memory(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    registry_fixture_write_config(fixture, "versions: {keep: 3}\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
    registry_fixture_write_config(fixture, "features: [{name: f, table: t}]\n");
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "described m 1\n");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_follow(fixture);
    registry_fixture_look(fixture);
    assert_string_equal(fixture->told, "");
}

/* Returns the version to load next, over all models, and sets *model to its model. */
static uint64_t next_of_all(struct registry_fixture *fixture, const char **model)
{
    struct eb_registry_version *version;
    const struct eb_registry_model *found = eb_registry_next(&fixture->registry, &version);
    *model = found ? found->name : "";
    return found ? version->number : 0;
}

static void loads_small_versions_first_and_one_of_each_model(void **state)
{
    struct registry_fixture *fixture = *state;
    const char *model;
    eb_scratch_write(&fixture->scratch, "a/1/t", "12345", 5);
    eb_scratch_write(&fixture->scratch, "b/1/t", "123", 3);
    eb_scratch_write(&fixture->scratch, "b/2/t", "1234", 4);
    eb_scratch_write(&fixture->scratch, "c/1/t", "1234", 4);
    registry_fixture_look(fixture);
    assert_int_equal(next_of_all(fixture, &model), 2);
    assert_string_equal(model, "b");
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "c");
    eb_registry_fail(&fixture->registry, "b", 2, "broken", EB_REGISTRY_BROKEN);
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "b");
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "a");
    assert_int_equal(next_of_all(fixture, &model), 0);
}

#define JITTER_MS 1000

/* Serves m 1. Version 2 is found while a new version waits, and is not loaded yet. */
static void find_second_with_jitter(struct registry_fixture *fixture)
{
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    fixture->registry.jitter_ms = JITTER_MS;
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
}

static void a_new_version_waits_and_a_newer_one_takes_its_place(void **state)
{
    struct registry_fixture *fixture = *state;
    find_second_with_jitter(fixture);
    assert_string_equal(fixture->told, "postponed m 2\n");
    uint64_t wake_ms = fixture->wake_ms;
    assert_true(wake_ms > fixture->now_ms && wake_ms <= fixture->now_ms + JITTER_MS);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(
        eb_registry_is_settled(&fixture->registry, eb_registry_find(&fixture->registry, "m")));
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    fixture->now_ms = wake_ms - 1;
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "");
    assert_true(fixture->wake_ms == wake_ms);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    fixture->now_ms = wake_ms;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_served(fixture, "m"), 3);
}

static void a_wait_ends_when_its_version_is_gone(void **state)
{
    struct registry_fixture *fixture = *state;
    find_second_with_jitter(fixture);
    registry_fixture_take_away(fixture, "m/2");
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
    assert_true(fixture->wake_ms == UINT64_MAX);
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "postponed m 2\n");
}

static void a_version_does_not_wait_if_none_is_served_or_it_is_hurried(void **state)
{
    struct registry_fixture *fixture = *state;
    find_second_with_jitter(fixture);
    registry_fixture_make(fixture, "n/1");
    registry_fixture_look(fixture);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "n"), 1);
    eb_registry_hurry(eb_registry_find(&fixture->registry, "m"));
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
}

/* Sets version 2 of m aside, with this number of deaths, and serves version 1. */
static void set_second_aside(struct registry_fixture *fixture, unsigned deaths)
{
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    struct eb_registry_version *version = eb_registry_find_version(model, 2);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, "m/2", path);
    eb_registry_suspect(&fixture->registry, model, version,
        eb_repository_stamp_files(path, &(struct eb_repository_terms){0}), deaths);
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    assert_false(eb_registry_readmit_unserved(&fixture->registry));
    fixture->told[0] = '\0';
    eb_registry_readmit(&fixture->registry);
}

static void a_version_with_one_death_loads_alone(void **state)
{
    struct registry_fixture *fixture = *state;
    const char *model;
    set_second_aside(fixture, 1);
    assert_string_equal(fixture->told, "");
    registry_fixture_make(fixture, "a/1");
    eb_scratch_write(&fixture->scratch, "n/1/t", "1", 1);
    registry_fixture_look(fixture);
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "a");
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "n");
    assert_int_equal(next_of_all(fixture, &model), 0);
    registry_fixture_put(fixture, "a", 1);
    assert_int_equal(next_of_all(fixture, &model), 0);
    registry_fixture_put(fixture, "n", 1);
    assert_int_equal(next_of_all(fixture, &model), 2);
    registry_fixture_make(fixture, "b/1");
    registry_fixture_look(fixture);
    assert_int_equal(next_of_all(fixture, &model), 0);
    registry_fixture_put(fixture, "m", 2);
    assert_int_equal(next_of_all(fixture, &model), 1);
    assert_string_equal(model, "b");
}

static void a_version_with_two_deaths_fails_whatever_model_yaml_says(void **state)
{
    struct registry_fixture *fixture = *state;
    set_second_aside(fixture, EB_REGISTRY_DEATHS_FATAL);
    eb_scratch_expect(fixture->told, "m/2: the process died twice while loading it; ");
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_write_config(fixture, "versions: {keep: 3}\n");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_FAILED);
}

static void a_model_that_serves_nothing_loads_those_with_the_fewest_deaths(void **state)
{
    struct registry_fixture *fixture = *state;
    static const unsigned deaths[] = {3, 2, 1};
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    for (uint64_t i = 0; i < 3; i++) {
        eb_registry_suspect(
            &fixture->registry, model, eb_registry_find_version(model, i + 1), 7, deaths[i]);
    }
    assert_string_equal(fixture->told, "suspected m 1 of 3\nsuspected m 2 of 2\n"
                                       "suspected m 3 of 1\n");
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(eb_registry_readmit_unserved(&fixture->registry));
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    eb_registry_fail(&fixture->registry, "m", 3, "broken", EB_REGISTRY_BROKEN);
    assert_true(eb_registry_readmit_unserved(&fixture->registry));
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_served(fixture, "m"), 2);
    assert_false(eb_registry_readmit_unserved(&fixture->registry));
}

EB_TEST_GROUP(registry)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, registry_fixture_open, registry_fixture_close)
    const struct CMUnitTest tests[] = {
        FIXTURE(serves_a_new_version_and_keeps_the_one_before),
        FIXTURE(evicts_the_oldest_where_too_many_are_kept),
        FIXTURE(evicts_neither_labelled_nor_held_versions),
        FIXTURE(evicts_the_oldest_where_kept_ones_take_too_much_memory),
        FIXTURE(a_large_version_that_may_not_go_evicts_no_other),
        FIXTURE(evicts_of_the_model_that_keeps_most),
        FIXTURE(keeps_as_many_as_the_settings_say_whatever_they_take),
        FIXTURE(loads_what_is_to_be_served_before_what_has_a_label),
        FIXTURE(loads_small_versions_first_and_one_of_each_model),
        FIXTURE(a_new_version_waits_and_a_newer_one_takes_its_place),
        FIXTURE(a_wait_ends_when_its_version_is_gone),
        FIXTURE(a_version_does_not_wait_if_none_is_served_or_it_is_hurried),
        FIXTURE(a_version_with_one_death_loads_alone),
        FIXTURE(a_version_with_two_deaths_fails_whatever_model_yaml_says),
        FIXTURE(a_model_that_serves_nothing_loads_those_with_the_fewest_deaths),
        FIXTURE(follows_model_yaml_and_passes_over_a_broken_one),
        FIXTURE(waits_with_a_model_until_it_can_be_read),
        FIXTURE(keeps_a_model_that_has_left_the_disk_for_its_time),
        FIXTURE(shows_what_is_wrong_with_model_yaml_and_what_a_command_serves),
        FIXTURE(says_nothing_is_new_where_nothing_is),
        FIXTURE(knows_one_version_by_whatever_directory),
        FIXTURE(moves_a_label_when_its_version_is_in_memory),
        FIXTURE(tells_once_of_versions_that_are_named_and_not_there),
        FIXTURE(serves_what_is_in_memory_while_a_higher_one_is_loaded),
        FIXTURE(keeps_what_is_served_while_its_directory_cannot_be_read),
        FIXTURE(holds_back_a_new_model_whose_model_yaml_is_broken),
        FIXTURE(holds_back_a_version_that_had_no_time_to_load),
        FIXTURE(shows_what_cannot_be_looked_at),
        FIXTURE(counts_what_cannot_be_looked_at_as_a_load_that_failed),
        FIXTURE(tells_once_of_a_directory_that_changes_after_its_load),
        FIXTURE(takes_a_copy_with_the_same_manifest_for_the_same_version),
        FIXTURE(tells_of_a_description_that_does_not_hold_for_what_is_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
