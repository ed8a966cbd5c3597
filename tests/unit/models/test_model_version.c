#include "server/models/model_version.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"
#define NPY_1T "{'descr': '<f4', 'fortran_order': False, 'shape': (34359738368, 8), }"
#define THREADS 4
#define TURNS 10000

static const struct eb_table_options options = {
    .row_bytes_max = 65536, .name_bytes_max = 255, .group_features_max = 2};

static int set_up(void **state)
{
    if (eb_scratch_set_up(state) != 0) {
        return -1;
    }
    eb_scratch_write_npy(*state, "1/t.npy", NPY_5X2, 40);
    return 0;
}

/* Returns NULL on failure, with *failure set. */
static struct eb_model_version *load(const struct eb_scratch *scratch, const char *name,
    struct eb_model_settings *settings, struct eb_failure *failure)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, name, path);
    struct eb_version_source source = {
        .model = "m", .version = 7, .path = path, .settings = settings};
    return eb_model_version_load(&source, &options, NULL, failure);
}

static void lives_until_its_last_reference(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    struct eb_model_settings *settings = eb_model_settings_create();
    struct eb_model_version *version = load(scratch, "1", settings, &failure);
    assert_non_null(version);
    assert_string_equal(version->model, "m");
    assert_int_equal(version->version, 7);
    assert_ptr_equal(version->settings, settings);
    eb_model_settings_give(settings);
    assert_ptr_equal(eb_model_version_take(version), version);
    eb_model_version_give(version);
    const struct eb_named_table *table = eb_table_set_find(&version->tables, "t");
    assert_non_null(table);
    assert_int_equal(((const uint8_t *)table->table.rows)[39], 40);
    assert_int_equal(version->settings->config.keep, 2);
    eb_model_version_give(version);
}

static void says_why_it_does_not_load(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    eb_scratch_write(scratch, "2/t.npy", "junk", 4);
    assert_null(load(scratch, "2", NULL, &failure));
    eb_scratch_expect(failure.text, "/2/t.npy: byte 0: not an npy file");
}

static bool give_up(void *context, uint64_t bytes)
{
    uint64_t *told = context;
    *told += bytes;
    return false;
}

static void gives_up_when_it_is_told_to(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure;
    uint64_t told = 0;
    eb_scratch_path(scratch, "1", path);
    struct eb_version_source source = {.model = "m", .version = 7, .path = path};
    struct eb_load_progress progress = {.go_on = give_up, .context = &told};
    assert_null(eb_model_version_load(&source, &options, &progress, &failure));
    assert_int_equal(told, 40);
    eb_scratch_expect(failure.text, "/1/t.npy: the load was cancelled");
}

static unsigned unused_count;

static void on_unused(struct eb_model_version *version)
{
    assert_null(version->owner);
    unused_count++;
}

static void is_freed_by_whom_it_is_handed_to(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    struct eb_model_version *version = load(scratch, "1", NULL, &failure);
    assert_non_null(version);
    version->on_unused = on_unused;
    unused_count = 0;
    eb_model_version_give(eb_model_version_take(version));
    assert_int_equal(unused_count, 0);
    eb_model_version_give(version);
    assert_int_equal(unused_count, 1);
    eb_model_version_free(version);
}

static void *take_and_give(void *version)
{
    for (int i = 0; i < TURNS; i++) {
        eb_model_version_give(eb_model_version_take(version));
    }
    return NULL;
}

static void counts_references_of_many_threads(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    struct eb_model_version *version = load(scratch, "1", NULL, &failure);
    assert_non_null(version);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, version), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&version->references), 1);
    eb_model_version_give(version);
}

static void note_missing(void *context, uint64_t missing_bytes)
{
    *(uint64_t *)context = missing_bytes;
}

/* Returns how much memory the version lacks. */
static uint64_t find_missing(const struct eb_scratch *scratch, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure;
    uint64_t missing_bytes = 0;
    eb_scratch_path(scratch, name, path);
    struct eb_version_source source = {.model = "m", .version = 7, .path = path};
    struct eb_load_progress progress = {.run_short = note_missing, .context = &missing_bytes};
    assert_null(eb_model_version_load(&source, &options, &progress, &failure));
    return missing_bytes;
}

static void tells_how_much_memory_is_missing(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_scratch_table table;
    eb_scratch_write(scratch, "2/t.npy", "junk", 4);
    assert_true(find_missing(scratch, "2") == 0);
    eb_scratch_npy(&table, 1, NPY_1T, 0);
    eb_scratch_write(scratch, "3/t.npy", table.bytes, table.size);
    eb_scratch_path(scratch, "3/t.npy", path);
    assert_int_equal(truncate(path, (off_t)table.size + (INT64_C(1) << 40)), 0);
    assert_in_range(find_missing(scratch, "3"), 1, UINT64_C(1) << 40);
}

/* Like load, but with the settings of a model.yaml. */
static struct eb_model_version *load_described(
    const struct eb_scratch *scratch, const char *yaml, struct eb_failure *failure)
{
    struct eb_model_settings *settings = eb_model_settings_create();
    assert_true(eb_model_config_parse(
        (const uint8_t *)yaml, strlen(yaml), 255, &settings->config, failure));
    struct eb_model_version *version = load(scratch, "1", settings, failure);
    eb_model_settings_give(settings);
    return version;
}

static void stores_tables_as_its_model_says(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    struct eb_model_version *version =
        load_described(scratch, "tables: [{name: t, storage: f16}]", &failure);
    assert_non_null(version);
    assert_int_equal(version->tables.tables[0].table.storage, EB_STORAGE_F16);
    eb_model_version_give(version);
}

static void refuses_a_group_that_nobody_may_ask_for(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    struct eb_model_version *version = load_described(scratch,
        "features: [{name: f, table: t}]\ngroups: [{name: g, features: [f, f]}]", &failure);
    assert_non_null(version);
    eb_model_version_give(version);
    assert_null(load_described(scratch,
        "features: [{name: f, table: t}]\ngroups: "
        "[{name: h, features: [f, f]}, {name: g, features: [f, f, f]}]",
        &failure));
    eb_scratch_expect(failure.text, "/1: model.yaml: group 'g' has 3 features");
    eb_scratch_expect(failure.text, "may ask for 2; raise queries_max");
}

EB_TEST_GROUP(model_version)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(lives_until_its_last_reference),
        WITH_ROOT(says_why_it_does_not_load),
        WITH_ROOT(gives_up_when_it_is_told_to),
        WITH_ROOT(is_freed_by_whom_it_is_handed_to),
        WITH_ROOT(counts_references_of_many_threads),
        WITH_ROOT(tells_how_much_memory_is_missing),
        WITH_ROOT(stores_tables_as_its_model_says),
        WITH_ROOT(refuses_a_group_that_nobody_may_ask_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
