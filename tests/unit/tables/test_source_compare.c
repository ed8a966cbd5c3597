/* Tables in memory against files that were rewritten in place, replaced or taken away. */
#include "server/tables/source_compare.h"

#include "server/tables/row_load.h"
#include "server/tables/source_key.h"
#include "server/tables/table_plan.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/set_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ELEMENTS 16
#define ROW_BYTES (ELEMENTS * sizeof(float))
#define CHUNK_ROWS (EB_ROW_LOAD_CHUNK_BYTES / ROW_BYTES)
#define ROWS (2 * CHUNK_ROWS)
#define ROOT_YAML "tables: [{name: c, storage: int8}]"

static struct eb_set_fixture fixture;
static struct eb_model_config config;
static struct eb_table_options options;
static struct eb_table_set set;
static float *values;                  /* [ROWS * ELEMENTS] */
static struct eb_compared_table of[4]; /* the set's tables: a, b, c and k, which has keys */

static void write_compared(const char *name)
{
    static const uint64_t dims[2] = {ROWS, ELEMENTS};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_F32, dims, values);
}

/* Writes the keys of k: consecutive numbers from `first` on. */
static void write_keys(int64_t first)
{
    static const uint64_t dims[2] = {ROWS, 0};
    int64_t *keys = malloc(ROWS * sizeof *keys);
    assert_non_null(keys);
    for (size_t i = 0; i < ROWS; i++) {
        keys[i] = first + (int64_t)i;
    }
    eb_set_fixture_write_npy(&fixture, "k.keys.npy", EB_STORAGE_I64, dims, keys);
    free(keys);
}

static int set_up(void **state)
{
    (void)state;
    struct eb_failure failure = {.text = ""};
    eb_set_fixture_init(&fixture);
    values = malloc(ROWS * ROW_BYTES);
    for (size_t i = 0; i < ROWS * ELEMENTS; i++) {
        values[i] = (float)(i % 1000);
    }
    write_compared("a.npy");
    write_compared("b.npy");
    write_compared("c.npy");
    write_compared("k.npy");
    write_keys(0);
    options =
        (struct eb_table_options){.row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    if (!eb_model_config_parse(
            (const uint8_t *)ROOT_YAML, strlen(ROOT_YAML), 255, &config, &failure) ||
        !eb_set_load(fixture.scratch.root, &options, NULL, &set, &failure)) {
        fail_msg("%s", failure.text);
    }
    for (size_t i = 0; i < set.count; i++) {
        of[i] = (struct eb_compared_table){.name = set.tables[i].name,
            .origin = set.tables[i].origin,
            .chunk_hashes = set.tables[i].chunk_hashes,
            .digest = set.tables[i].digest};
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_table_set_deinit(&set);
    eb_model_config_deinit(&config);
    eb_set_fixture_deinit(&fixture);
    free(values);
    return 0;
}

/* Returns the stamp of a file. */
static struct stat look_at(const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct stat status;
    eb_scratch_path(&fixture.scratch, name, path);
    assert_int_equal(stat(path, &status), 0);
    return status;
}

/* Sets the file's time to `passed_s` after the one in `before`. */
static void set_time(const char *name, const struct stat *before, time_t passed_s)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, name, path);
    struct timespec times[2] = {before->st_atim, before->st_mtim};
    times[1].tv_sec += passed_s;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Writes other values from `first` on to the file of a table, which keeps its size. Its time is
 * `passed_s` later than before. */
static void rewrite(const char *name, size_t first, time_t passed_s)
{
    struct stat before = look_at(name);
    for (size_t i = first; i < ROWS * ELEMENTS; i++) {
        values[i] = 1000 - values[i];
    }
    write_compared(name);
    set_time(name, &before, passed_s);
}

static void rewrite_in_place(const char *name, size_t first)
{
    rewrite(name, first, 0);
}

/* Compares all tables. Expects those of `different`, one letter each, to differ. */
static void expect_different(const char *different)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_source_compare(fixture.scratch.root, &options, of, set.count, NULL, &failure)) {
        fail_msg("%s", failure.text);
    }
    for (size_t i = 0; i < set.count; i++) {
        assert_int_equal(of[i].is_different, !!strchr(different, of[i].name[0]));
    }
}

