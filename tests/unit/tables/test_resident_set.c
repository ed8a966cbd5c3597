/* Sets whose tables lie in resident files, and sets that several threads load. */
#include "server/tables/resident_set.h"

#include "server/tables/set_load.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/resident_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS 40000 /* of 32 f32, so that the table has a file of its own */
#define SMALL_ROWS 5

struct fixture {
    struct eb_set_fixture files;
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
    struct eb_table_options options;
    float *values; /* [ROWS * 32] */
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    float *values = fixture ? malloc(ROWS * 32 * sizeof *values) : NULL;
    if (!values) {
        return -1;
    }
    for (size_t i = 0; i < (size_t)ROWS * 32; i++) {
        values[i] = (float)((i * 2654435761u) % 1000) / 500 - 1;
    }
    fixture->values = values;
    eb_set_fixture_init(&fixture->files);
    eb_set_fixture_write_npy(
        &fixture->files, "large.npy", EB_STORAGE_F32, (uint64_t[]){ROWS, 32}, values);
    eb_set_fixture_write_npy(
        &fixture->files, "small.npy", EB_STORAGE_F32, (uint64_t[]){SMALL_ROWS, 32}, values);
    eb_set_fixture_write_npy(
        &fixture->files, "none.npy", EB_STORAGE_F32, (uint64_t[]){0, 32}, values);
    fixture->options =
        (struct eb_table_options){.row_bytes_max = 65536, .name_bytes_max = 255, .load_threads = 2};
    fixture->dir.descriptor = -1;
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    eb_set_fixture_deinit(&fixture->files);
    free(fixture->values);
    free(fixture);
    return 0;
}

/* Makes the tables resident. Skips the test if there is no tmpfs. */
static void keep_in_files(struct fixture *fixture)
{
    struct eb_failure failure = {.text = ""};
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (!eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->options.resident = (struct eb_resident_options){.dir = &fixture->dir,
        .may_be_small = true,
        .embag_version = "1.2.3",
        .model = "m",
        .version = 1};
}

static void load(struct fixture *fixture, struct eb_table_set *set)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_set_load(fixture->files.scratch.root, &fixture->options, NULL, set, &failure)) {
        fail_msg("%s", failure.text);
    }
}

/* Checks that the set has the values that were written. */
static void check_values(const struct fixture *fixture, const struct eb_table_set *set)
{
    const struct eb_named_table *large = eb_table_set_find(set, "large");
    const struct eb_named_table *small = eb_table_set_find(set, "small");
    const struct eb_named_table *none = eb_table_set_find(set, "none");
    assert_non_null(large);
    assert_non_null(small);
    assert_non_null(none);
    assert_memory_equal(large->base, fixture->values, (size_t)ROWS * 32 * sizeof(float));
    assert_memory_equal(small->base, fixture->values, (size_t)SMALL_ROWS * 32 * sizeof(float));
    assert_int_equal(none->table.row_count, 0);
}

/* Checks that all tables are counted as lying in files of a tmpfs. */
static void expect_in_files(const struct eb_table_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        assert_true(set->tables[i].is_in_file);
    }
    assert_true(set->pages.bytes >= (uint64_t)ROWS * 32 * sizeof(float));
    assert_memory_equal(&set->file_pages, &set->pages, sizeof set->pages);
    assert_int_equal(set->file_fs, EB_RESIDENT_TMPFS);
}

static void counts_no_table_in_a_file_without_a_directory(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    load(fixture, &set);
    assert_true(set.pages.bytes >= (uint64_t)ROWS * 32 * sizeof(float));
    assert_int_equal(set.file_pages.bytes, 0);
    assert_false(eb_table_set_find(&set, "large")->is_in_file);
    eb_table_set_deinit(&set);
}

static void loads_the_same_with_any_number_of_threads(void **state)
{
    struct fixture *fixture = *state;
    static const char *const storages[] = {"f32", "int8", "int4", "f16"};
    for (size_t k = 0; k < sizeof storages / sizeof storages[0]; k++) {
        char yaml[80];
        struct eb_model_config config;
        struct eb_failure failure;
        int size =
            snprintf(yaml, sizeof yaml, "tables:\n  - {name: large, storage: %s}\n", storages[k]);
        assert_true(
            eb_model_config_parse((const uint8_t *)yaml, (size_t)size, 255, &config, &failure));
        fixture->options.config = &config;
        struct eb_table_set one;
        fixture->options.load_threads = 1;
        load(fixture, &one);
        for (unsigned threads = 2; threads <= 7; threads += 5) {
            struct eb_table_set more;
            fixture->options.load_threads = threads;
            load(fixture, &more);
            assert_true(more.digest == one.digest);
            const struct eb_named_table *table = eb_table_set_find(&one, "large");
            assert_memory_equal(eb_table_set_find(&more, "large")->base, table->base,
                table->table.row_count * table->table.row_stride_bytes);
            eb_table_set_deinit(&more);
        }
        eb_table_set_deinit(&one);
        eb_model_config_deinit(&config);
        fixture->options.config = NULL;
    }
}

