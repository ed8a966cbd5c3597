#include "tests/unit/models/roster_trial.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void serves_a_new_version_and_keeps_the_one_before(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_LOADING);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), 0);
    roster_trial_put(trial, "m", 2);
    roster_trial_settle(trial, "m");
    assert_string_equal(trial->told, "served m 2 after 0\n");
    roster_trial_make(trial, "m/3");
    trial->now_ms += KEEP_MS;
    roster_trial_follow(trial);
    assert_string_equal(trial->told, "served m 3 after 2\n");
    assert_int_equal(roster_trial_state_of(trial, "m", 3), EB_VERSION_SERVING);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_READY);
    assert_true(trial->wake_ms == trial->now_ms + KEEP_MS);
    trial->now_ms += KEEP_MS;
    roster_trial_decide(trial);
    assert_true(trial->wake_ms == UINT64_MAX);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_READY);
    assert_false(eb_roster_make_room(&trial->roster, VERSION_BYTES + 1, trial->now_ms));
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_READY);
    assert_true(eb_roster_make_room(&trial->roster, VERSION_BYTES, trial->now_ms));
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_RETIRED);
    assert_false(eb_roster_make_room(&trial->roster, 1, trial->now_ms));
    eb_roster_forget(&trial->roster, "m", 2);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), 0);
}

/* Versions of m in memory that nothing wants, as the snapshot counts them. */
static struct eb_snapshot_loads loads_of(struct roster_trial *trial)
{
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    const struct eb_snapshot_loads loads = snapshot->loads;
    eb_snapshot_free(snapshot);
    return loads;
}

/* Publishes versions `first` to `last` of m, one after the other. */
static void publish_versions(struct roster_trial *trial, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char name[16];
        snprintf(name, sizeof name, "m/%d", i);
        roster_trial_make(trial, name);
        trial->now_ms += 60;
        roster_trial_follow(trial);
    }
}

static void evicts_the_oldest_where_too_many_are_kept(void **state)
{
    struct roster_trial *trial = *state;
    trial->roster.kept_versions_max = 3;
    publish_versions(trial, 1, 4);
    assert_int_equal(loads_of(trial).kept, 3);
    assert_int_equal(loads_of(trial).kept_bytes, 3 * VERSION_BYTES);
    assert_int_equal(loads_of(trial).evicted, 0);
    publish_versions(trial, 5, 5);
    assert_string_equal(
        trial->told, "served m 5 after 4\nevicted m 1 for kept_versions_max\nretired m 1\n");
    publish_versions(trial, 6, 50);
    assert_int_equal(loads_of(trial).kept, 3);
    assert_int_equal(loads_of(trial).evicted, 46);
    assert_int_equal(roster_trial_served(trial, "m"), 50);
    assert_int_equal(roster_trial_state_of(trial, "m", 46), EB_VERSION_RETIRED);
    assert_int_equal(roster_trial_state_of(trial, "m", 47), EB_VERSION_READY);
}

static void evicts_neither_labelled_nor_held_versions(void **state)
{
    struct roster_trial *trial = *state;
    trial->roster.kept_versions_max = 1;
    trial->roster.kept_bytes_max = 1;
    roster_trial_make(trial, "m/1");
    roster_trial_write_config(trial, "versions: {labels: [{name: stable, version: 1}]}\n");
    publish_versions(trial, 2, 2);
    struct eb_roster_model *model = eb_roster_find(&trial->roster, "m");
    eb_roster_find_version(model, 2)->is_held = true;
    publish_versions(trial, 3, 9);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_READY);
    assert_int_equal(roster_trial_state_of(trial, "m", 8), EB_VERSION_READY);
    assert_int_equal(loads_of(trial).kept, 1);
    assert_int_equal(loads_of(trial).evicted, 5);
}

