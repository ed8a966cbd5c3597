/* Tables whose scales and biases are in separate tensors. */
#include "server/tables/scale_tensors.h"

#include "server/tables/table_plan.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 5
#define CODE_BYTES 6 /* of a row */
#define YAML "tables: [{name: t, format: codes_int8, scales: s, biases: b}]"
#define YAML_SCALES "tables: [{name: t, format: codes_int8, scales: s}]"

/* 0.5, 1, 2, 0.25 and 4; 1, -1, 0, 65504 and -0.5 */
static const uint16_t scale_halves[ROWS] = {0x3800, 0x3c00, 0x4000, 0x3400, 0x4400};
static const uint16_t bias_halves[ROWS] = {0x3c00, 0xbc00, 0x0000, 0x7bff, 0xb800};
static const float scales[ROWS] = {0.5f, 1, 2, 0.25f, 4};
static const float biases[ROWS] = {1, -1, 0, 65504, -0.5f};

static struct eb_set_fixture fixture;
static uint8_t codes[ROWS * CODE_BYTES];

static int set_up(void **state)
{
    (void)state;
    eb_set_fixture_init(&fixture);
    for (size_t i = 0; i < sizeof codes; i++) {
        codes[i] = (uint8_t)(i * 37 + 1);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    return 0;
}

/* Writes an array of the rows from `first` to `end` - 1. `columns` is 0 for one dimension. */
static void write_rows(const char *name, enum eb_storage storage, uint64_t columns,
    const uint64_t range[2], const void *data)
{
    const uint64_t dims[2] = {range[1] - range[0], columns};
    uint64_t row_bytes = eb_storage_row_bytes(storage, columns > 0 ? columns : 1);
    eb_set_fixture_write_npy(
        &fixture, name, storage, dims, (const uint8_t *)data + range[0] * row_bytes);
}

static void write_all(const char *name, enum eb_storage storage, uint64_t columns, const void *data)
{
    static const uint64_t all[2] = {0, ROWS};
    write_rows(name, storage, columns, all, data);
}

static void write_table(void)
{
    write_all("t.npy", EB_STORAGE_U8, CODE_BYTES, codes);
    write_all("s.npy", EB_STORAGE_F32, 0, scales);
    write_all("b.npy", EB_STORAGE_F32, 0, biases);
}

/* Expects a set of one table with the codes and these scales and biases. `row_biases` is NULL if
 * all biases are 0. */
static void expect_table(
    const struct eb_table_set *set, enum eb_storage storage, const float *row_biases)
{
    assert_int_equal(set->count, 1);
    assert_string_equal(set->tables[0].name, "t");
    const struct eb_table *table = &set->tables[0].table;
    uint32_t elements = CODE_BYTES * 8 / eb_storage_bits(storage);
    assert_int_equal(table->storage, storage);
    assert_int_equal(table->type, EB_F32);
    assert_int_equal(table->row_elements, elements);
    assert_int_equal(table->row_count, ROWS);
    assert_int_equal(set->tables[0].dims[1], elements);
    assert_int_equal(
        set->tables[0].resident_bytes, ROWS * eb_row_format_of(storage, elements).stride_bytes);
    for (uint64_t row = 0; row < ROWS; row++) {
        struct eb_row_scale scale = eb_table_scale(table, row);
        assert_true(scale.scale == scales[row]);
        assert_true(scale.bias == (row_biases ? row_biases[row] : 0));
        assert_memory_equal((const uint8_t *)table->rows + row * table->row_stride_bytes,
            codes + row * CODE_BYTES, CODE_BYTES);
    }
}

static void load_and_expect(const char *yaml, enum eb_storage storage, const float *row_biases)
{
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, yaml, &set);
    expect_table(&set, storage, row_biases);
    eb_table_set_deinit(&set);
}

/* ---- what is read ---- */

static void reads_codes_of_every_width(void **state)
{
    (void)state;
    write_table();
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
    load_and_expect(
        "tables: [{name: t, format: codes_int4, scales: s, biases: b}]", EB_STORAGE_INT4, biases);
    load_and_expect("tables: [{name: t, format: codes_int2, scales: s, biases: b, dim: 24}]",
        EB_STORAGE_INT2, biases);
    load_and_expect("tables: [{name: t, format: codes_int4, storage: int4, scales: s, biases: b}]",
        EB_STORAGE_INT4, biases);
}

