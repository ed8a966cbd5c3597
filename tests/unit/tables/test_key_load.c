#include "server/tables/key_load.h"

#include "kernels/key_index.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 300000 /* enough for several partitions and several chunks of assigned rows */
#define WHOLE_BYTES_MAX (64 * 1024)

static struct eb_set_fixture fixture;
static int64_t keys[MANY];
static float values[MANY];

static int set_up(void **state)
{
    (void)state;
    eb_set_fixture_init(&fixture);
    for (int64_t i = 0; i < MANY; i++) {
        keys[i] = (i - MANY / 2) * 1024;
        values[i] = (float)i;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    return 0;
}

static void write_load_rows(const char *name, uint64_t count)
{
    const uint64_t dims[2] = {count, 0};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_F32, dims, values);
}

static void write_load_keys(const char *name, uint64_t first, uint64_t end)
{
    const uint64_t dims[2] = {end - first, 0};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_I64, dims, keys + first);
}

/* Expects every key of the table to lead to its row, and an unknown key to lead to none. */
static void expect_keys(const struct eb_table *table, uint64_t count)
{
    assert_non_null(table->keys);
    for (uint64_t i = 0; i < count; i++) {
        if (eb_key_index_find(table->keys, keys[i]) != (int64_t)i) {
            fail_msg("key of row %zu is not found", (size_t)i);
        }
    }
    assert_int_equal(eb_key_index_find(table->keys, 1), -1);
}

static void finds_the_row_of_every_key(void **state)
{
    (void)state;
    struct eb_table_set set;
    struct eb_key_plan plan;
    write_load_rows("t.npy", MANY);
    write_load_keys("t.keys.npy", 0, MANY);
    write_load_rows("dense.npy", 4);
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    assert_null(eb_table_set_find(&set, "dense")->table.keys);
    const struct eb_named_table *t = eb_table_set_find(&set, "t");
    expect_keys(&t->table, MANY);
    assert_true(eb_key_build_plan(MANY, &plan));
    assert_int_equal(t->resident_bytes, MANY * sizeof(float) + plan.index_bytes);
    assert_int_equal(t->pages.bytes, t->resident_bytes);
    /* With its keys "t" is larger than a page and has pages of its own. "dense" uses the page
     * that small tables share. */
    assert_true(MANY * sizeof(float) + plan.index_bytes > EB_PAGE_2M_BYTES);
    assert_int_equal(set.bytes,
        eb_table_memory_footprint(MANY * sizeof(float) + plan.index_bytes) + EB_PAGE_2M_BYTES);
    eb_table_set_deinit(&set);
}

static void takes_uint64_keys_as_they_lie(void **state)
{
    (void)state;
    static const uint64_t hashes[2] = {UINT64_MAX, UINT64_C(1) << 63};
    static const uint64_t dims[2] = {2, 0};
    struct eb_table_set set;
    write_load_rows("t.npy", 2);
    eb_set_fixture_write_npy(&fixture, "t.keys.npy", EB_STORAGE_U64, dims, hashes);
    eb_set_fixture_load(&fixture, "tables: [{name: t, default_index: -1}]", &set);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, -1), 0);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, INT64_MIN), 1);
    eb_table_set_deinit(&set);
}

static void loads_a_keyed_table_without_rows(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_load_rows("t.npy", 0);
    write_load_keys("t.keys.npy", 0, 0);
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, 0), -1);
    eb_table_set_deinit(&set);
}

static void joins_split_keys(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_load_rows("t.npy", 100);
    write_load_keys("t-00000-of-00002.keys.npy", 0, 30);
    write_load_keys("t-00001-of-00002.keys.npy", 30, 100);
    eb_set_fixture_load(&fixture, "tables: [{name: u, source: t}]", &set);
    assert_string_equal(set.tables[0].name, "u");
    expect_keys(&set.tables[0].table, 100);
    eb_table_set_deinit(&set);
}