static void evicts_the_oldest_where_kept_ones_take_too_much_memory(void **state)
{
    struct roster_trial *trial = *state;
    trial->roster.kept_bytes_max = VERSION_BYTES;
    publish_versions(trial, 1, 3);
    assert_int_equal(loads_of(trial).evicted, 0);
    publish_versions(trial, 4, 4);
    assert_string_equal(
        trial->told, "served m 4 after 3\nevicted m 1 for kept_bytes_max\nretired m 1\n");
    assert_int_equal(loads_of(trial).kept_bytes, 2 * VERSION_BYTES);
    /* The last one stays, whatever it takes. */
    trial->roster.kept_bytes_max = 1;
    roster_trial_decide(trial);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_RETIRED);
    assert_int_equal(roster_trial_state_of(trial, "m", 3), EB_VERSION_READY);
    publish_versions(trial, 5, 9);
    assert_int_equal(loads_of(trial).kept, 1);
    assert_int_equal(roster_trial_state_of(trial, "m", 8), EB_VERSION_READY);
}

/* Loads version `number` of a model as one of so many bytes. */
static void put_large(
    struct roster_trial *trial, const char *model, uint64_t number, uint64_t bytes)
{
    assert_int_equal(roster_trial_next(trial, model), number);
    roster_trial_put(trial, model, number);
    struct eb_roster_model *found = eb_roster_find(&trial->roster, model);
    eb_roster_find_version(found, number)->loaded->tables.bytes = bytes;
    roster_trial_decide(trial);
}

static void a_large_version_that_may_not_go_evicts_no_other(void **state)
{
    struct roster_trial *trial = *state;
    trial->roster.kept_bytes_max = 2 * VERSION_BYTES;
    roster_trial_make(trial, "n/1");
    roster_trial_look(trial);
    put_large(trial, "n", 1, 100 * VERSION_BYTES);
    roster_trial_make(trial, "n/2");
    roster_trial_look(trial);
    put_large(trial, "n", 2, 100 * VERSION_BYTES);
    publish_versions(trial, 1, 4);
    assert_int_equal(loads_of(trial).evicted, 0);
    assert_int_equal(roster_trial_state_of(trial, "n", 1), EB_VERSION_READY);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    /* A model that is gone from the disk is served for a while, and counts as little. */
    roster_trial_take_away(trial, "n/1");
    roster_trial_take_away(trial, "n/2");
    roster_trial_take_away(trial, "n");
    roster_trial_look(trial);
    roster_trial_decide(trial);
    assert_int_equal(roster_trial_served(trial, "n"), 2);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
}

static void evicts_of_the_model_that_keeps_most(void **state)
{
    struct roster_trial *trial = *state;
    publish_versions(trial, 1, 4);
    for (uint64_t number = 1; number <= 3; number++) {
        char name[16];
        snprintf(name, sizeof name, "n/%d", (int)number);
        roster_trial_make(trial, name);
        roster_trial_look(trial);
        put_large(trial, "n", number, 10 * VERSION_BYTES);
    }
    assert_int_equal(loads_of(trial).evicted, 0);
    trial->roster.kept_bytes_max = 2 * VERSION_BYTES;
    roster_trial_decide(trial);
    assert_int_equal(roster_trial_state_of(trial, "n", 1), EB_VERSION_RETIRED);
    assert_int_equal(roster_trial_state_of(trial, "n", 2), EB_VERSION_READY);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    assert_int_equal(loads_of(trial).evicted, 1);
    trial->roster.kept_bytes_max = VERSION_BYTES;
    roster_trial_decide(trial);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_RETIRED);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_READY);
}

static void keeps_as_many_as_the_settings_say_whatever_they_take(void **state)
{
    struct roster_trial *trial = *state;
    trial->roster.kept_bytes_max = 1;
    roster_trial_make(trial, "m/1");
    roster_trial_write_config(trial, "versions: {keep: 3}\n");
    publish_versions(trial, 2, 9);
    assert_int_equal(loads_of(trial).kept, 2);
    assert_int_equal(roster_trial_state_of(trial, "m", 6), EB_VERSION_RETIRED);
    assert_int_equal(roster_trial_state_of(trial, "m", 7), EB_VERSION_READY);
    assert_int_equal(roster_trial_state_of(trial, "m", 8), EB_VERSION_READY);
}

static void loads_what_is_to_be_served_before_what_has_a_label(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_write_config(trial, "versions: {labels: [{name: stable, version: 1}]}\n");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
    roster_trial_make(trial, "n/1");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "n"), 1);
    roster_trial_put(trial, "n", 1);
    roster_trial_settle(trial, "m");
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    assert_int_equal(eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), "stable"), 1);
    eb_snapshot_free(snapshot);
}

