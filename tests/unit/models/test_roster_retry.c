#include "tests/unit/models/roster_trial.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void leaves_the_old_one_where_the_new_one_fails(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_begin_second(trial);
    trial->told[0] = '\0';
    eb_roster_fail(&trial->roster, "m", 2, "broken", EB_ROSTER_BROKEN);
    assert_string_equal(trial->told, "failed m 2 broken\n");
    roster_trial_settle(trial, "m");
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    assert_int_equal(roster_trial_state_of(trial, "m", 2), EB_VERSION_FAILED);
    /* It is not tried again, until its directory is another one. */
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    roster_trial_make(trial, "m/2/x");
    roster_trial_follow(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 2);
}

static void tries_again_what_lacked_memory_when_some_is_freed(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_follow(trial);
    roster_trial_make(trial, "m/3");
    roster_trial_follow(trial);
    roster_trial_make(trial, "m/4");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 4);
    eb_roster_fail(&trial->roster, "m", 4, "too large", EB_ROSTER_SHORT);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    struct eb_roster_model *model = eb_roster_find(&trial->roster, "m");
    eb_roster_drop(&trial->roster, model, eb_roster_find_version(model, 2));
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    eb_roster_forget(&trial->roster, "m", 2);
    assert_int_equal(roster_trial_next(trial, "m"), 4);
    eb_roster_fail(&trial->roster, "m", 4, NULL, EB_ROSTER_BROKEN);
    assert_int_equal(roster_trial_next(trial, "m"), 4);
}

static void counts_loads_that_are_done_and_those_that_failed(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_make(trial, "m/2");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, NULL, EB_ROSTER_BROKEN); /* It was given up. */
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "broken", EB_ROSTER_BROKEN);
    assert_int_equal(roster_trial_next(trial, "m"), 1);
    roster_trial_put(trial, "m", 1);
    struct eb_roster_model *model = eb_roster_find(&trial->roster, "m");
    eb_roster_drop(&trial->roster, model, eb_roster_find_version(model, 1));
    eb_roster_forget(&trial->roster, "m", 1);
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    assert_int_equal(snapshot->loads.done, 1);
    assert_int_equal(snapshot->loads.failed, 1);
    assert_int_equal(snapshot->loads.freed, 1);
    eb_snapshot_free(snapshot);
}

static void tries_again_what_failed_by_the_settings_that_were(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    roster_trial_write_config(trial, "features: [{name: f, table: none}]\n");
    roster_trial_make(trial, "m/2");
    roster_trial_make(trial, "m/0");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "no such table", EB_ROSTER_BROKEN);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    roster_trial_write_config(trial, "versions: {keep: 2}\n");
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
}

static void does_not_blame_a_directory_for_the_one_before_it(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_begin_second(trial);
    assert_true(eb_roster_is_due(&trial->roster, "m", 2));
    roster_trial_make(trial, "m/2/x");
    roster_trial_look(trial);
    assert_false(eb_roster_is_due(&trial->roster, "m", 2));
    trial->told[0] = '\0';
    eb_roster_fail(&trial->roster, "m", 2, "half of it is another's", EB_ROSTER_BROKEN);
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
}

static void tries_again_what_failed_when_one_of_its_files_changes(void **state)
{
    struct roster_trial *trial = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write(&trial->scratch, "m/2/t.npy", "half", 4);
    eb_scratch_path(&trial->scratch, "m/2", path);
    roster_trial_make(trial, "m/1");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_note_files(&trial->roster, "m", 2, eb_repository_look_files(path));
    eb_roster_fail(&trial->roster, "m", 2, "it is cut short", EB_ROSTER_BROKEN);
    roster_trial_follow(trial);
    roster_trial_look(trial);
    assert_int_equal(roster_trial_served(trial, "m"), 1);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    eb_scratch_path(&trial->scratch, "m/2/t.npy", path);
    assert_int_equal(truncate(path, 8), 0);
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
    roster_trial_look(trial);
    assert_string_equal(trial->told, "");
}