static void names_both_rows_of_a_key_that_is_there_twice(void **state)
{
    (void)state;
    keys[123456] = keys[77];
    write_load_rows("t.npy", MANY);
    write_load_keys("t.keys.npy", 0, MANY);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.keys.npy: ", "rows 77 and 123456 have the same key -153521152");
    eb_set_fixture_remove(&fixture, "t.keys.npy");
    write_load_keys("t-00000-of-00002.keys.npy", 0, 1000);
    write_load_keys("t-00001-of-00002.keys.npy", 1000, MANY);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t-00001-of-00002.keys.npy: ", "rows 77 and 123456 have the same key");
}

static void refuses_keys_that_do_not_fit(void **state)
{
    (void)state;
    static const uint64_t wide[2] = {5, 2};
    static const uint64_t flat[2] = {10, 0};
    write_load_rows("t.npy", 10);
    write_load_keys("u.keys.npy", 0, 10);
    eb_set_fixture_expect_failure(&fixture, "", "/u.keys.npy: ", "keys without rows");
    eb_set_fixture_remove(&fixture, "u.keys.npy");
    write_load_keys("t.keys.npy", 0, 9);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.keys.npy: ", "9 keys for the 10 rows of table 't'");
    eb_set_fixture_write_npy(&fixture, "t.keys.npy", EB_STORAGE_I64, wide, keys);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.keys.npy: ", "expected keys as an array of one dimension of int64");
    eb_set_fixture_write_npy(&fixture, "t.keys.npy", EB_STORAGE_I32, flat, keys);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.keys.npy: ", "expected keys as an array of one dimension of int64");
    write_load_keys("t.keys.npy", 0, 10);
    write_load_keys("t-00000-of-00002.keys.npy", 0, 10);
    eb_set_fixture_expect_failure(&fixture, "", ".keys.npy: ", "keys of table 't' is also in");
}

static void knows_keys_that_stand_for_empty_bags(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_load_rows("t.npy", 10);
    write_load_keys("t.keys.npy", 0, 10);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, default_index: 3}]",
        "model.yaml: ", "table 't': default_index 3 is not one of its keys");
    eb_set_fixture_expect_failure(&fixture, "features: [{name: f, table: t, default_index: 3}]",
        "model.yaml: ", "feature 'f': default_index 3 is not a key of table 't'");
    eb_set_fixture_expect_failure(&fixture, "features: [{name: f, table: t, id_map: modulo}]",
        "model.yaml: ", "feature 'f': id_map is not possible for table 't', which is keyed");
    eb_set_fixture_load(&fixture,
        "tables: [{name: t, default_index: -153600000, unknown_row: 9}]\n"
        "features: [{name: f, table: t, default_index: -153598976}]",
        &set);
    assert_int_equal(set.tables[0].table.unknown_row, 9);
    eb_table_set_deinit(&set);
}

/* ---- progress ---- */

struct reports {
    uint64_t bytes;
    uint64_t bytes_max; /* number of bytes beyond which the load is given up */
};

static bool go_on_loading(void *context, uint64_t bytes)
{
    struct reports *reports = context;
    reports->bytes += bytes;
    return reports->bytes <= reports->bytes_max;
}

static void counts_reading_and_building(void **state)
{
    (void)state;
    struct reports reports = {0, UINT64_MAX};
    struct eb_load_progress progress = {.go_on = go_on_loading, .context = &reports};
    struct eb_table_set set;
    struct eb_key_plan plan;
    write_load_rows("t.npy", MANY);
    write_load_keys("t.keys.npy", 0, MANY);
    fixture.progress = &progress;
    eb_set_fixture_load(&fixture, "", &set);
    eb_table_set_deinit(&set);
    assert_true(eb_key_build_plan(MANY, &plan));
    assert_int_equal(reports.bytes, MANY * (sizeof(float) + sizeof(int64_t)) + plan.index_bytes);
}