static void has_biases_of_0_if_none_are_named(void **state)
{
    (void)state;
    write_table();
    eb_set_fixture_remove(&fixture, "b.npy");
    load_and_expect(YAML_SCALES, EB_STORAGE_INT8, NULL);
}

static void reads_scales_of_both_types_and_shapes(void **state)
{
    (void)state;
    write_table();
    write_all("s.npy", EB_STORAGE_F16, 1, scale_halves);
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
    write_all("b.npy", EB_STORAGE_F16, 0, bias_halves);
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
    write_all("s.npy", EB_STORAGE_F32, 1, scales);
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
}

static void reads_all_three_from_a_safetensors_file(void **state)
{
    (void)state;
    struct eb_table_set set;
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors",
        "{\"e.weight\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
        "\"e.weight_qscale\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[6,10]},"
        "\"e.weight_qbias\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[10,14]}}",
        14);
    eb_set_fixture_load(&fixture,
        "tables: [{name: t, source: e.weight, format: codes_int8, scales: e.weight_qscale, "
        "biases: e.weight_qbias}]",
        &set);
    assert_int_equal(set.count, 1);
    /* The bytes of the data are 1, 2, 3 and so on. */
    struct eb_row_scale scale = eb_table_scale(&set.tables[0].table, 1);
    assert_true(scale.scale == ldexpf(0x400 + 0x209, 2 - 25)); /* 0x0a09 */
    assert_true(scale.bias == ldexpf(0x400 + 0x20d, 3 - 25));  /* 0x0e0d */
    eb_table_set_deinit(&set);
}

static void reads_pieces_however_each_tensor_is_split(void **state)
{
    (void)state;
    static const uint64_t ranges[][2] = {{0, 2}, {2, 2}, {2, ROWS}};
    static const uint64_t others[][2] = {{0, 4}, {4, ROWS}};
    write_rows("t-00000-of-00003.npy", EB_STORAGE_U8, CODE_BYTES, ranges[0], codes);
    write_rows("t-00001-of-00003.npy", EB_STORAGE_U8, CODE_BYTES, ranges[1], codes);
    write_rows("t-00002-of-00003.npy", EB_STORAGE_U8, CODE_BYTES, ranges[2], codes);
    write_rows("s-00000-of-00003.npy", EB_STORAGE_F32, 0, ranges[0], scales);
    write_rows("s-00001-of-00003.npy", EB_STORAGE_F32, 0, ranges[1], scales);
    write_rows("s-00002-of-00003.npy", EB_STORAGE_F32, 0, ranges[2], scales);
    write_rows("b-00000-of-00002.npy", EB_STORAGE_F16, 1, others[0], bias_halves);
    write_rows("b-00001-of-00002.npy", EB_STORAGE_F16, 1, others[1], bias_halves);
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "s-%05d-of-00003.npy", i);
        eb_set_fixture_remove(&fixture, name);
    }
    write_all("s.npy", EB_STORAGE_F32, 0, scales);
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
}

static void reads_a_table_of_many_chunks(void **state)
{
    (void)state;
    enum { MANY = 100000, SPLIT = 70001 };
    static const uint64_t halves[][2] = {{0, SPLIT}, {SPLIT, MANY}};
    uint8_t *many = malloc(MANY);
    float *numbers = malloc(MANY * sizeof *numbers);
    assert_non_null(many);
    assert_non_null(numbers);
    for (int i = 0; i < MANY; i++) {
        many[i] = (uint8_t)(i % 251);
        numbers[i] = (float)(i + 1);
    }
    struct eb_table_set set;
    static const uint64_t all[2] = {0, MANY};
    write_rows("t.npy", EB_STORAGE_U8, 1, all, many);
    write_rows("s-00000-of-00002.npy", EB_STORAGE_F32, 0, halves[0], numbers);
    write_rows("s-00001-of-00002.npy", EB_STORAGE_F32, 0, halves[1], numbers);
    eb_set_fixture_load(&fixture, YAML_SCALES, &set);
    const struct eb_table *table = &set.tables[0].table;
    for (uint64_t row = 0; row < MANY; row++) {
        const uint8_t *code = (const uint8_t *)table->rows + row * table->row_stride_bytes;
        if (eb_table_scale(table, row).scale != numbers[row] || *code != many[row]) {
            fail_msg("row %" PRIu64, row);
        }
    }
    eb_table_set_deinit(&set);
    free(many);
    free(numbers);
}

