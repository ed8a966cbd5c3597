#include "server/models/roster.h"

#include "tests/unit/models/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define KEEP_MS UINT64_C(600000)
#define TOLD_BYTES 4096
#define VERSION_BYTES 1000

/* A roster on a repository of empty directories, whose versions the test "loads". */
struct trial {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_roster roster;
    uint64_t now_ms;
    uint64_t wake_ms;
    char told[TOLD_BYTES]; /* by the roster's events */
};

__attribute__((format(printf, 2, 3))) static void note(struct trial *trial, const char *format, ...)
{
    size_t used = strlen(trial->told);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trial->told + used, sizeof trial->told - used, format, arguments);
    va_end(arguments);
}

static void on_failed(void *context, const char *model, uint64_t version, const char *why)
{
    note(context, "failed %s %d %s\n", model, (int)version, why);
}

static void on_config_failed(void *context, const char *model, const char *why)
{
    note(context, "config %s %s\n", model, why);
}

static void on_served(void *context, const char *model, uint64_t version, uint64_t before)
{
    note(context, "served %s %d after %d\n", model, (int)version, (int)before);
}

static void on_retired(void *context, const char *model, uint64_t version)
{
    note(context, "retired %s %d\n", model, (int)version);
}

static int open_trial(void **state)
{
    struct trial *trial = calloc(1, sizeof *trial);
    eb_scratch_init(&trial->scratch);
    trial->now_ms = KEEP_MS;
    trial->roster.events =
        (struct eb_roster_events){on_failed, on_config_failed, on_served, on_retired, trial};
    *state = trial;
    return 0;
}

static int close_trial(void **state)
{
    struct trial *trial = *state;
    eb_roster_deinit(&trial->roster);
    eb_repository_deinit(&trial->seen);
    eb_scratch_deinit(&trial->scratch);
    free(trial);
    return 0;
}

static void make(struct trial *trial, const char *name)
{
    eb_scratch_make_directory(&trial->scratch, name);
}

static void take_away(struct trial *trial, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial->scratch, name, path);
    assert_int_equal(rmdir(path), 0);
}

static void write_config(struct trial *trial, const char *text)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial->scratch, "m/model.yaml", path);
    (void)unlink(path);
    eb_scratch_write(&trial->scratch, "m/model.yaml", text, strlen(text));
}

static void look(struct trial *trial)
{
    struct eb_repository found;
    struct eb_file_fault fault;
    if (!eb_repository_scan(trial->scratch.root, 255, &trial->seen, &found, &fault)) {
        fail_msg("%s", fault.text);
    }
    eb_repository_deinit(&trial->seen);
    trial->seen = found;
    assert_true(eb_roster_update(&trial->roster, &trial->seen));
}

static void decide(struct trial *trial)
{
    trial->told[0] = '\0';
    eb_roster_decide(&trial->roster, trial->now_ms, &trial->wake_ms);
}

/* What is to be loaded next; 0: nothing. */
static uint64_t next(struct trial *trial, const char *model)
{
    struct eb_roster_version *version;
    const struct eb_roster_model *found = eb_roster_next(&trial->roster, &version);
    if (!found) {
        return 0;
    }
    assert_string_equal(found->name, model);
    return version->number;
}

static void put(struct trial *trial, const char *model, uint64_t number)
{
    struct eb_model_version *loaded = calloc(1, sizeof *loaded);
    loaded->model = strdup(model);
    loaded->version = number;
    loaded->tables.bytes = VERSION_BYTES;
    atomic_init(&loaded->references, 1);
    eb_roster_put(&trial->roster, loaded, trial->now_ms);
}

/* Loads all there is to load and decides. */
static void settle(struct trial *trial, const char *model)
{
    uint64_t number;
    while ((number = next(trial, model)) != 0) {
        put(trial, model, number);
    }
    decide(trial);
}

static uint64_t served(struct trial *trial, const char *name)
{
    const struct eb_roster_model *model = eb_roster_find(&trial->roster, name);
    return model && model->served ? model->served->version : 0;
}

/* 0: it is not in the snapshot. */
static enum eb_version_state state_of(struct trial *trial, const char *name, uint64_t number)
{
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    enum eb_version_state state = 0;
    assert_non_null(snapshot);
    const struct eb_snapshot_model *model = eb_snapshot_find(snapshot, name);
    for (size_t i = 0; model && i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            state = model->versions[i].state;
        }
    }
    eb_snapshot_free(snapshot);
    return state;
}