static void gives_up_a_build(void **state)
{
    (void)state;
    struct reports reports = {0, MANY * (sizeof(float) + sizeof(int64_t))};
    struct eb_load_progress progress = {.go_on = go_on_loading, .context = &reports};
    write_load_rows("t.npy", MANY);
    write_load_keys("t.keys.npy", 0, MANY);
    fixture.progress = &progress;
    eb_set_fixture_expect_failure(&fixture, "", "/t.keys.npy: ", "the load was cancelled");
}

/* ---- packed ---- */

/* The content of a packed file, in which row r of the table has keys[r]. */
struct content {
    uint64_t first;
    uint64_t rows;
    uint64_t total; /* rows of the whole table */
    bool has_keys;
    bool has_index;
};

/* Returns the index of the first rows' keys, which the caller frees. */
static void *make_index(const struct eb_key_plan *plan)
{
    void *index = aligned_alloc(64, plan->index_bytes);
    void *scratch = malloc(plan->scratch_bytes);
    uint32_t *counts = calloc(plan->partition_count, sizeof *counts);
    struct eb_key_build build = {.plan = *plan, .keys = keys, .index = index, .counts = counts};
    struct eb_key_pair pair;
    assert_int_equal(eb_key_build_run(&build, scratch, &pair), EB_KEY_OK);
    free(scratch);
    free(counts);
    return index;
}

static void write_sections(
    const char *name, const struct eb_packed_format *format, const void *const *sections)
{
    struct eb_packed_writer writer;
    struct eb_failure failure = {.text = ""};
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, name, path);
    assert_true(eb_packed_writer_open(&writer, path, format, &failure));
    for (int kind = 0; kind < EB_PACKED_KIND_COUNT; kind++) {
        uint64_t bytes = format->sections[kind].bytes;
        assert_true(
            bytes == 0 || (eb_packed_writer_begin(&writer, (enum eb_packed_kind)kind, &failure) &&
                              eb_packed_writer_append(&writer, sections[kind], bytes, &failure)));
    }
    assert_true(eb_packed_writer_end(&writer, &failure));
    assert_true(eb_packed_writer_publish(&writer, &failure));
    eb_packed_writer_close(&writer);
}

static void write_packed_keys(const char *name, struct content content)
{
    struct eb_key_plan plan;
    struct eb_packed_format format = eb_packed_fixture_format(content.rows, 10);
    struct eb_failure failure = {.text = ""};
    assert_true(eb_key_build_plan(content.rows, &plan));
    format.row_first = content.first;
    format.rows_total = content.total;
    format.sections[EB_PACKED_KEYS].bytes = content.has_keys ? content.rows * sizeof keys[0] : 0;
    format.sections[EB_PACKED_KEY_INDEX].bytes = content.has_index ? plan.index_bytes : 0;
    if (!eb_packed_format_lay_out(&format, &failure)) {
        fail_msg("%s", failure.text);
    }
    void *index = make_index(&plan);
    uint8_t *zeros = calloc(1, format.sections[EB_PACKED_ROWS].bytes + 1);
    const void *sections[EB_PACKED_KIND_COUNT] = {zeros, keys + content.first, index};
    write_sections(name, &format, sections);
    free(index);
    free(zeros);
}

static void takes_the_index_of_a_packed_table(void **state)
{
    (void)state;
    for (int has_index = 0; has_index < 2; has_index++) {
        struct eb_table_set set;
        write_packed_keys("t.embag", (struct content){0, 5000, 5000, true, has_index});
        eb_set_fixture_load(&fixture, "", &set);
        expect_keys(&set.tables[0].table, 5000);
        eb_table_set_deinit(&set);
        eb_set_fixture_remove(&fixture, "t.embag");
    }
}

