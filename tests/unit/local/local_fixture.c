#include "tests/unit/local/local_fixture.h"

#include "tests/lib/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TABLES 2

void eb_local_fixture_make(struct eb_local_fixture *fixture)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
}

void eb_local_fixture_init(struct eb_local_fixture *fixture)
{
    *fixture = (struct eb_local_fixture){.dir = {.descriptor = -1}};
    eb_set_fixture_init(&fixture->files);
    if (eb_resident_fixture_make(fixture->root)) {
        eb_local_fixture_make(fixture);
    }
}

/* Deletes a version with its files. */
static void drop_version(struct eb_local_fixture *fixture, size_t number)
{
    eb_table_set_deinit(&fixture->sets[number]);
    fixture->version_count--;
    memmove(&fixture->sets[number], &fixture->sets[number + 1],
        (fixture->version_count - number) * sizeof fixture->sets[0]);
    memmove(&fixture->numbers[number], &fixture->numbers[number + 1],
        (fixture->version_count - number) * sizeof fixture->numbers[0]);
}

/* Deletes all versions, and closes the directory. */
static void close_directory(struct eb_local_fixture *fixture)
{
    while (fixture->version_count > 0) {
        drop_version(fixture, fixture->version_count - 1);
    }
    eb_resident_dir_close(&fixture->dir);
}