static void follows_model_yaml_and_passes_over_a_broken_one(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_follow(trial);
    roster_trial_write_config(trial, "versions: {serve: 1}\n");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    roster_trial_write_config(trial, "versions: {serve: none}\n");
    roster_trial_look(trial);
    eb_scratch_expect(trial->told, "config m ");
    eb_scratch_expect(trial->told, "/m/model.yaml");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    roster_trial_settle(trial, "m");
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    roster_trial_write_config(trial, "versions: {serve: highest, keep_s: 0, keep: 1}\n");
    roster_trial_follow(trial);
    assert_string_equal(trial->told, "served m 2 after 1\nretired m 1\n");
}

static void waits_with_a_model_until_it_can_be_read(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_write_config(trial, "nonsense\n");
    roster_trial_make(trial, "a\tb/1");
    roster_trial_look(trial);
    eb_scratch_expect(trial->told, "config m ");
    eb_scratch_expect(trial->told, "failed a\tb 0 ");
    assert_int_equal(roster_trial_next(trial, ""), 0);
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    assert_int_equal(snapshot->count, 1);
    assert_null(snapshot->models[0].served);
    eb_snapshot_free(snapshot);
    roster_trial_write_config(trial, "versions: {}\n");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 1);
}

static void keeps_a_model_that_has_left_the_disk_for_its_time(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "n/1");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 1);
    roster_trial_put(trial, "m", 1);
    roster_trial_settle(trial, "n");
    roster_trial_take_away(trial, "m/1");
    roster_trial_take_away(trial, "m");
    roster_trial_look(trial);
    trial->now_ms += KEEP_MS - 1;
    roster_trial_settle(trial, "n");
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    trial->now_ms += KEEP_MS;
    roster_trial_settle(trial, "n");
    assert_int_equal(roster_trial_served(trial, "m"), 0);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_RETIRED);
    eb_roster_forget(&trial->roster, "m", 1);
    roster_trial_look(trial);
    assert_null(eb_roster_find(&trial->roster, "m"));
    assert_int_equal(roster_trial_served(trial, "n"), 1);
}

static void shows_what_is_wrong_with_model_yaml_and_what_a_command_serves(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    trial->roster.is_news = false;
    roster_trial_write_config(trial, "versions: {serve: none}\n");
    roster_trial_look(trial);
    assert_true(trial->roster.is_news);
    trial->roster.models[0].commanded = 1;
    trial->roster.models[0].versions[0].is_held = true;
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    eb_scratch_expect(snapshot->models[0].fault, "/m/model.yaml");
    assert_int_equal(snapshot->models[0].commanded, 1);
    assert_true(snapshot->models[0].versions[0].is_held);
    eb_snapshot_free(snapshot);
    trial->roster.is_news = false;
    roster_trial_write_config(trial, "versions: {}\n");
    roster_trial_look(trial);
    assert_true(trial->roster.is_news);
    snapshot = eb_roster_snapshot(&trial->roster);
    assert_null(snapshot->models[0].fault);
    eb_snapshot_free(snapshot);
}

static void says_nothing_is_new_where_nothing_is(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/0");
    roster_trial_look(trial);
    assert_true(trial->roster.is_news);
    roster_trial_settle(trial, "m");
    assert_true(trial->roster.is_news);
    trial->roster.is_news = false;
    roster_trial_look(trial);
    roster_trial_decide(trial);
    assert_false(trial->roster.is_news);
    roster_trial_take_away(trial, "m/0");
    roster_trial_look(trial);
    assert_true(trial->roster.is_news);
}

static void knows_one_version_by_whatever_directory(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/007");
    roster_trial_make(trial, "m/6");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 7);
    /* A second one of the number is at fault; what is in memory has nothing to do with it. */
    trial->told[0] = '\0';
    roster_trial_make(trial, "m/7");
    roster_trial_look(trial);
    eb_scratch_expect(trial->told, "failed m 7 ");
    eb_scratch_expect(trial->told, "/m/7: another directory is version 7 too");
    trial->now_ms += 2 * KEEP_MS;
    roster_trial_settle(trial, "m");
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_served(trial, "m"), 7);
    roster_trial_take_away(trial, "m/007");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 7);
    assert_int_equal(roster_trial_state_of(trial, "m", 7), EB_VERSION_SERVING);
    assert_int_equal(eb_roster_find(&trial->roster, "m")->count, 2);
}