static void lets_tables_have_the_same_scales(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_table();
    write_all("u.npy", EB_STORAGE_U8, 2, codes);
    eb_set_fixture_load(&fixture,
        "tables: [{name: t, format: codes_int8, scales: s, biases: b},\n"
        "  {name: u, format: codes_int4, scales: s}]",
        &set);
    assert_int_equal(set.count, 2);
    const struct eb_table *u = &eb_table_set_find(&set, "u")->table;
    assert_true(eb_table_scale(u, 4).scale == scales[4] && eb_table_scale(u, 4).bias == 0);
    assert_true(eb_table_scale(&eb_table_set_find(&set, "t")->table, 4).bias == biases[4]);
    eb_table_set_deinit(&set);
}

static void can_be_keyed_and_empty(void **state)
{
    (void)state;
    static const int64_t keys[ROWS] = {7, -7, 8, 9, 10};
    static const uint64_t none[2] = {0, 0};
    struct eb_table_set set;
    write_table();
    write_all("t.keys.npy", EB_STORAGE_I64, 0, keys);
    eb_set_fixture_load(&fixture, YAML, &set);
    assert_int_equal(eb_key_index_find(&set.tables[0].keys, -7), 1);
    eb_table_set_deinit(&set);
    eb_set_fixture_remove(&fixture, "t.keys.npy");
    write_rows("t.npy", EB_STORAGE_U8, CODE_BYTES, none, codes);
    write_rows("s.npy", EB_STORAGE_F32, 0, none, scales);
    write_rows("b.npy", EB_STORAGE_F16, 1, none, bias_halves);
    eb_set_fixture_load(&fixture, YAML, &set);
    assert_int_equal(set.tables[0].table.row_count, 0);
    eb_table_set_deinit(&set);
}

/* ---- what is refused ---- */

static void expect_refused(const char *part, const char *other_part)
{
    eb_set_fixture_expect_failure(&fixture, YAML, part, other_part);
}

static void names_the_tensor_that_is_not_there(void **state)
{
    (void)state;
    write_table();
    eb_set_fixture_remove(&fixture, "b.npy");
    expect_refused("/t.npy: model.yaml: table 't': biases: tensor 'b' is not in this version", "");
    write_all("b-00000-of-00002.npy", EB_STORAGE_F32, 0, biases);
    expect_refused("/b-00000-of-00002.npy: ", "piece 1 of the 2 of table 'b' is missing");
    eb_set_fixture_remove(&fixture, "b-00000-of-00002.npy");
    write_all("b.keys.npy", EB_STORAGE_I64, 0, (int64_t[ROWS]){0});
    expect_refused("/b.keys.npy: keys without rows", "");
}

static void expects_one_number_for_each_row(void **state)
{
    (void)state;
    static const uint64_t few[2] = {0, ROWS - 1};
    static const uint64_t one[2] = {0, 1};
    static const uint64_t many_dims[2] = {ROWS + 1, 1};
    static const float many[2 * ROWS] = {0};
    static const double doubles[ROWS] = {0};
    write_table();
    write_rows("s.npy", EB_STORAGE_F32, 0, few, scales);
    expect_refused("/s.npy: model.yaml: table 't': scales: expected one f32 or f16 for each row, "
                   "of shape (5,) or (5, 1), but this is (4,) of f32",
        "name the tensor that belongs to this table");
    eb_set_fixture_write_npy(&fixture, "s.npy", EB_STORAGE_F32, many_dims, many);
    expect_refused("/s.npy: model.yaml: table 't': scales: ", "but this is (6, 1) of f32; name");
    write_rows("s.npy", EB_STORAGE_F32, 0, one, scales);
    expect_refused("/s.npy: ", "one scale for the whole table is not supported: repeat it");
    write_all("s.npy", EB_STORAGE_F32, 2, many);
    expect_refused("(5, 2) of f32", "scales of blocks of a row are not supported: dequantise");
    write_all("s.npy", EB_STORAGE_F64, 0, doubles);
    expect_refused("/s.npy: ", "this is (5,) of f64; convert it to F32 or F16");
    write_all("s.npy", EB_STORAGE_F32, 0, scales);
    write_all("b.npy", EB_STORAGE_I32, 0, many);
    expect_refused("/b.npy: model.yaml: table 't': biases: ", "this is (5,) of i32; convert");
}

