#include "server/models/key_load.h"

#include "kernels/key_build.h"
#include "tests/unit/models/packed_trial.h"
#include "tests/unit/models/set_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 300000 /* several partitions, and several chunks of rows that are assigned */

static struct eb_set_trial trial;
static int64_t keys[MANY];
static float values[MANY];

static int set_up(void **state)
{
    (void)state;
    eb_set_trial_init(&trial);
    for (int64_t i = 0; i < MANY; i++) {
        keys[i] = (i - MANY / 2) * 1024;
        values[i] = (float)i;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_trial_deinit(&trial);
    return 0;
}

static void write_rows(const char *name, uint64_t count)
{
    const uint64_t dims[2] = {count, 0};
    eb_set_trial_write_npy(&trial, name, EB_STORAGE_F32, dims, values);
}

static void write_keys(const char *name, uint64_t first, uint64_t end)
{
    const uint64_t dims[2] = {end - first, 0};
    eb_set_trial_write_npy(&trial, name, EB_STORAGE_I64, dims, keys + first);
}

/* Every key of the table leads to its row, and one more to none. */
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
    write_rows("t.npy", MANY);
    write_keys("t.keys.npy", 0, MANY);
    write_rows("dense.npy", 4);
    eb_set_trial_load(&trial, "", &set);
    assert_int_equal(set.count, 2);
    assert_null(eb_table_set_find(&set, "dense")->table.keys);
    const struct eb_named_table *t = eb_table_set_find(&set, "t");
    expect_keys(&t->table, MANY);
    assert_true(eb_key_build_plan(MANY, &plan));
    assert_int_equal(t->resident_bytes, MANY * sizeof(float) + plan.index_bytes);
    assert_int_equal(t->pages.bytes, t->resident_bytes);
    assert_true(set.bytes >= eb_table_memory_footprint(plan.index_bytes));
    eb_table_set_deinit(&set);
}

static void takes_uint64_keys_as_they_lie(void **state)
{
    (void)state;
    static const uint64_t hashes[2] = {UINT64_MAX, UINT64_C(1) << 63};
    static const uint64_t dims[2] = {2, 0};
    struct eb_table_set set;
    write_rows("t.npy", 2);
    eb_set_trial_write_npy(&trial, "t.keys.npy", EB_STORAGE_U64, dims, hashes);
    eb_set_trial_load(&trial, "tables: [{name: t, default_index: -1}]", &set);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, -1), 0);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, INT64_MIN), 1);
    eb_table_set_deinit(&set);
}

static void loads_a_keyed_table_without_rows(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_rows("t.npy", 0);
    write_keys("t.keys.npy", 0, 0);
    eb_set_trial_load(&trial, "", &set);
    assert_int_equal(eb_key_index_find(set.tables[0].table.keys, 0), -1);
    eb_table_set_deinit(&set);
}

static void joins_split_keys(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_rows("t.npy", 100);
    write_keys("t-00000-of-00002.keys.npy", 0, 30);
    write_keys("t-00001-of-00002.keys.npy", 30, 100);
    eb_set_trial_load(&trial, "tables: [{name: u, source: t}]", &set);
    assert_string_equal(set.tables[0].name, "u");
    expect_keys(&set.tables[0].table, 100);
    eb_table_set_deinit(&set);
}

static void names_both_rows_of_a_key_that_is_there_twice(void **state)
{
    (void)state;
    keys[123456] = keys[77];
    write_rows("t.npy", MANY);
    write_keys("t.keys.npy", 0, MANY);
    eb_set_trial_expect_fault(&trial, "",
        "/t.keys.npy: ", "rows 77 and 123456 of table 't' have the same key, -153521152");
    eb_set_trial_remove(&trial, "t.keys.npy");
    write_keys("t-00000-of-00002.keys.npy", 0, 1000);
    write_keys("t-00001-of-00002.keys.npy", 1000, MANY);
    eb_set_trial_expect_fault(
        &trial, "", "/t-00001-of-00002.keys.npy: ", "rows 77 and 123456 of table 't'");
}

static void refuses_keys_that_do_not_fit(void **state)
{
    (void)state;
    static const uint64_t wide[2] = {5, 2};
    static const uint64_t flat[2] = {10, 0};
    write_rows("t.npy", 10);
    write_keys("u.keys.npy", 0, 10);
    eb_set_trial_expect_fault(&trial, "", "/u.keys.npy: ", "keys without rows");
    eb_set_trial_remove(&trial, "u.keys.npy");
    write_keys("t.keys.npy", 0, 9);
    eb_set_trial_expect_fault(&trial, "", "/t.keys.npy: ", "9 keys for the 10 rows of table 't'");
    eb_set_trial_write_npy(&trial, "t.keys.npy", EB_STORAGE_I64, wide, keys);
    eb_set_trial_expect_fault(&trial, "", "/t.keys.npy: ", "keys are one dimension of int64");
    eb_set_trial_write_npy(&trial, "t.keys.npy", EB_STORAGE_I32, flat, keys);
    eb_set_trial_expect_fault(&trial, "", "/t.keys.npy: ", "keys are one dimension of int64");
    write_keys("t.keys.npy", 0, 10);
    write_keys("t-00000-of-00002.keys.npy", 0, 10);
    eb_set_trial_expect_fault(&trial, "", ".keys.npy: ", "keys of table 't' is also in");
}

