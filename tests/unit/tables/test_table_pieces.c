/* Tables in several files, in packed files and in listed safetensors files. */
#include "server/tables/table_set.h"

#include "server/contents/version_scan.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COLUMNS 3
#define F16_2X2 "{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}"

static struct eb_set_fixture fixture;
static float values[64 * COLUMNS];

static uint64_t available_bytes;

static uint64_t tell_pieces_memory(void)
{
    return available_bytes;
}

static int limit_pieces_memory(void **state)
{
    (void)state;
    eb_faults.eb_machine_available_bytes = tell_pieces_memory;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    available_bytes = UINT64_MAX;
    eb_set_fixture_init(&fixture);
    for (int i = 0; i < 64 * COLUMNS; i++) {
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

/* Writes a piece with rows `first` to `end` - 1 of the values. */
static void write_piece(const char *name, uint64_t first, uint64_t end)
{
    const uint64_t dims[2] = {end - first, COLUMNS};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_F32, dims, values + first * COLUMNS);
}

static void expect_values(const struct eb_table *table, uint64_t rows)
{
    assert_int_equal(table->row_count, rows);
    for (uint64_t row = 0; row < rows; row++) {
        assert_memory_equal((const uint8_t *)table->rows + row * table->row_stride_bytes,
            values + row * COLUMNS, COLUMNS * sizeof values[0]);
    }
}

/* ---- by rows ---- */

static void puts_the_rows_of_pieces_behind_one_another(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_piece("t-00000-of-00003.npy", 0, 5);
    write_piece("t-00001-of-00003.npy", 5, 5);
    write_piece("t-00002-of-00003.npy", 5, 12);
    write_piece("u-00000-of-00001.npy", 0, 2);
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    assert_string_equal(set.tables[0].name, "t");
    assert_int_equal(set.tables[0].dims[0], 12);
    expect_values(&set.tables[0].table, 12);
    expect_values(&set.tables[1].table, 2);
    eb_table_set_deinit(&set);
}

static void converts_pieces_as_one_table(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_piece("t-00000-of-00002.npy", 0, 5);
    write_piece("t-00001-of-00002.npy", 5, 12);
    eb_set_fixture_load(&fixture, "tables: [{name: t, storage: int8, unknown_row: 11}]", &set);
    for (uint64_t row = 0; row < 12; row++) {
        assert_float_equal(
            eb_table_scale(&set.tables[0].table, row).bias, values[row * COLUMNS], 0);
    }
    eb_table_set_deinit(&set);
}

static void misses_pieces(void **state)
{
    (void)state;
    static const char *const names[] = {
        "t-00000-of-00003.npy", "t-00001-of-00003.npy", "t-00002-of-00003.npy"};
    for (size_t missing = 0; missing < 3; missing++) {
        for (size_t i = 0; i < 3; i++) {
            write_piece(names[i], 2 * i, 2 * i + 2);
        }
        eb_set_fixture_remove(&fixture, names[missing]);
        char text[64];
        snprintf(text, sizeof text, "piece %zu of the 3 of table 't' is missing", missing);
        eb_set_fixture_expect_failure(&fixture, "", fixture.scratch.root, text);
    }
}

static void refuses_pieces_that_are_there_twice(void **state)
{
    (void)state;
    write_piece("t-00000-of-00002.npy", 0, 5);
    write_piece("t-00001-of-00002.npy", 5, 12);
    write_piece("t.npy", 0, 12);
    eb_set_fixture_expect_failure(&fixture, "", "/t.npy", "table 't' is also in");
    eb_set_fixture_remove(&fixture, "t.npy");
    write_piece("t-00001-of-00003.npy", 5, 12);
    eb_set_fixture_expect_failure(&fixture, "", "-of-00003.npy", "table 't' is also in");
    eb_set_fixture_remove(&fixture, "t-00001-of-00003.npy");
    write_piece("t-00002-of-00002.npy", 5, 12);
    eb_set_fixture_expect_failure(&fixture, "", "t-00002-of-00002.npy",
        "its name says that it is piece 2 of 2; pieces are numbered from 0");
}

static void refuses_pieces_that_do_not_fit_together(void **state)
{
    (void)state;
    static const uint64_t wide[2] = {2, COLUMNS + 1};
    static const uint64_t same[2] = {2, COLUMNS};
    write_piece("t-00000-of-00002.npy", 0, 5);
    eb_set_fixture_write_npy(&fixture, "t-00001-of-00002.npy", EB_STORAGE_F32, wide, values);
    eb_set_fixture_expect_failure(
        &fixture, "", "t-00001-of-00002.npy", "in format, type or row shape");
    eb_set_fixture_write_npy(&fixture, "t-00001-of-00002.npy", EB_STORAGE_I32, same, values);
    eb_set_fixture_expect_failure(
        &fixture, "", "t-00001-of-00002.npy", "in format, type or row shape");
}

/* ---- packed ---- */

static struct eb_packed_format write_packed_of(
    const char *name, uint64_t rows, uint64_t first, uint64_t total, uint64_t packing)
{
    struct eb_packed_format format = eb_packed_fixture_format(rows, 10);
    struct eb_failure failure;
    format.row_first = first;
    format.rows_total = total;
    format.packing = packing;
    assert_true(eb_packed_format_lay_out(&format, &failure));
    eb_packed_fixture_write(&fixture.scratch, name, &format);
    return format;
}

static struct eb_packed_format write_packed_pieces(
    const char *name, uint64_t rows, uint64_t first, uint64_t total)
{
    return write_packed_of(name, rows, first, total, 0);
}

/* Expects the table's rows from `first` on to be those of the file. */
static void expect_packed(
    const struct eb_table *table, uint64_t first, const struct eb_packed_format *format)
{
    const uint8_t *bytes = (const uint8_t *)table->scales + first * table->row_stride_bytes;
    for (uint64_t i = 0; i < format->tensor.data_bytes; i++) {
        assert_int_equal(bytes[i], eb_packed_fixture_byte(format->tensor.data_offset + i));
    }
}

static void loads_packed_rows_as_they_are(void **state)
{
    (void)state;
    struct eb_table_set set;
    struct eb_packed_format format = write_packed_pieces("t.embag", 300000, 0, 300000);
    eb_set_fixture_load(
        &fixture, "tables: [{name: t, storage: int8, default_index: 299999}]", &set);
    const struct eb_named_table *t = &set.tables[0];
    assert_string_equal(t->name, "t");
    assert_int_equal(t->table.storage, EB_STORAGE_INT8);
    assert_int_equal(t->table.type, EB_F32);
    assert_int_equal(t->table.row_elements, 10);
    assert_ptr_equal(t->table.rows, (const uint8_t *)t->table.scales + sizeof(struct eb_row_scale));
    assert_int_equal(t->digest, format.digest);
    expect_packed(&t->table, 0, &format);
    eb_table_set_deinit(&set);
}

static void loads_packed_pieces(void **state)
{
    (void)state;
    struct eb_table_set set;
    struct eb_packed_format first = write_packed_pieces("t-00000-of-00002.embag", 7, 0, 18);
    struct eb_packed_format second = write_packed_pieces("t-00001-of-00002.embag", 11, 7, 18);
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.tables[0].table.row_count, 18);
    expect_packed(&set.tables[0].table, 0, &first);
    expect_packed(&set.tables[0].table, 7, &second);
    eb_table_set_deinit(&set);
}