static void serves_a_new_version_and_keeps_the_one_before(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/2");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_LOADING);
    assert_int_equal(state_of(trial, "m", 1), 0);
    put(trial, "m", 2);
    settle(trial, "m");
    assert_string_equal(trial->told, "served m 2 after 0\n");
    make(trial, "m/3");
    trial->now_ms += KEEP_MS;
    look(trial);
    settle(trial, "m");
    assert_string_equal(trial->told, "served m 3 after 2\n");
    assert_int_equal(state_of(trial, "m", 3), EB_VERSION_SERVING);
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_READY);
    assert_true(trial->wake_ms == trial->now_ms + KEEP_MS);
    trial->now_ms += KEEP_MS;
    decide(trial);
    assert_true(trial->wake_ms == UINT64_MAX);
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_READY);
    assert_false(eb_roster_make_room(&trial->roster, VERSION_BYTES + 1, trial->now_ms));
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_READY);
    assert_true(eb_roster_make_room(&trial->roster, VERSION_BYTES, trial->now_ms));
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_RETIRED);
    assert_false(eb_roster_make_room(&trial->roster, 1, trial->now_ms));
    eb_roster_forget(&trial->roster, "m", 2);
    assert_int_equal(state_of(trial, "m", 2), 0);
}

static void leaves_the_old_one_where_the_new_one_fails(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    make(trial, "m/2");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    trial->told[0] = '\0';
    eb_roster_fail(&trial->roster, "m", 2, "broken", EB_ROSTER_BROKEN);
    assert_string_equal(trial->told, "failed m 2 broken\n");
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 1);
    assert_int_equal(state_of(trial, "m", 2), EB_VERSION_FAILED);
    /* It is not tried again, until its directory is another one. */
    look(trial);
    assert_int_equal(next(trial, "m"), 0);
    make(trial, "m/2/x");
    look(trial);
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 2);
}

static void tries_again_what_lacked_memory_when_some_is_freed(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/2");
    look(trial);
    settle(trial, "m");
    make(trial, "m/3");
    look(trial);
    settle(trial, "m");
    make(trial, "m/4");
    look(trial);
    assert_int_equal(next(trial, "m"), 4);
    eb_roster_fail(&trial->roster, "m", 4, "too large", EB_ROSTER_SHORT);
    assert_int_equal(next(trial, "m"), 0);
    struct eb_roster_model *model = eb_roster_find(&trial->roster, "m");
    eb_roster_drop(&trial->roster, model, eb_roster_find_version(model, 2));
    assert_int_equal(next(trial, "m"), 0);
    eb_roster_forget(&trial->roster, "m", 2);
    assert_int_equal(next(trial, "m"), 4);
    eb_roster_fail(&trial->roster, "m", 4, NULL, EB_ROSTER_BROKEN);
    assert_int_equal(next(trial, "m"), 4);
}

static void loads_what_is_to_be_served_before_what_has_a_label(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/2");
    write_config(trial, "versions: {labels: [{name: stable, version: 1}]}\n");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    put(trial, "m", 2);
    make(trial, "n/1");
    look(trial);
    assert_int_equal(next(trial, "n"), 1);
    put(trial, "n", 1);
    settle(trial, "m");
    assert_int_equal(state_of(trial, "m", 1), EB_VERSION_READY);
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    assert_non_null(snapshot);
    assert_int_equal(eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), "stable"), 1);
    eb_snapshot_free(snapshot);
}

static void follows_model_yaml_and_passes_over_a_broken_one(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/2");
    look(trial);
    settle(trial, "m");
    write_config(trial, "versions: {serve: 1}\n");
    look(trial);
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 1);
    write_config(trial, "versions: {serve: none}\n");
    trial->told[0] = '\0';
    look(trial);
    eb_scratch_expect(trial->told, "config m ");
    eb_scratch_expect(trial->told, "/m/model.yaml");
    trial->told[0] = '\0';
    look(trial);
    assert_string_equal(trial->told, "");
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 1);
    write_config(trial, "versions: {serve: highest, keep_s: 0, keep: 1}\n");
    look(trial);
    settle(trial, "m");
    assert_string_equal(trial->told, "served m 2 after 1\nretired m 1\n");
}

static void waits_with_a_model_until_it_can_be_read(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    write_config(trial, "nonsense\n");
    make(trial, "a\tb/1");
    look(trial);
    eb_scratch_expect(trial->told, "config m ");
    eb_scratch_expect(trial->told, "failed a\tb 0 ");
    assert_int_equal(next(trial, ""), 0);
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    assert_non_null(snapshot);
    assert_int_equal(snapshot->count, 0);
    eb_snapshot_free(snapshot);
    write_config(trial, "versions: {}\n");
    look(trial);
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 1);
}

