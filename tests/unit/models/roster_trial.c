#include "tests/unit/models/roster_trial.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

__attribute__((format(printf, 2, 3))) static void note(
    struct roster_trial *trial, const char *format, ...)
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

static void on_missing(void *context, const char *model, uint64_t version, const char *label)
{
    note(context, "missing %s %" PRIu64 " %s\n", model, version, label ? label : "to serve");
}

static void on_changed(void *context, const char *model, uint64_t version)
{
    note(context, "changed %s %" PRIu64 "\n", model, version);
}

static void on_described(void *context, const char *model, uint64_t version)
{
    note(context, "described %s %" PRIu64 "\n", model, version);
}

static void on_evicted(void *context, const char *model, uint64_t version, const char *setting)
{
    note(context, "evicted %s %" PRIu64 " for %s\n", model, version, setting);
}

int roster_trial_open(void **state)
{
    struct roster_trial *trial = calloc(1, sizeof *trial);
    eb_scratch_init(&trial->scratch);
    trial->now_ms = KEEP_MS;
    trial->roster.events = (struct eb_roster_events){on_failed, on_config_failed, on_served,
        on_retired, on_missing, on_changed, on_described, on_evicted, trial};
    *state = trial;
    return 0;
}

int roster_trial_close(void **state)
{
    struct roster_trial *trial = *state;
    eb_roster_deinit(&trial->roster);
    eb_repository_deinit(&trial->seen);
    eb_scratch_deinit(&trial->scratch);
    free(trial);
    return 0;
}

void roster_trial_make(struct roster_trial *trial, const char *name)
{
    eb_scratch_make_directory(&trial->scratch, name);
}

void roster_trial_take_away(struct roster_trial *trial, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial->scratch, name, path);
    assert_int_equal(rmdir(path), 0);
}

void roster_trial_write_config(struct roster_trial *trial, const char *text)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial->scratch, "m/model.yaml", path);
    (void)unlink(path);
    eb_scratch_write(&trial->scratch, "m/model.yaml", text, strlen(text));
}

void roster_trial_look(struct roster_trial *trial)
{
    trial->told[0] = '\0';
    struct eb_repository found;
    struct eb_file_fault fault;
    eb_roster_watch(&trial->roster, &trial->seen);
    if (!eb_repository_scan(trial->scratch.root, 255, &trial->seen, &found, &fault)) {
        fail_msg("%s", fault.text);
    }
    eb_repository_deinit(&trial->seen);
    trial->seen = found;
    assert_true(eb_roster_update(&trial->roster, &trial->seen));
}

void roster_trial_decide(struct roster_trial *trial)
{
    trial->told[0] = '\0';
    eb_roster_decide(&trial->roster, trial->now_ms, &trial->wake_ms);
}

uint64_t roster_trial_next(struct roster_trial *trial, const char *model)
{
    struct eb_roster_version *version;
    const struct eb_roster_model *found = eb_roster_next(&trial->roster, &version);
    if (!found) {
        return 0;
    }
    assert_string_equal(found->name, model);
    return version->number;
}

void roster_trial_put(struct roster_trial *trial, const char *model, uint64_t number)
{
    struct eb_model_version *loaded = calloc(1, sizeof *loaded);
    loaded->model = strdup(model);
    loaded->version = number;
    loaded->tables.bytes = VERSION_BYTES;
    loaded->settings = eb_model_settings_take(eb_roster_find(&trial->roster, model)->settings);
    atomic_init(&loaded->references, 1);
    eb_roster_put(&trial->roster, loaded, trial->now_ms);
}

void roster_trial_settle(struct roster_trial *trial, const char *model)
{
    uint64_t number;
    while ((number = roster_trial_next(trial, model)) != 0) {
        roster_trial_put(trial, model, number);
    }
    roster_trial_decide(trial);
}

void roster_trial_follow(struct roster_trial *trial)
{
    roster_trial_look(trial);
    roster_trial_settle(trial, "m");
}

void roster_trial_begin_second(struct roster_trial *trial)
{
    roster_trial_make(trial, "m/1");
    roster_trial_follow(trial);
    roster_trial_make(trial, "m/2");
    roster_trial_look(trial);
    assert_int_equal(roster_trial_next(trial, "m"), 2);
}

uint64_t roster_trial_served(struct roster_trial *trial, const char *name)
{
    const struct eb_roster_model *model = eb_roster_find(&trial->roster, name);
    return model && model->served ? model->served->version : 0;
}

struct eb_snapshot *roster_trial_snapshot(struct roster_trial *trial)
{
    struct eb_snapshot *snapshot = eb_roster_snapshot(&trial->roster);
    assert_non_null(snapshot);
    return snapshot;
}

enum eb_version_state roster_trial_state_of(
    struct roster_trial *trial, const char *name, uint64_t number)
{
    struct eb_snapshot *snapshot = roster_trial_snapshot(trial);
    enum eb_version_state state = 0;
    const struct eb_snapshot_model *model = eb_snapshot_find(snapshot, name);
    for (size_t i = 0; model && i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            state = model->versions[i].state;
        }
    }
    eb_snapshot_free(snapshot);
    return state;
}