static void refuses_scales_that_cannot_be_a_table(void **state)
{
    (void)state;
    write_table();
    eb_set_fixture_remove(&fixture, "s.npy");
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors",
        "{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    expect_refused("/m.safetensors: model.yaml: table 't': scales: tensor 's' has no number for "
                   "each row: ",
        "a scalar is not a table");
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors",
        "{\"s\":{\"dtype\":\"F8_E8M0\",\"shape\":[5],\"data_offsets\":[0,5]}}", 5);
    expect_refused("/m.safetensors: model.yaml: ", "scales of blocks (MX formats)");
}

static void refuses_packed_scales_and_codes(void **state)
{
    (void)state;
    struct eb_packed_format format = eb_packed_fixture_format(ROWS, 4);
    write_table();
    eb_set_fixture_remove(&fixture, "s.npy");
    eb_packed_fixture_write(&fixture.scratch, "s.embag", &format);
    expect_refused(
        "/s.embag: model.yaml: table 't': scales: expected an npy or safetensors file", "packed");
    write_all("s.npy", EB_STORAGE_F32, 0, scales);
    eb_set_fixture_remove(&fixture, "s.npy");
    eb_set_fixture_remove(&fixture, "t.npy");
    eb_packed_fixture_write(&fixture.scratch, "t.embag", &format);
    expect_refused("/t.embag: model.yaml: table 't': format is not possible for a packed", "");
}

static void refuses_scales_that_are_a_table(void **state)
{
    (void)state;
    write_table();
    eb_set_fixture_expect_failure(&fixture,
        "tables: [{name: t, format: codes_int8, scales: s, biases: b}, {name: u, source: b}]",
        "/b.npy: model.yaml: table 't': biases: ", "'b' is also the source of table 'u'");
}

static void refuses_rows_that_are_not_codes(void **state)
{
    (void)state;
    static const struct {
        enum eb_storage storage;
        uint64_t columns;
        const char *part;
    } cases[] = {
        {EB_STORAGE_I8, CODE_BYTES, "(5, 6) of i8; codes are unsigned: add 128 to each"},
        {EB_STORAGE_U8, 0, "(5,) of u8; correct source or format"},
        {EB_STORAGE_U16, 3, "(5, 3) of u16; correct source or format"},
    };
    write_table();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_all("t.npy", cases[i].storage, cases[i].columns, codes);
        expect_refused("/t.npy: model.yaml: table 't': expected codes as a u8 tensor of shape "
                       "(rows, bytes), but this is ",
            cases[i].part);
    }
    eb_set_fixture_remove(&fixture, "t.npy");
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors",
        "{\"t\":{\"dtype\":\"F8_E5M2\",\"shape\":[5,2],\"data_offsets\":[0,10]}}", 10);
    expect_refused("/m.safetensors: ", "fp8 with scales is not supported: dequantise the table");
}

static void refuses_a_dim_or_a_storage_that_does_not_fit(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        unsigned dim;
        bool is_good;
    } cases[] = {
        {"codes_int8", 5, false},
        {"codes_int8", 6, true},
        {"codes_int8", 7, false},
        {"codes_int4", 10, false},
        {"codes_int4", 11, true},
        {"codes_int4", 12, true},
        {"codes_int4", 13, false},
        {"codes_int2", 20, false},
        {"codes_int2", 21, true},
        {"codes_int2", 24, true},
        {"codes_int2", 25, false},
    };
    write_table();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char yaml[128];
        struct eb_table_set set;
        snprintf(yaml, sizeof yaml, "tables: [{name: t, format: %s, scales: s, dim: %u}]",
            cases[i].format, cases[i].dim);
        if (!cases[i].is_good) {
            eb_set_fixture_expect_failure(
                &fixture, yaml, "/t.npy: model.yaml: table 't': dim ", "but these have 6; correct");
            continue;
        }
        eb_set_fixture_load(&fixture, yaml, &set);
        assert_int_equal(eb_table_set_find(&set, "t")->table.row_elements, cases[i].dim);
        eb_table_set_deinit(&set);
    }
    eb_set_fixture_expect_failure(&fixture,
        "tables: [{name: t, format: codes_int8, scales: s, storage: int4}]",
        "/t.npy: model.yaml: table 't': storage int4", "its format already determines");
}