static void finds_files_that_were_rewritten_in_place(void **state)
{
    (void)state;
    expect_different("");
    rewrite_in_place("b.npy", 0);
    expect_different("b");
    rewrite_in_place("c.npy", 0);
    expect_different("b"); /* c was converted from the values that it has again */
    rewrite_in_place("c.npy", 0);
    expect_different("bc");
}

static void compares_only_the_chosen_chunk(void **state)
{
    (void)state;
    rewrite_in_place("a.npy", CHUNK_ROWS * ELEMENTS);
    expect_different("");
    of[0].chunk = 1;
    expect_different("a");
    of[0].chunk = 2; /* there is none */
    expect_different("");
}

static void finds_keys_that_were_rewritten_in_place(void **state)
{
    (void)state;
    struct stat before = look_at("k.keys.npy");
    write_keys(1);
    set_time("k.keys.npy", &before, 0);
    expect_different("k");
    write_keys(0);
    set_time("k.keys.npy", &before, 0);
    expect_different("");
}

static void a_table_without_an_origin_is_known_by_its_source_key(void **state)
{
    (void)state;
    struct eb_table_plan plan;
    struct eb_failure failure = {.text = ""};
    options.resident.model = "m";
    options.resident.version = 7;
    assert_true(eb_table_plan_read(fixture.scratch.root, &options, &plan, &failure));
    for (size_t i = 0; i < plan.table_count; i++) {
        for (size_t k = 0; k < set.count; k++) {
            if (strcmp(plan.tables[i].name, of[k].name) == 0) {
                of[k].origin = 0;
                of[k].source_key = eb_source_key(&plan, &plan.tables[i], "m", 7);
            }
        }
    }
    eb_table_plan_deinit(&plan);
    expect_different("");
    rewrite_in_place("a.npy", 0);
    rewrite("b.npy", 0, 1);
    expect_different("a");
    options.resident.version = 8;
    expect_different("");
}

static void passes_over_what_is_not_the_source_any_more(void **state)
{
    (void)state;
    rewrite("a.npy", 0, 1);
    eb_set_fixture_remove(&fixture, "b.npy");
    expect_different("");
}

static bool give_comparison_up(void *context, uint64_t bytes)
{
    *(uint64_t *)context += bytes;
    return false;
}

static void takes_no_table_for_different_when_it_is_given_up(void **state)
{
    (void)state;
    struct eb_failure failure = {.text = ""};
    uint64_t bytes = 0;
    struct eb_load_progress progress = {.go_on = give_comparison_up, .context = &bytes};
    rewrite_in_place("a.npy", 0);
    assert_false(
        eb_source_compare(fixture.scratch.root, &options, of, set.count, &progress, &failure));
    eb_scratch_expect(failure.text, "cancelled");
    assert_int_equal(bytes, EB_ROW_LOAD_CHUNK_BYTES);
    for (size_t i = 0; i < set.count; i++) {
        assert_false(of[i].is_different);
    }
}

static void fails_where_the_directory_cannot_be_read(void **state)
{
    (void)state;
    struct eb_failure failure = {.text = ""};
    of[1].is_different = true;
    assert_false(eb_source_compare("/nowhere/1", &options, of, set.count, NULL, &failure));
    eb_scratch_expect(failure.text, "/nowhere/1");
    assert_false(of[1].is_different);
}

EB_TEST_GROUP(source_compare)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(finds_files_that_were_rewritten_in_place),
        TEST(compares_only_the_chosen_chunk),
        TEST(finds_keys_that_were_rewritten_in_place),
        TEST(a_table_without_an_origin_is_known_by_its_source_key),
        TEST(passes_over_what_is_not_the_source_any_more),
        TEST(takes_no_table_for_different_when_it_is_given_up),
        TEST(fails_where_the_directory_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