void eb_local_fixture_remove(struct eb_local_fixture *fixture)
{
    char path[EB_SCRATCH_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s", fixture->dir.path);
    close_directory(fixture);
    eb_resident_fixture_remove(path);
}

void eb_local_fixture_deinit(struct eb_local_fixture *fixture)
{
    close_directory(fixture);
    eb_resident_fixture_remove(fixture->root);
    eb_set_fixture_deinit(&fixture->files);
}

float eb_local_fixture_value(uint64_t version, uint64_t row, uint64_t column)
{
    return (float)((row * 31 + column * 7 + version * 13) % 257) / 64 - 2;
}

static void write_table(
    const struct eb_local_fixture *fixture, const char *name, uint64_t version, uint64_t row_count)
{
    float *values = malloc(row_count * EB_LOCAL_FIXTURE_DIM * sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < row_count * EB_LOCAL_FIXTURE_DIM; i++) {
        values[i] =
            eb_local_fixture_value(version, i / EB_LOCAL_FIXTURE_DIM, i % EB_LOCAL_FIXTURE_DIM);
    }
    eb_set_fixture_write_npy(&fixture->files, name, EB_STORAGE_F32,
        (uint64_t[]){row_count, EB_LOCAL_FIXTURE_DIM}, values);
    free(values);
}

/* Loads the version that was written. */
static void load_version(
    struct eb_local_fixture *fixture, uint64_t version, struct eb_table_set *set)
{
    struct eb_failure failure = {.text = ""};
    struct eb_model_config config;
    eb_model_config_init(&config);
    if (fixture->yaml && !eb_model_config_parse((const uint8_t *)fixture->yaml,
                             strlen(fixture->yaml), 255, &config, &failure)) {
        fail_msg("%s", failure.text);
    }
    struct eb_table_options options = {
        .row_bytes_max = 65536,
        .name_bytes_max = 255,
        .resident = {.dir = &fixture->dir,
            .may_be_small = true,
            .embag_version = "1.2.3",
            .model = "m",
            .version = version},
        .config = &config,
    };
    if (!eb_set_load(fixture->files.scratch.root, &options, NULL, set, &failure)) {
        fail_msg("%s", failure.text);
    }
    eb_model_config_deinit(&config);
}

void eb_local_fixture_publish(struct eb_local_fixture *fixture, uint64_t version, bool is_alone)
{
    if (fixture->root[0] == '\0') {
        skip();
    }
    assert_true(fixture->version_count < EB_LOCAL_FIXTURE_VERSIONS_MAX);
    write_table(fixture, "large.npy", version, EB_LOCAL_FIXTURE_LARGE_ROWS);
    write_table(fixture, "small.npy", version, EB_LOCAL_FIXTURE_SMALL_ROWS);
    memmove(&fixture->sets[1], &fixture->sets[0], fixture->version_count * sizeof fixture->sets[0]);
    memmove(&fixture->numbers[1], &fixture->numbers[0],
        fixture->version_count * sizeof fixture->numbers[0]);
    load_version(fixture, version, &fixture->sets[0]);
    fixture->numbers[0] = version;
    size_t before = fixture->version_count++;
    if (!is_alone || before == 0) {
        eb_local_fixture_record(fixture, true, NULL);
        return;
    }
    /* A server writes the record before it deletes files. */
    fixture->version_count = 1;
    eb_local_fixture_record(fixture, true, NULL);
    fixture->version_count = before + 1;
    while (fixture->version_count > 1) {
        drop_version(fixture, fixture->version_count - 1);
    }
}

static void describe_set(
    const struct eb_table_set *set, const char *file, struct eb_served_table tables[TABLES])
{
    assert_int_equal(set->count, TABLES);
    for (size_t i = 0; i < TABLES; i++) {
        const struct eb_named_table *table = &set->tables[i];
        const struct eb_table_mapping *mapping = eb_table_memory_find(&set->memory, table->base);
        tables[i] = (struct eb_served_table){
            .name = table->name, .unknown_row = table->table.unknown_row, .slot = table->file_slot};
        (void)snprintf(tables[i].file, sizeof tables[i].file, "%s", file ? file : mapping->name);
    }
}

void eb_local_fixture_record(struct eb_local_fixture *fixture, bool is_complete, const char *file)
{
    struct eb_failure failure = {.text = ""};
    struct eb_served_version versions[EB_LOCAL_FIXTURE_VERSIONS_MAX] = {0};
    struct eb_served_table tables[EB_LOCAL_FIXTURE_VERSIONS_MAX][TABLES];
    for (size_t i = 0; i < fixture->version_count; i++) {
        describe_set(&fixture->sets[i], i == 0 ? file : NULL, tables[i]);
        versions[i] = (struct eb_served_version){.version = fixture->numbers[i],
            .digest = fixture->sets[i].digest,
            .is_complete = i > 0 || is_complete,
            .model_yaml = (char *)fixture->yaml,
            .manifest_yaml = (char *)fixture->manifest_yaml,
            .part = {1, fixture->manifest_yaml ? 3 : 0},
            .table_count = i > 0 || is_complete ? TABLES : 0,
            .tables = tables[i]};
    }
    struct eb_served_model model = {
        .name = "m", .version_count = fixture->version_count, .versions = versions};
    struct eb_served_record record = {.model_count = 1, .models = &model};
    size_t size;
    void *bytes = eb_served_record_encode(&record, &size, &failure);
    if (!bytes ||
        !eb_resident_dir_write(&fixture->dir, EB_SERVED_RECORD_NAME, bytes, size, &failure)) {
        fail_msg("%s", failure.text);
    }
    free(bytes);
}

/* The search of eb_local_fixture_path. */
struct search {
    const char *suffix;
    char name[EB_RESIDENT_NAME_BYTES];
};

static bool note_name(void *context, const char *name)
{
    struct search *search = context;
    size_t bytes = strlen(name);
    if (bytes > 2 && strcmp(name + bytes - 2, search->suffix) == 0) {
        (void)snprintf(search->name, sizeof search->name, "%s", name);
    }
    return true;
}

void eb_local_fixture_path(
    const struct eb_local_fixture *fixture, const char *suffix, char path[EB_SCRATCH_PATH_BYTES])
{
    struct search search = {.suffix = suffix};
    struct eb_failure failure;
    assert_true(eb_resident_dir_list(&fixture->dir, note_name, &search, &failure));
    assert_true(search.name[0] != '\0');
    (void)snprintf(path, EB_SCRATCH_PATH_BYTES, "%s/%s", fixture->dir.path, search.name);
}

/* ---- a reader ---- */

int eb_local_host_set_up(void **state)
{
    struct eb_local_host *host = calloc(1, sizeof *host);
    if (!host) {
        return -1;
    }
    eb_local_fixture_init(&host->fixture);
    *state = host;
    return 0;
}

int eb_local_host_tear_down(void **state)
{
    struct eb_local_host *host = *state;
    eb_faults_disarm();
    embag_local_reader_close(host->reader);
    embag_local_close(host->local);
    eb_local_fixture_deinit(&host->fixture);
    free(host);
    return 0;
}

void eb_local_host_open(struct eb_local_host *host)
{
    if (embag_local_open(host->fixture.root, &host->local, &host->error) != EMBAG_OK ||
        embag_local_reader_open(host->local, &host->reader, &host->error) != EMBAG_OK) {
        fail_msg("%s", host->error.text);
    }
}