static void adopts_what_it_left_behind(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    keep_in_files(fixture);
    load(fixture, &set);
    check_values(fixture, &set);
    assert_int_equal(set.adopted_bytes, 0);
    expect_in_files(&set);
    uint64_t digest = set.digest;
    fixture->dir.is_ending = true;
    eb_table_set_deinit(&set);
    fixture->dir.is_ending = false;
    fixture->options.resident.is_checked_whole = true;
    uint64_t adopting_ns = eb_resident_dir_adopting_ns(&fixture->dir);
    load(fixture, &set);
    check_values(fixture, &set);
    assert_true(eb_resident_dir_adopting_ns(&fixture->dir) > adopting_ns);
    assert_int_equal(set.adopted_bytes, set.bytes);
    expect_in_files(&set);
    assert_true(set.digest == digest);
    eb_table_set_deinit(&set);
    load(fixture, &set); /* the files were deleted with the last set */
    assert_int_equal(set.adopted_bytes, 0);
    eb_table_set_deinit(&set);
}

static void counts_shared_tables_in_files_too(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    struct eb_table_set other;
    keep_in_files(fixture);
    load(fixture, &set);
    const struct eb_table_set *residents[] = {&set};
    fixture->options.residents = residents;
    fixture->options.resident_count = 1;
    fixture->options.resident.version = 2;
    load(fixture, &other);
    assert_true(other.memory.shared_bytes > 0);
    expect_in_files(&other);
    eb_table_set_deinit(&other);
    eb_table_set_deinit(&set);
}

static void does_not_adopt_another_version(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    struct eb_table_set other;
    keep_in_files(fixture);
    load(fixture, &set);
    fixture->options.resident.version = 2;
    load(fixture, &other);
    assert_int_equal(other.adopted_bytes, 0);
    check_values(fixture, &other);
    eb_table_set_deinit(&set);
    check_values(fixture, &other);
    eb_table_set_deinit(&other);
}

static void opens_a_recorded_version_without_its_files(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    struct eb_table_set opened;
    struct eb_failure failure = {.text = ""};
    keep_in_files(fixture);
    load(fixture, &set);
    struct eb_served_table tables[3];
    struct eb_served_version version = {
        .version = 1, .is_complete = true, .table_count = 3, .tables = tables};
    for (size_t i = 0; i < 3; i++) {
        const struct eb_named_table *table = &set.tables[i];
        tables[i] = (struct eb_served_table){
            .name = table->name, .unknown_row = -1, .slot = table->file_slot};
        const struct eb_table_mapping *mapping = eb_table_memory_find(&set.memory, table->base);
        strcpy(tables[i].file, mapping->name);
    }
    uint64_t adopting_ns = eb_resident_dir_adopting_ns(&fixture->dir);
    if (!eb_resident_set_open(&version, &fixture->options, &opened, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_true(eb_resident_dir_adopting_ns(&fixture->dir) > adopting_ns);
    assert_int_equal(fixture->dir.outcomes[EB_RESIDENT_ADOPTED], 3);
    check_values(fixture, &opened);
    expect_in_files(&opened);
    assert_true(opened.digest == set.digest);
    eb_table_set_deinit(&opened);
    tables[1].slot = 7;
    assert_false(eb_resident_set_open(&version, &fixture->options, &opened, &failure));
    assert_non_null(strstr(failure.text, "no table number 7"));
    tables[1].slot = 0;
    tables[1].unknown_row = EB_ROW_VECTOR;
    assert_false(eb_resident_set_open(&version, &fixture->options, &opened, &failure));
    assert_non_null(strstr(failure.text, "but its model.yaml has none"));
    tables[1].unknown_row = -1;
    strcpy(tables[1].file, "00000000000000aa.t");
    assert_false(eb_resident_set_open(&version, &fixture->options, &opened, &failure));
    assert_non_null(strstr(failure.text, "missing"));
    assert_int_equal(fixture->dir.outcomes[EB_RESIDENT_ADOPTED], 3);
    eb_table_set_deinit(&set);
}

static uint64_t tell_little_memory(void)
{
    return 4096;
}

static void check_refused(const struct fixture *fixture)
{
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_set_load(fixture->files.scratch.root, &fixture->options, NULL, &set, &failure));
    assert_non_null(strstr(failure.text, "bytes of memory, but 4096 are available"));
}

/* A tmpfs that is taken for a hugetlbfs stands for one, because few machines have a pool. */
static void needs_no_memory_for_files_in_pages_of_a_pool(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    keep_in_files(fixture);
    eb_faults.eb_machine_available_bytes = tell_little_memory;
    check_refused(fixture);
    fixture->dir.fs = EB_RESIDENT_HUGETLBFS;
    load(fixture, &set);
    check_values(fixture, &set);
    assert_int_equal(set.file_fs, EB_RESIDENT_HUGETLBFS);
    eb_table_set_deinit(&set);
    /* A guest makes no files. */
    atomic_store(&fixture->dir.is_owner, false);
    check_refused(fixture);
    atomic_store(&fixture->dir.is_owner, true);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

EB_TEST_GROUP(resident_set)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(counts_no_table_in_a_file_without_a_directory),
        WITH_FIXTURE(loads_the_same_with_any_number_of_threads),
        WITH_FIXTURE(adopts_what_it_left_behind),
        WITH_FIXTURE(counts_shared_tables_in_files_too),
        WITH_FIXTURE(does_not_adopt_another_version),
        WITH_FIXTURE(opens_a_recorded_version_without_its_files),
        WITH_FIXTURE(needs_no_memory_for_files_in_pages_of_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
