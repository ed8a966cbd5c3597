#include "tests/unit/models/registry_fixture.h"

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
    struct registry_fixture *fixture, const char *format, ...)
{
    size_t used = strlen(fixture->told);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fixture->told + used, sizeof fixture->told - used, format, arguments);
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

static void on_suspected(void *context, const char *model, uint64_t version, unsigned deaths)
{
    note(context, "suspected %s %" PRIu64 " of %u\n", model, version, deaths);
}

static void on_postponed(void *context, const char *model, uint64_t version, uint64_t wait_ms)
{
    (void)wait_ms;
    note(context, "postponed %s %" PRIu64 "\n", model, version);
}

int registry_fixture_open(void **state)
{
    struct registry_fixture *fixture = calloc(1, sizeof *fixture);
    eb_scratch_init(&fixture->scratch);
    fixture->now_ms = KEEP_MS;
    fixture->registry.events =
        (struct eb_registry_events){on_failed, on_config_failed, on_served, on_retired, on_missing,
            on_changed, on_described, on_evicted, on_suspected, on_postponed, fixture};
    *state = fixture;
    return 0;
}

int registry_fixture_close(void **state)
{
    struct registry_fixture *fixture = *state;
    eb_registry_deinit(&fixture->registry);
    eb_repository_deinit(&fixture->seen);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

void registry_fixture_make(struct registry_fixture *fixture, const char *name)
{
    eb_scratch_make_directory(&fixture->scratch, name);
}

void registry_fixture_take_away(struct registry_fixture *fixture, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_int_equal(rmdir(path), 0);
}

void registry_fixture_write_config(struct registry_fixture *fixture, const char *text)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, "m/model.yaml", path);
    (void)unlink(path);
    eb_scratch_write_text(&fixture->scratch, "m/model.yaml", text);
}

void registry_fixture_look(struct registry_fixture *fixture)
{
    fixture->told[0] = '\0';
    struct eb_repository found;
    struct eb_failure failure;
    eb_registry_watch(&fixture->registry, &fixture->seen);
    if (!eb_repository_scan(fixture->scratch.root,
            &(struct eb_repository_terms){.name_bytes_max = 255}, &fixture->seen, &found,
            &failure)) {
        fail_msg("%s", failure.text);
    }
    eb_repository_deinit(&fixture->seen);
    fixture->seen = found;
    assert_true(eb_registry_update(&fixture->registry, &fixture->seen));
}

void registry_fixture_decide(struct registry_fixture *fixture)
{
    fixture->told[0] = '\0';
    eb_registry_decide(&fixture->registry, fixture->now_ms, &fixture->wake_ms);
}

uint64_t registry_fixture_next(struct registry_fixture *fixture, const char *model)
{
    struct eb_registry_version *version;
    const struct eb_registry_model *found = eb_registry_next(&fixture->registry, &version);
    if (!found) {
        return 0;
    }
    assert_string_equal(found->name, model);
    return version->number;
}

void registry_fixture_put(struct registry_fixture *fixture, const char *model, uint64_t number)
{
    struct eb_model_version *loaded = calloc(1, sizeof *loaded);
    loaded->model = strdup(model);
    loaded->version = number;
    loaded->tables.bytes = VERSION_BYTES;
    loaded->settings =
        eb_model_settings_take(eb_registry_find(&fixture->registry, model)->settings);
    atomic_init(&loaded->references, 1);
    eb_registry_note_loaded(&fixture->registry, loaded, fixture->now_ms);
}

void registry_fixture_settle(struct registry_fixture *fixture, const char *model)
{
    uint64_t number;
    while ((number = registry_fixture_next(fixture, model)) != 0) {
        registry_fixture_put(fixture, model, number);
    }
    registry_fixture_decide(fixture);
}

void registry_fixture_follow(struct registry_fixture *fixture)
{
    registry_fixture_look(fixture);
    registry_fixture_settle(fixture, "m");
}

void registry_fixture_begin_second(struct registry_fixture *fixture)
{
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    registry_fixture_make(fixture, "m/2");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
}

uint64_t registry_fixture_served(struct registry_fixture *fixture, const char *name)
{
    const struct eb_registry_model *model = eb_registry_find(&fixture->registry, name);
    return model && model->served ? model->served->version : 0;
}

struct eb_snapshot *registry_fixture_snapshot(struct registry_fixture *fixture)
{
    struct eb_snapshot *snapshot = eb_registry_snapshot(&fixture->registry);
    assert_non_null(snapshot);
    return snapshot;
}

enum eb_version_state registry_fixture_state_of(
    struct registry_fixture *fixture, const char *name, uint64_t number)
{
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
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