static void names_the_scale_that_is_not_finite(void **state)
{
    (void)state;
    static const struct {
        float scale;
        float bias;
        const char *file;
        const char *text;
    } cases[] = {
        {NAN, 0, "/s.npy: row 3 of table 't': ", "values of scale nan and bias 0 are not finite"},
        {-INFINITY, 0, "/s.npy: row 3 ", "scale -inf"},
        {1, INFINITY, "/b.npy: row 3 of table 't': ", "scale 1 and bias inf are not finite"},
        {NAN, NAN, "/s.npy: row 3 ", "scale nan"},
        {3e38f, 0, "/s.npy: row 3 ", "scale 3e+38"},
    };
    write_table();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float bad_scales[ROWS] = {1, 1, 1, cases[i].scale, 1};
        float bad_biases[ROWS] = {0, 0, 0, cases[i].bias, 0};
        write_all("s.npy", EB_STORAGE_F32, 0, bad_scales);
        write_all("b.npy", EB_STORAGE_F32, 1, bad_biases);
        expect_refused(cases[i].file, cases[i].text);
    }
}

static void takes_a_negative_scale_but_not_scales_for_biases(void **state)
{
    (void)state;
    static const float one_below[ROWS] = {1, -1, 1, 1, 1};
    static const float two_below[ROWS] = {1, -1, 1, -1, 1};
    struct eb_table_set set;
    write_table();
    write_all("s.npy", EB_STORAGE_F32, 0, one_below);
    eb_set_fixture_load(&fixture, YAML, &set);
    assert_true(eb_table_scale(&set.tables[0].table, 1).scale == -1);
    eb_table_set_deinit(&set);
    write_all("s.npy", EB_STORAGE_F32, 0, two_below);
    expect_refused("/s.npy: row 1 of table 't': ",
        "2 of 5 rows with codes are like it: scales and biases may be swapped");
}

/* In rows whose values are nearly equal, rounding to f16 may make the scale negative. */
static void takes_scales_that_only_rounding_made_negative(void **state)
{
    (void)state;
    static const float small[ROWS] = {-0x1p-20f, -0x1p-20f, -0x1p-20f, -0x1p-20f, 1};
    static const uint16_t small_halves[ROWS] = {0x8010, 0x8010, 0x8010, 0x8010, 0x3c00};
    static const uint16_t ones[ROWS] = {0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00};
    struct eb_table_set set;
    write_table();
    write_all("b.npy", EB_STORAGE_F16, 0, ones);
    write_all("s.npy", EB_STORAGE_F16, 0, small_halves);
    eb_set_fixture_load(&fixture, YAML, &set);
    assert_true(eb_table_scale(&set.tables[0].table, 0).scale == small[0]);
    eb_table_set_deinit(&set);
    write_all("s.npy", EB_STORAGE_F32, 0, small);
    expect_refused("/s.npy: row 0 of table 't': ", "4 of 5 rows with codes are like it");
}

/* ---- values that are not complete ---- */

static void write_fp8(const char *name, const char *scale, const char *scale_fields)
{
    char json[256];
    snprintf(json, sizeof json,
        "{\"%s\":{\"dtype\":\"F8_E4M3\",\"shape\":[5,2],\"data_offsets\":[0,10]},"
        "\"%s\":{%s,\"data_offsets\":[10,14]}}",
        name, scale, scale_fields);
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors", json, 14);
}

static void refuses_fp8_with_scales_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *scale;
        const char *fields;
    } cases[] = {
        {"t", "t_scale", "\"dtype\":\"F32\",\"shape\":[]"},
        {"e.weight", "e.weight_scale", "\"dtype\":\"F32\",\"shape\":[1]"},
        {"e.weight", "e.weight_scale_inv", "\"dtype\":\"BF16\",\"shape\":[1,2]"},
        {"e.weight", "e.scale", "\"dtype\":\"F8_E8M0\",\"shape\":[4]"},
        {"e.weight", "e_scales", "\"dtype\":\"F32\",\"shape\":[1,1]"},
        {"e.weight", "e.weight_qscale", "\"dtype\":\"U8\",\"shape\":[4]"},
        {"e.weight", "e.scale_inv", "\"dtype\":\"F32\",\"shape\":[1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        write_fp8(cases[i].name, cases[i].scale, cases[i].fields);
        snprintf(text, sizeof text, "/m.safetensors: table '%s' is f8_e4m3, and tensor '%s' seems",
            cases[i].name, cases[i].scale);
        eb_set_fixture_expect_failure(
            &fixture, "", text, "fp8 with scales is not supported; dequantise the table to F32");
    }
}