/* The version that the label leads to; 0: none. */
static uint64_t labelled(struct roster_trial *trial, const char *label)
{
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    uint64_t number = eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), label);
    eb_snapshot_free(snapshot);
    return number;
}

static void moves_a_label_when_its_version_is_in_memory(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_write_config(
        trial, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 1}]}");
    roster_trial_follow(trial);
    assert_int_equal(labelled(trial, "a"), 1);
    roster_trial_make(trial, "m/3");
    roster_trial_write_config(
        trial, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 3}]}");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 3);
    roster_trial_decide(trial);
    assert_int_equal(labelled(trial, "a"), 1);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    eb_roster_fail(&trial->roster, "m", 3, "broken", EB_ROSTER_BROKEN);
    roster_trial_decide(trial);
    assert_int_equal(labelled(trial, "a"), 1);
    assert_int_equal(roster_trial_state_of(trial, "m", 1), EB_VERSION_READY);
    roster_trial_make(trial, "m/3/x");
    roster_trial_follow(trial);
    assert_int_equal(labelled(trial, "a"), 3);
    assert_string_equal(trial->told, "retired m 1\n");
}

static void tells_once_of_versions_that_are_named_and_not_there(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_write_config(trial, "versions: {serve: 3, labels: [{name: a, version: 1}, "
                                     "{name: b, version: 18446744073709551615}]}");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "missing m 3 to serve\nmissing m 18446744073709551615 b\n");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    roster_trial_make(trial, "m/3");
    roster_trial_write_config(trial, "versions: {serve: 3, labels: [{name: a, version: 2}]}");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "missing m 2 a\n");
}

static void serves_what_is_in_memory_while_a_higher_one_is_loaded(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_begin_second(trial);
    roster_trial_make(trial, "m/3");
    roster_trial_look(trial);
    assert_true(eb_roster_is_due(&trial->roster, "m", 2));
    roster_trial_put(trial, "m", 2);
    roster_trial_decide(trial);
    assert_string_equal(trial->told, "served m 2 after 1\n");
    assert_int_equal(roster_trial_next(trial, "m"), 3);
    roster_trial_write_config(trial, "versions: {serve: 1}\n");
    roster_trial_look(trial);
    assert_false(eb_roster_is_due(&trial->roster, "m", 3));
    roster_trial_put(trial, "m", 3);
    roster_trial_decide(trial);
    assert_string_equal(trial->told, "served m 1 after 2\n");
}

static void keeps_what_is_served_while_its_directory_cannot_be_read(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    struct eb_repository_model broken = {.name = trial->seen.models[0].name,
        .path = trial->seen.models[0].path,
        .fault = "unreadable"};
    const struct eb_repository seen = {.count = 1, .models = &broken};
    assert_true(eb_roster_update(&trial->roster, &seen));
    assert_true(eb_roster_update(&trial->roster, &seen));
    trial->now_ms += 2 * KEEP_MS;
    roster_trial_decide(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    roster_trial_look(trial);
    assert_null(eb_roster_find(&trial->roster, "m")->fault);
}

static void holds_back_a_new_model_whose_model_yaml_is_broken(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m");
    roster_trial_look(trial);
    roster_trial_write_config(trial, "nonsense\n");
    roster_trial_look(trial);
    eb_scratch_expect(trial->told, "config m ");
    roster_trial_make(trial, "m/1");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    assert_int_equal(snapshot->count, 1);
    eb_scratch_expect(snapshot->models[0].fault, "/m/model.yaml");
    eb_snapshot_free(snapshot);
    roster_trial_write_config(trial, "versions: {keep: 1}\n");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 1);
}

static void holds_back_a_version_that_had_no_time_to_load(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_look(trial);
    roster_trial_write_config(trial, "nonsense\n");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
}