static void knows_keys_that_stand_for_empty_bags(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_rows("t.npy", 10);
    write_keys("t.keys.npy", 0, 10);
    eb_set_trial_expect_fault(&trial, "tables: [{name: t, default_index: 3}]",
        "model.yaml: ", "table 't': default_index 3 is none of its keys");
    eb_set_trial_expect_fault(&trial, "features: [{name: f, table: t, default_index: 3}]",
        "model.yaml: ", "feature 'f': default_index 3 is no key of table 't'");
    eb_set_trial_expect_fault(&trial, "features: [{name: f, table: t, id_map: modulo}]",
        "model.yaml: ", "feature 'f': id_map has no meaning for table 't', which is keyed");
    eb_set_trial_load(&trial,
        "tables: [{name: t, default_index: -153600000, unknown_row: 9}]\n"
        "features: [{name: f, table: t, default_index: -153598976}]",
        &set);
    assert_int_equal(set.tables[0].table.unknown_row, 9);
    eb_table_set_deinit(&set);
}

/* ---- progress ---- */

struct reports {
    uint64_t bytes;
    uint64_t bytes_max; /* where the load is given up */
};

static bool go_on(void *context, uint64_t bytes)
{
    struct reports *reports = context;
    reports->bytes += bytes;
    return reports->bytes <= reports->bytes_max;
}

static void counts_reading_and_building(void **state)
{
    (void)state;
    struct reports reports = {0, UINT64_MAX};
    const struct eb_load_progress progress = {.go_on = go_on, .context = &reports};
    struct eb_table_set set;
    struct eb_key_plan plan;
    write_rows("t.npy", MANY);
    write_keys("t.keys.npy", 0, MANY);
    trial.progress = &progress;
    eb_set_trial_load(&trial, "", &set);
    eb_table_set_deinit(&set);
    assert_true(eb_key_build_plan(MANY, &plan));
    assert_int_equal(reports.bytes, MANY * (sizeof(float) + sizeof(int64_t)) + plan.index_bytes);
}

static void gives_up_a_build(void **state)
{
    (void)state;
    struct reports reports = {0, MANY * (sizeof(float) + sizeof(int64_t))};
    const struct eb_load_progress progress = {.go_on = go_on, .context = &reports};
    write_rows("t.npy", MANY);
    write_keys("t.keys.npy", 0, MANY);
    trial.progress = &progress;
    eb_set_trial_expect_fault(&trial, "", "/t.keys.npy: ", "the load was given up");
}

/* ---- packed ---- */

/* Writes a packed table of so many keyed rows, with or without a ready index. */
static void write_packed(const char *name, uint64_t rows, bool has_index)
{
    struct eb_key_plan plan;
    struct eb_packed_format format = eb_packed_trial_format(rows, 10);
    struct eb_packed_writer writer;
    struct eb_file_fault fault = {""};
    char path[EB_SCRATCH_PATH_BYTES];
    assert_true(eb_key_build_plan(rows, &plan));
    format.sections[EB_PACKED_KEYS].bytes = rows * sizeof keys[0];
    format.sections[EB_PACKED_KEY_INDEX].bytes = has_index ? plan.index_bytes : 0;
    if (!eb_packed_format_lay_out(&format, &fault)) {
        fail_msg("%s", fault.text);
    }
    void *index = aligned_alloc(64, plan.index_bytes);
    void *scratch = malloc(plan.scratch_bytes);
    uint32_t *counts = calloc(plan.partition_count, sizeof *counts);
    struct eb_key_build build = {plan, keys, index, counts};
    struct eb_key_pair pair;
    assert_int_equal(eb_key_build_run(&build, scratch, &pair), EB_KEY_OK);
    uint8_t *zeros = calloc(1, format.sections[EB_PACKED_ROWS].bytes);
    const void *sections[EB_PACKED_KIND_COUNT] = {zeros, keys, index};
    eb_scratch_path(&trial.scratch, name, path);
    assert_true(eb_packed_writer_open(&writer, path, &format, &fault));
    for (int kind = 0; kind < EB_PACKED_KIND_COUNT; kind++) {
        uint64_t bytes = format.sections[kind].bytes;
        assert_true(
            bytes == 0 || (eb_packed_writer_begin(&writer, (enum eb_packed_kind)kind, &fault) &&
                              eb_packed_writer_append(&writer, sections[kind], bytes, &fault)));
    }
    assert_true(eb_packed_writer_end(&writer, &fault));
    assert_true(eb_packed_writer_publish(&writer, &fault));
    eb_packed_writer_close(&writer);
    free(index);
    free(scratch);
    free(counts);
    free(zeros);
}

static void takes_the_index_of_a_packed_table(void **state)
{
    (void)state;
    for (int has_index = 0; has_index < 2; has_index++) {
        struct eb_table_set set;
        write_packed("t.embag", 5000, has_index);
        eb_set_trial_load(&trial, "", &set);
        expect_keys(&set.tables[0].table, 5000);
        eb_table_set_deinit(&set);
        eb_set_trial_remove(&trial, "t.embag");
    }
}

static void refuses_keys_beside_those_of_a_packed_table(void **state)
{
    (void)state;
    write_packed("t.embag", 50, true);
    write_keys("t.keys.npy", 0, 50);
    eb_set_trial_expect_fault(
        &trial, "", "/t.keys.npy: ", "the packed table 't' has keys of its own");
}

int main(void)
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
        TEST(refuses_keys_beside_those_of_a_packed_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