static void refuses_packed_pieces_of_other_packings(void **state)
{
    (void)state;
    write_packed_pieces("t-00000-of-00002.embag", 7, 0, 18);
    write_packed_pieces("t-00001-of-00002.embag", 11, 8, 19);
    eb_set_fixture_expect_failure(
        &fixture, "", "t-00001-of-00002.embag", "in format, type or row shape");
    eb_set_fixture_remove(&fixture, "t-00001-of-00002.embag");
    write_packed_pieces("t-00001-of-00002.embag", 10, 8, 18);
    eb_set_fixture_expect_failure(&fixture, "", "t-00000-of-00002.embag",
        "it holds the rows from 0 of a table of 18, but in its place the rows from 0 of a table of "
        "17 ");
    eb_set_fixture_remove(&fixture, "t-00000-of-00002.embag");
    write_packed_pieces("t-00000-of-00002.embag", 8, 0, 18);
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, "", &set);
    eb_table_set_deinit(&set);
}

static void refuses_pieces_that_were_not_packed_together(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_packed_of("t-00000-of-00002.embag", 7, 0, 18, 3);
    write_packed_of("t-00001-of-00002.embag", 11, 7, 18, 4);
    eb_set_fixture_expect_failure(
        &fixture, "", "t-00001-of-00002.embag", "not packed together with");
    eb_set_fixture_remove(&fixture, "t-00001-of-00002.embag");
    write_packed_of("t-00001-of-00002.embag", 11, 7, 18, 3);
    eb_set_fixture_load(&fixture, "", &set);
    eb_table_set_deinit(&set);
}