static void shows_what_cannot_be_looked_at(void **state)
{
    struct roster_trial *trial = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    roster_trial_make(trial, "m/1");
    eb_scratch_path(&trial->scratch, "n", path);
    assert_int_equal(symlink("n", path), 0);
    roster_trial_make(trial, "odd\t/1");
    roster_trial_follow(trial);
    trial->roster.is_news = false;
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    assert_int_equal(snapshot->count, 2);
    eb_scratch_expect(eb_snapshot_find(snapshot, "n")->fault, "/n: it cannot be looked at (");
    eb_snapshot_free(snapshot);
    assert_int_equal(unlink(path), 0);
    roster_trial_make(trial, "n/1");
    roster_trial_look(trial);
    assert_true(trial->roster.is_news);
    assert_int_equal(roster_trial_next(trial, "n"), 1);
    roster_trial_put(trial, "n", 1);
}

static void counts_what_cannot_be_looked_at_as_a_load_that_failed(void **state)
{
    struct roster_trial *trial = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    assert_int_equal(trial->roster.loads.failed, 0);
    eb_scratch_path(&trial->scratch, "m/2", path);
    assert_int_equal(symlink("2", path), 0);
    roster_trial_make(trial, "m/0");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_FAILED);
    assert_int_equal(trial->roster.loads.failed, 2);
    /* Not again while nothing changes. */
    roster_trial_follow(trial);
    assert_int_equal(trial->roster.loads.failed, 2);
    assert_int_equal(trial->roster.loads.done, 1);
    assert_int_equal(unlink(path), 0);
}

static void tells_once_of_a_directory_that_changes_after_its_load(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    roster_trial_make(trial, "m/1/x");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "changed m 1\n");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_next(trial, "m"), 0);
}

static void tells_of_a_description_that_does_not_hold_for_what_is_in_memory(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    roster_trial_write_config(trial, "versions: {keep: 3}\n");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    roster_trial_write_config(trial, "features: [{name: f, table: t}]\n");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "described m 1\n");
    roster_trial_make(trial, "m/2");
    roster_trial_follow(trial);
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
}

EB_TEST_GROUP(roster)
{
#define TRIAL(test) cmocka_unit_test_setup_teardown(test, roster_trial_open, roster_trial_close)
    const struct CMUnitTest tests[] = {
        TRIAL(serves_a_new_version_and_keeps_the_one_before),
        TRIAL(evicts_the_oldest_where_too_many_are_kept),
        TRIAL(evicts_neither_labelled_nor_held_versions),
        TRIAL(evicts_the_oldest_where_kept_ones_take_too_much_memory),
        TRIAL(a_large_version_that_may_not_go_evicts_no_other),
        TRIAL(evicts_of_the_model_that_keeps_most),
        TRIAL(keeps_as_many_as_the_settings_say_whatever_they_take),
        TRIAL(loads_what_is_to_be_served_before_what_has_a_label),
        TRIAL(follows_model_yaml_and_passes_over_a_broken_one),
        TRIAL(waits_with_a_model_until_it_can_be_read),
        TRIAL(keeps_a_model_that_has_left_the_disk_for_its_time),
        TRIAL(shows_what_is_wrong_with_model_yaml_and_what_a_command_serves),
        TRIAL(says_nothing_is_new_where_nothing_is),
        TRIAL(knows_one_version_by_whatever_directory),
        TRIAL(moves_a_label_when_its_version_is_in_memory),
        TRIAL(tells_once_of_versions_that_are_named_and_not_there),
        TRIAL(serves_what_is_in_memory_while_a_higher_one_is_loaded),
        TRIAL(keeps_what_is_served_while_its_directory_cannot_be_read),
        TRIAL(holds_back_a_new_model_whose_model_yaml_is_broken),
        TRIAL(holds_back_a_version_that_had_no_time_to_load),
        TRIAL(shows_what_cannot_be_looked_at),
        TRIAL(counts_what_cannot_be_looked_at_as_a_load_that_failed),
        TRIAL(tells_once_of_a_directory_that_changes_after_its_load),
        TRIAL(tells_of_a_description_that_does_not_hold_for_what_is_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