static void keeps_a_model_that_has_left_the_disk_for_its_time(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "n/1");
    look(trial);
    assert_int_equal(next(trial, "m"), 1);
    put(trial, "m", 1);
    settle(trial, "n");
    take_away(trial, "m/1");
    take_away(trial, "m");
    look(trial);
    trial->now_ms += KEEP_MS - 1;
    settle(trial, "n");
    assert_int_equal(served(trial, "m"), 1);
    trial->now_ms += KEEP_MS;
    settle(trial, "n");
    assert_int_equal(served(trial, "m"), 0);
    assert_int_equal(state_of(trial, "m", 1), EB_VERSION_RETIRED);
    eb_roster_forget(&trial->roster, "m", 1);
    look(trial);
    assert_null(eb_roster_find(&trial->roster, "m"));
    assert_int_equal(served(trial, "n"), 1);
}

static void shows_what_is_wrong_with_model_yaml_and_what_a_command_serves(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    trial->roster.is_news = false;
    write_config(trial, "versions: {serve: none}\n");
    look(trial);
    assert_true(trial->roster.is_news);
    trial->roster.models[0].commanded = 1;
    trial->roster.models[0].versions[0].is_held = true;
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    eb_scratch_expect(snapshot->models[0].config_fault, "/m/model.yaml");
    assert_int_equal(snapshot->models[0].commanded, 1);
    assert_true(snapshot->models[0].versions[0].is_held);
    eb_snapshot_free(snapshot);
    trial->roster.is_news = false;
    write_config(trial, "versions: {}\n");
    look(trial);
    assert_true(trial->roster.is_news);
    snapshot = eb_roster_snapshot(&trial->roster);
    assert_null(snapshot->models[0].config_fault);
    eb_snapshot_free(snapshot);
}

static void says_nothing_is_new_where_nothing_is(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/0");
    look(trial);
    assert_true(trial->roster.is_news);
    settle(trial, "m");
    assert_true(trial->roster.is_news);
    trial->roster.is_news = false;
    look(trial);
    decide(trial);
    assert_false(trial->roster.is_news);
    take_away(trial, "m/0");
    look(trial);
    assert_true(trial->roster.is_news);
}

static void knows_one_version_by_whatever_directory(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/007");
    make(trial, "m/6");
    look(trial);
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 7);
    /* A second one of the number is at fault; what is in memory has nothing to do with it. */
    trial->told[0] = '\0';
    make(trial, "m/7");
    look(trial);
    eb_scratch_expect(trial->told, "failed m 7 ");
    eb_scratch_expect(trial->told, "/m/7: another directory is version 7 too");
    trial->now_ms += 2 * KEEP_MS;
    settle(trial, "m");
    assert_string_equal(trial->told, "");
    assert_int_equal(served(trial, "m"), 7);
    take_away(trial, "m/007");
    look(trial);
    settle(trial, "m");
    assert_int_equal(served(trial, "m"), 7);
    assert_int_equal(state_of(trial, "m", 7), EB_VERSION_SERVING);
    assert_int_equal(eb_roster_find(&trial->roster, "m")->count, 2);
}

/* The version that the label leads to; 0: none. */
static uint64_t labelled(struct trial *trial, const char *label)
{
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    assert_non_null(snapshot);
    uint64_t number = eb_snapshot_find_label(eb_snapshot_find(snapshot, "m"), label);
    eb_snapshot_free(snapshot);
    return number;
}

static void moves_a_label_when_its_version_is_in_memory(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    make(trial, "m/2");
    write_config(
        trial, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 1}]}");
    look(trial);
    settle(trial, "m");
    assert_int_equal(labelled(trial, "a"), 1);
    make(trial, "m/3");
    write_config(
        trial, "versions: {serve: 2, keep_s: 0, keep: 1, labels: [{name: a, version: 3}]}");
    look(trial);
    assert_int_equal(next(trial, "m"), 3);
    decide(trial);
    assert_int_equal(labelled(trial, "a"), 1);
    assert_int_equal(state_of(trial, "m", 1), EB_VERSION_READY);
    eb_roster_fail(&trial->roster, "m", 3, "broken", EB_ROSTER_BROKEN);
    decide(trial);
    assert_int_equal(labelled(trial, "a"), 1);
    assert_int_equal(state_of(trial, "m", 1), EB_VERSION_READY);
    make(trial, "m/3/x");
    look(trial);
    settle(trial, "m");
    assert_int_equal(labelled(trial, "a"), 3);
    assert_string_equal(trial->told, "retired m 1\n");
}

static void tries_again_what_failed_by_the_settings_that_were(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    write_config(trial, "features: [{name: f, table: none}]\n");
    make(trial, "m/2");
    make(trial, "m/0");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "no such table", EB_ROSTER_BROKEN);
    assert_int_equal(next(trial, "m"), 0);
    write_config(trial, "versions: {keep: 2}\n");
    trial->told[0] = '\0';
    look(trial);
    assert_string_equal(trial->told, "");
    assert_int_equal(next(trial, "m"), 2);
    put(trial, "m", 2);
}