static void refuses_a_piece_of_a_table_that_is_served_in_pieces(void **state)
{
    (void)state;
    struct eb_packed_format format = eb_packed_fixture_format(9, 10);
    struct eb_failure failure;
    format.parts = 2;
    format.rows_total = 18;
    assert_true(eb_packed_format_lay_out(&format, &failure));
    eb_packed_fixture_write(&fixture.scratch, "t.embag", &format);
    eb_set_fixture_expect_failure(&fixture, "", "/t.embag", "start the server with --part");
}

static void refuses_what_a_packed_table_cannot_be(void **state)
{
    (void)state;
    write_packed_pieces("t.embag", 7, 0, 7);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, storage: int4}]",
        "/t.embag: ", "a packed table cannot be converted");
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8}]",
        "/t.embag: ", "format is not possible for a packed table");
}

static void finds_damage_while_it_loads(void **state)
{
    (void)state;
    struct eb_packed_format format = write_packed_pieces("t.embag", 70, 0, 70);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, "t.embag", path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)format.tensor.data_offset + 100, SEEK_SET), 0);
    assert_true(fputc(~eb_packed_fixture_byte(format.tensor.data_offset + 100) & 0xff, file) >= 0);
    assert_int_equal(fclose(file), 0);
    eb_set_fixture_expect_failure(&fixture, "", "/t.embag: ", "are damaged");
}

/* ---- lists of tensors ---- */

static void write_list(const char *json)
{
    eb_scratch_write_text(&fixture.scratch, "m.safetensors.index.json", json);
}

static void loads_listed_tensors(void **state)
{
    (void)state;
    struct eb_table_set set;
    eb_scratch_write_safetensors(
        &fixture.scratch, "m-00001-of-00002.safetensors", "{\"a\":" F16_2X2 "}", 8);
    eb_scratch_write_safetensors(
        &fixture.scratch, "m-00002-of-00002.safetensors", "{\"b\":" F16_2X2 "}", 8);
    write_list("{\"metadata\":{\"total_size\":16},\"weight_map\":{"
               "\"a\":\"m-00001-of-00002.safetensors\",\"b\":\"m-00002-of-00002.safetensors\"}}");
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    eb_table_set_deinit(&set);
}

static void refuses_lists_that_are_not_met(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"weight_map\":{\"a\":\"m-00001-of-00002.safetensors\",\"b\":\"m-00002-of-00002."
         "safetensors\"}}",
            "tensor 'b' is not in m-00002-of-00002.safetensors"},
        {"{\"weight_map\":{\"b\":\"m-00001-of-00002.safetensors\"}}", "tensor 'b' is not in"},
        {"{\"weight_map\":{\"a\":\"../a.safetensors\"}}", "file of tensor 'a' is not the name"},
        {"{\"weight_map\":{\"a\":5}}", "file of tensor 'a' is not the name"},
        {"{\"weight_map\":[]}", "field 'weight_map' is missing or not an object"},
        {"[]", "field 'weight_map' is missing or not an object"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "tensor 'a' is a duplicate"},
        {"{", "not valid JSON"},
        {"", "not valid JSON"},
    };
    eb_scratch_write_safetensors(
        &fixture.scratch, "m-00001-of-00002.safetensors", "{\"a\":" F16_2X2 "}", 8);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_list(cases[i][0]);
        eb_set_fixture_expect_failure(&fixture, "", "/m.safetensors.index.json: ", cases[i][1]);
    }
}