/* A piece without rows has no keys. It may be at any position among the pieces. */
static void joins_packed_pieces_of_which_some_have_no_rows(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_packed_keys("t-00000-of-00004.embag", (struct content){0, 0, 50, false, false});
    write_packed_keys("t-00001-of-00004.embag", (struct content){0, 20, 50, true, false});
    write_packed_keys("t-00002-of-00004.embag", (struct content){20, 0, 50, false, false});
    write_packed_keys("t-00003-of-00004.embag", (struct content){20, 30, 50, true, false});
    eb_set_fixture_load(&fixture, "", &set);
    expect_keys(&set.tables[0].table, 50);
    eb_table_set_deinit(&set);
}

static void refuses_packed_pieces_of_which_some_have_no_keys(void **state)
{
    (void)state;
    for (int keyed = 1; keyed < 3; keyed++) {
        write_packed_keys("t-00000-of-00003.embag", (struct content){0, 0, 50, false, false});
        write_packed_keys("t-00001-of-00003.embag", (struct content){0, 20, 50, keyed == 1, false});
        write_packed_keys(
            "t-00002-of-00003.embag", (struct content){20, 30, 50, keyed == 2, false});
        eb_set_fixture_expect_failure(
            &fixture, "", "/t-00002-of-00003.embag: ", "only one of this file and");
        eb_set_fixture_remove(&fixture, "t-00000-of-00003.embag");
        eb_set_fixture_remove(&fixture, "t-00001-of-00003.embag");
        eb_set_fixture_remove(&fixture, "t-00002-of-00003.embag");
    }
}

static void refuses_keys_beside_those_of_a_packed_table(void **state)
{
    (void)state;
    write_packed_keys("t.embag", (struct content){0, 50, 50, true, true});
    write_load_keys("t.keys.npy", 0, 50);
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.keys.npy: ", "the packed table 't' already contains keys");
}

static void loads_no_packed_table_of_which_a_byte_is_wrong_or_missing(void **state)
{
    (void)state;
    char path[EB_SCRATCH_PATH_BYTES];
    uint8_t whole[WHOLE_BYTES_MAX];
    write_packed_keys("t.embag", (struct content){0, 20, 20, true, true});
    eb_scratch_path(&fixture.scratch, "t.embag", path);
    int descriptor = open(path, O_RDWR);
    ssize_t count = pread(descriptor, whole, sizeof whole, 0);
    assert_in_range(count, EB_PACKED_FORMAT_HEADER_BYTES, sizeof whole - 1);
    for (ssize_t at = 0; at < count; at++) {
        uint8_t wrong = (uint8_t)(whole[at] ^ 1u << at % 8);
        assert_int_equal(pwrite(descriptor, &wrong, 1, at), 1);
        eb_set_fixture_expect_failure(&fixture, "", "/t.embag: ", "");
        assert_int_equal(pwrite(descriptor, &whole[at], 1, at), 1);
    }
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, "", &set);
    expect_keys(&set.tables[0].table, 20);
    eb_table_set_deinit(&set);
    for (ssize_t size = count; size-- > 0;) {
        assert_int_equal(ftruncate(descriptor, size), 0);
        eb_set_fixture_expect_failure(&fixture, "", "/t.embag: ", "");
    }
    close(descriptor);
}

EB_TEST_GROUP(key_load)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(finds_the_row_of_every_key),
        TEST(takes_uint64_keys_as_they_lie),
        TEST(loads_a_keyed_table_without_rows),
        TEST(joins_split_keys),
        TEST(names_both_rows_of_a_key_that_is_there_twice),
        TEST(refuses_keys_that_do_not_fit),
        TEST(knows_keys_that_stand_for_empty_bags),
        TEST(counts_reading_and_building),
        TEST(gives_up_a_build),
        TEST(takes_the_index_of_a_packed_table),
        TEST(joins_packed_pieces_of_which_some_have_no_rows),
        TEST(refuses_packed_pieces_of_which_some_have_no_keys),
        TEST(refuses_keys_beside_those_of_a_packed_table),
        TEST(loads_no_packed_table_of_which_a_byte_is_wrong_or_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