static void asks_how_bytes_with_scales_are_meant(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"e.weight", "e.weight_qscale"}, {"t", "t_scale"}, {"e_blocks", "e_scales"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char json[256];
        char yaml[64];
        char text[128];
        struct eb_table_set set;
        snprintf(json, sizeof json,
            "{\"%s\":{\"dtype\":\"U8\",\"shape\":[5,2],\"data_offsets\":[0,10]},"
            "\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[10,14]}}",
            names[i][0], names[i][1]);
        snprintf(text, sizeof text, "/m.safetensors: table '%s' is u8, and tensor '%s' seems",
            names[i][0], names[i][1]);
        snprintf(yaml, sizeof yaml, "tables: [{name: u, source: %s}]", names[i][0]);
        eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors", json, 14);
        eb_set_fixture_expect_failure(&fixture, "", text,
            "describe the table in model.yaml, with scales and format codes_int8, codes_int4 or");
        eb_set_fixture_load(&fixture, yaml, &set);
        assert_int_equal(set.count, 2);
        eb_table_set_deinit(&set);
    }
}

static void loads_fp8_that_has_no_scales(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_fp8("e.weight", "other_scale", "\"dtype\":\"F32\",\"shape\":[1]");
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    eb_table_set_deinit(&set);
    write_fp8(".weight", "_scale", "\"dtype\":\"F32\",\"shape\":[1]");
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    eb_table_set_deinit(&set);
    write_fp8("t", "t_scale", "\"dtype\":\"F32\",\"shape\":[]");
    eb_set_fixture_load(&fixture, "exclude: [t_scale]", &set);
    assert_int_equal(set.tables[0].table.storage, EB_STORAGE_F8_E4M3);
    eb_table_set_deinit(&set);
}

/* ---- memory and progress ---- */

static bool count_scale_bytes(void *context, uint64_t bytes)
{
    *(uint64_t *)context += bytes;
    return true;
}

static void counts_scales_as_work_but_not_as_memory(void **state)
{
    (void)state;
    uint64_t read_bytes = 0;
    struct eb_load_progress progress = {.go_on = count_scale_bytes, .context = &read_bytes};
    struct eb_model_config config;
    struct eb_table_plan plan;
    struct eb_failure failure;
    write_table();
    write_all("b.npy", EB_STORAGE_F16, 0, bias_halves);
    assert_true(eb_model_config_parse((const uint8_t *)YAML, strlen(YAML), 255, &config, &failure));
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    assert_true(eb_table_plan_read(fixture.scratch.root, &options, &plan, &failure));
    assert_int_equal(plan.table_count, 1);
    assert_int_equal(plan.work_bytes, sizeof codes + sizeof scales + sizeof bias_halves);
    assert_int_equal(plan.need.whole_bytes, 0);
    struct eb_table_need need = {0};
    eb_table_memory_need_add(
        &need, ROWS * eb_row_format_of(EB_STORAGE_INT8, CODE_BYTES).stride_bytes);
    assert_int_equal(plan.need.common_bytes, need.common_bytes);
    eb_table_plan_deinit(&plan);
    eb_model_config_deinit(&config);
    fixture.progress = &progress;
    load_and_expect(YAML, EB_STORAGE_INT8, biases);
    assert_int_equal(read_bytes, sizeof codes + sizeof scales + sizeof bias_halves);
}

EB_TEST_GROUP(scale_tensors)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(reads_codes_of_every_width),
        TEST(has_biases_of_0_if_none_are_named),
        TEST(reads_scales_of_both_types_and_shapes),
        TEST(reads_all_three_from_a_safetensors_file),
        TEST(reads_pieces_however_each_tensor_is_split),
        TEST(reads_a_table_of_many_chunks),
        TEST(lets_tables_have_the_same_scales),
        TEST(can_be_keyed_and_empty),
        TEST(names_the_tensor_that_is_not_there),
        TEST(expects_one_number_for_each_row),
        TEST(refuses_scales_that_cannot_be_a_table),
        TEST(refuses_packed_scales_and_codes),
        TEST(refuses_scales_that_are_a_table),
        TEST(refuses_rows_that_are_not_codes),
        TEST(refuses_a_dim_or_a_storage_that_does_not_fit),
        TEST(names_the_scale_that_is_not_finite),
        TEST(takes_a_negative_scale_but_not_scales_for_biases),
        TEST(takes_scales_that_only_rounding_made_negative),
        TEST(refuses_fp8_with_scales_by_name),
        TEST(asks_how_bytes_with_scales_are_meant),
        TEST(loads_fp8_that_has_no_scales),
        TEST(counts_scales_as_work_but_not_as_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