static void refuses_a_piece_that_is_not_listed(void **state)
{
    (void)state;
    eb_scratch_write_safetensors(
        &fixture.scratch, "m-00001-of-00002.safetensors", "{\"a\":" F16_2X2 "}", 8);
    eb_set_fixture_expect_failure(&fixture, "", "/m-00001-of-00002.safetensors: ",
        "there is no list of them; add m.safetensors.index.json");
}

/* ---- digests ---- */

static struct eb_table_set load_digests(const char *yaml)
{
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, yaml, &set);
    return set;
}

static void gives_equal_contents_equal_digests(void **state)
{
    (void)state;
    write_piece("t.npy", 0, 12);
    write_piece("u.npy", 0, 12);
    write_piece("v.npy", 1, 13);
    struct eb_table_set whole = load_digests("");
    assert_true(whole.tables[0].digest == whole.tables[1].digest);
    assert_true(whole.tables[0].digest != whole.tables[2].digest);
    struct eb_table_set codes = load_digests("tables: [{name: u, storage: f16}]");
    assert_true(whole.tables[0].digest == codes.tables[0].digest);
    assert_true(whole.tables[1].digest != codes.tables[1].digest);
    assert_true(whole.digest != codes.digest);
    eb_set_fixture_remove(&fixture, "t.npy");
    write_piece("t-00000-of-00002.npy", 0, 5);
    write_piece("t-00001-of-00002.npy", 5, 12);
    struct eb_table_set pieces = load_digests("");
    assert_true(whole.tables[0].digest == pieces.tables[0].digest);
    assert_true(whole.digest == pieces.digest);
    eb_table_set_deinit(&whole);
    eb_table_set_deinit(&codes);
    eb_table_set_deinit(&pieces);
}

/* Headers and lists take memory before it is known how much the tables need. */
static void reads_a_description_only_where_there_is_memory_for_it(void **state)
{
    (void)state;
    enum { HEADER = 120000, LIST = 130000 };
    static char file[8 + HEADER + 8 + 1] = {
        (char)(HEADER & 0xff), (char)(HEADER >> 8 & 0xff), (char)(HEADER >> 16)};
    static char list[LIST + 1];
    struct eb_table_set set;
    snprintf(file + 8, HEADER + 1, "%-*s", HEADER, "{\"a\":" F16_2X2 "}");
    snprintf(list, sizeof list, "%-*s", LIST, "{\"weight_map\":{\"a\":\"m.safetensors\"}}");
    eb_scratch_write(&fixture.scratch, "m.safetensors", file, sizeof file - 1);
    available_bytes = HEADER * EB_VERSION_SCAN_JSON_MEMORY - 1;
    eb_set_fixture_expect_failure(
        &fixture, "", "/m.safetensors: ", "may need 2400000 bytes of memory, but 2399999 are");
    available_bytes++;
    eb_set_fixture_load(&fixture, "", &set);
    eb_table_set_deinit(&set);
    write_list(list);
    available_bytes = LIST * EB_VERSION_SCAN_JSON_MEMORY - 1;
    eb_set_fixture_expect_failure(&fixture, "",
        "/m.safetensors.index.json: ", "may need 2600000 bytes of memory, but 2599999 are");
    available_bytes++;
    eb_set_fixture_load(&fixture, "", &set);
    eb_table_set_deinit(&set);
}

EB_TEST_GROUP(table_pieces)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(puts_the_rows_of_pieces_behind_one_another),
        TEST(converts_pieces_as_one_table),
        TEST(misses_pieces),
        TEST(refuses_pieces_that_are_there_twice),
        TEST(refuses_pieces_that_do_not_fit_together),
        TEST(loads_packed_rows_as_they_are),
        TEST(loads_packed_pieces),
        TEST(refuses_packed_pieces_of_other_packings),
        TEST(refuses_pieces_that_were_not_packed_together),
        TEST(refuses_a_piece_of_a_table_that_is_served_in_pieces),
        TEST(refuses_what_a_packed_table_cannot_be),
        TEST(finds_damage_while_it_loads),
        TEST(loads_listed_tensors),
        TEST(refuses_lists_that_are_not_met),
        TEST(refuses_a_piece_that_is_not_listed),
        TEST(reads_a_description_only_where_there_is_memory_for_it),
        TEST(gives_equal_contents_equal_digests),
    };
    return cmocka_run_group_tests(tests, limit_pieces_memory, eb_faults_tear_down);
}