static void tells_of_a_lack_of_memory_once(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    roster_trial_make(trial, "m/2");
    roster_trial_look(trial);
    for (int i = 0; i < 3; i++) {
        trial->told[0] = '\0';
        assert_int_equal(roster_trial_next(trial, "m"), 2);
        eb_roster_fail(&trial->roster, "m", 2, i == 0 ? "1 too few" : "2 too few", EB_ROSTER_SHORT);
        assert_string_equal(trial->told, i == 0 ? "failed m 2 1 too few\n" : "");
        roster_trial_look(trial);
        assert_int_equal(roster_trial_next(trial, "m"), 0);
        eb_roster_forgive_short(&trial->roster);
    }
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "unread", EB_ROSTER_HINDERED);
    assert_string_equal(trial->told, "failed m 2 unread\n");
}

/* A pause that is at least so long, and at most a quarter longer. */
static void wait_out(struct roster_trial *trial, enum eb_roster_failure failure, uint64_t least_ms)
{
    eb_roster_fail(&trial->roster, "m", 2, "it may pass", failure);
    roster_trial_decide(trial);
    assert_in_range(trial->wake_ms - trial->now_ms, least_ms, least_ms + least_ms / 4);
    /* A look does not end it. */
    trial->now_ms = trial->wake_ms - 1;
    roster_trial_look(trial);
    eb_roster_forgive(&trial->roster, trial->now_ms);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    roster_trial_decide(trial);
    assert_int_equal(trial->wake_ms, trial->now_ms + 1);
    trial->now_ms++;
    eb_roster_forgive(&trial->roster, trial->now_ms);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
}

static void expect_longer_pauses(struct roster_trial *trial, enum eb_roster_failure failure)
{
    static const uint64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300};
    roster_trial_write_config(trial, "versions: {keep_s: 0}");
    roster_trial_begin_second(trial);
    for (size_t i = 0; i < sizeof pauses_s / sizeof pauses_s[0]; i++) {
        wait_out(trial, failure, pauses_s[i] * 1000);
    }
    /* What is another directory has not failed yet. */
    roster_trial_make(trial, "m/2/x");
    roster_trial_look(trial);
    eb_roster_fail(&trial->roster, "m", 2, "it has changed", EB_ROSTER_BROKEN);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
    roster_trial_decide(trial);
    assert_true(trial->wake_ms == UINT64_MAX);
}

static void pauses_ever_longer_before_it_tries_again_what_was_hindered(void **state)
{
    expect_longer_pauses(*state, EB_ROSTER_HINDERED);
}

/* What it takes to find out that memory is short may be much. */
static void pauses_ever_longer_before_it_tries_again_what_lacked_memory(void **state)
{
    expect_longer_pauses(*state, EB_ROSTER_SHORT);
}

static void memory_ends_only_the_pauses_of_what_lacked_it(void **state)
{
    struct roster_trial *trial = *state;
    roster_trial_begin_second(trial);
    eb_roster_fail(&trial->roster, "m", 2, "unread", EB_ROSTER_HINDERED);
    roster_trial_decide(trial);
    eb_roster_forgive_short(&trial->roster);
    assert_int_equal(roster_trial_next(trial, "m"), 0);
    eb_roster_forgive(&trial->roster, trial->wake_ms);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "too large", EB_ROSTER_SHORT);
    roster_trial_decide(trial);
    eb_roster_forgive_short(&trial->roster);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
    roster_trial_put(trial, "m", 2);
}

EB_TEST_GROUP(roster_retry)
{
#define TRIAL(test) cmocka_unit_test_setup_teardown(test, roster_trial_open, roster_trial_close)
    const struct CMUnitTest tests[] = {
        TRIAL(leaves_the_old_one_where_the_new_one_fails),
        TRIAL(tries_again_what_lacked_memory_when_some_is_freed),
        TRIAL(counts_loads_that_are_done_and_those_that_failed),
        TRIAL(tries_again_what_failed_by_the_settings_that_were),
        TRIAL(does_not_blame_a_directory_for_the_one_before_it),
        TRIAL(tries_again_what_failed_when_one_of_its_files_changes),
        TRIAL(tells_of_a_lack_of_memory_once),
        TRIAL(pauses_ever_longer_before_it_tries_again_what_was_hindered),
        TRIAL(pauses_ever_longer_before_it_tries_again_what_lacked_memory),
        TRIAL(memory_ends_only_the_pauses_of_what_lacked_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