static void does_not_blame_a_directory_for_the_one_before_it(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    make(trial, "m/2");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    assert_true(eb_roster_is_due(&trial->roster, "m", 2));
    make(trial, "m/2/x");
    look(trial);
    assert_false(eb_roster_is_due(&trial->roster, "m", 2));
    trial->told[0] = '\0';
    eb_roster_fail(&trial->roster, "m", 2, "half of it is another's", EB_ROSTER_BROKEN);
    assert_string_equal(trial->told, "");
    assert_int_equal(next(trial, "m"), 2);
    put(trial, "m", 2);
}

static void tells_of_a_lack_of_memory_once(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    make(trial, "m/2");
    look(trial);
    for (int i = 0; i < 3; i++) {
        trial->told[0] = '\0';
        assert_int_equal(next(trial, "m"), 2);
        eb_roster_fail(&trial->roster, "m", 2, i == 0 ? "1 too few" : "2 too few", EB_ROSTER_SHORT);
        assert_string_equal(trial->told, i == 0 ? "failed m 2 1 too few\n" : "");
        look(trial);
        assert_int_equal(next(trial, "m"), 0);
        eb_roster_forgive(&trial->roster);
    }
    assert_int_equal(next(trial, "m"), 2);
    eb_roster_fail(&trial->roster, "m", 2, "unread", EB_ROSTER_HINDERED);
    assert_string_equal(trial->told, "failed m 2 unread\n");
    eb_roster_forgive(&trial->roster);
    assert_int_equal(next(trial, "m"), 2);
    put(trial, "m", 2);
}

static void serves_what_is_in_memory_while_a_higher_one_is_loaded(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    make(trial, "m/2");
    look(trial);
    assert_int_equal(next(trial, "m"), 2);
    make(trial, "m/3");
    look(trial);
    assert_true(eb_roster_is_due(&trial->roster, "m", 2));
    put(trial, "m", 2);
    decide(trial);
    assert_string_equal(trial->told, "served m 2 after 1\n");
    assert_int_equal(next(trial, "m"), 3);
    write_config(trial, "versions: {serve: 1}\n");
    look(trial);
    assert_false(eb_roster_is_due(&trial->roster, "m", 3));
    put(trial, "m", 3);
    decide(trial);
    assert_string_equal(trial->told, "served m 1 after 2\n");
}

static void keeps_what_is_served_while_its_directory_cannot_be_read(void **state)
{
    struct trial *trial = *state;
    make(trial, "m/1");
    look(trial);
    settle(trial, "m");
    struct eb_repository_model broken = {.name = trial->seen.models[0].name,
        .path = trial->seen.models[0].path,
        .fault = "unreadable"};
    const struct eb_repository seen = {.count = 1, .models = &broken};
    assert_true(eb_roster_update(&trial->roster, &seen));
    assert_true(eb_roster_update(&trial->roster, &seen));
    trial->now_ms += 2 * KEEP_MS;
    decide(trial);
    assert_int_equal(served(trial, "m"), 1);
    look(trial);
    assert_null(eb_roster_find(&trial->roster, "m")->fault);
}

int main(void)
{
#define TRIAL(test) cmocka_unit_test_setup_teardown(test, open_trial, close_trial)
    const struct CMUnitTest tests[] = {
        TRIAL(serves_a_new_version_and_keeps_the_one_before),
        TRIAL(leaves_the_old_one_where_the_new_one_fails),
        TRIAL(tries_again_what_lacked_memory_when_some_is_freed),
        TRIAL(loads_what_is_to_be_served_before_what_has_a_label),
        TRIAL(follows_model_yaml_and_passes_over_a_broken_one),
        TRIAL(waits_with_a_model_until_it_can_be_read),
        TRIAL(keeps_a_model_that_has_left_the_disk_for_its_time),
        TRIAL(shows_what_is_wrong_with_model_yaml_and_what_a_command_serves),
        TRIAL(says_nothing_is_new_where_nothing_is),
        TRIAL(knows_one_version_by_whatever_directory),
        TRIAL(moves_a_label_when_its_version_is_in_memory),
        TRIAL(tries_again_what_failed_by_the_settings_that_were),
        TRIAL(does_not_blame_a_directory_for_the_one_before_it),
        TRIAL(tells_of_a_lack_of_memory_once),
        TRIAL(serves_what_is_in_memory_while_a_higher_one_is_loaded),
        TRIAL(keeps_what_is_served_while_its_directory_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
