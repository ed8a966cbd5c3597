#include "server/tables/table_storage.h"

#include "kernels/quantize.h"
#include "server/tables/table_plan.h"
#include "tests/lib/test_group.h"
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
#define COLUMNS 7
#define ROW_BYTES_MAX 64

static const uint64_t shape[2] = {ROWS, COLUMNS};
static struct eb_set_fixture fixture;
static float values[ROWS * COLUMNS];

static int set_up(void **state)
{
    (void)state;
    eb_set_fixture_init(&fixture);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        values[i] = sinf((float)i) * (float)(1 + i % 9);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    return 0;
}

/* Expects row `row` of the table to be what eb_quantize_row makes of the values. */
static void expect_row(const struct eb_table *table, uint64_t row, const float *from)
{
    uint8_t bytes[ROW_BYTES_MAX];
    struct eb_row_scale scale = {0};
    assert_true(eb_quantize_row(table->storage, from, table->row_elements, bytes, &scale));
    assert_memory_equal((const uint8_t *)table->rows + row * table->row_stride_bytes, bytes,
        eb_storage_row_bytes(table->storage, table->row_elements));
    if (eb_storage_is_code(table->storage)) {
        struct eb_row_scale found = eb_table_scale(table, row);
        assert_memory_equal(&found, &scale, sizeof scale);
    } else {
        assert_null(table->scales);
    }
}

static void converts_to_every_storage(void **state)
{
    (void)state;
    static const enum eb_storage storages[] = {EB_STORAGE_F32, EB_STORAGE_F16, EB_STORAGE_BF16,
        EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2, EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, shape, values);
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        char yaml[64];
        struct eb_table_set set;
        snprintf(
            yaml, sizeof yaml, "tables: [{name: t, storage: %s}]", eb_storage_name(storages[i]));
        eb_set_fixture_load(&fixture, yaml, &set);
        const struct eb_named_table *t = &set.tables[0];
        struct eb_row_format format = eb_row_format_of(storages[i], COLUMNS);
        assert_int_equal(t->table.storage, storages[i]);
        assert_int_equal(t->table.type, EB_F32);
        assert_int_equal(t->table.row_elements, COLUMNS);
        assert_int_equal(t->table.row_stride_bytes, format.stride_bytes);
        assert_int_equal(t->resident_bytes, ROWS * format.stride_bytes);
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->dims[1], COLUMNS);
        for (uint64_t row = 0; row < ROWS; row++) {
            expect_row(&t->table, row, values + row * COLUMNS);
        }
        eb_table_set_deinit(&set);
    }
}

static void refuses_values_that_the_storage_cannot_hold(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {2, 2};
    static const float large[4] = {1, 2, -3, 65536};
    static const float infinite[4] = {1, 2, -3, INFINITY};
    struct eb_table_set set;
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, dims, large);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, storage: f16}]",
        "/t.npy: row 1 of table 't': value 1 is 65536, more than f16 can hold", "");
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, storage: f8_e5m2}]",
        "/t.npy: ", "more than f8_e5m2 can hold");
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, dims, infinite);
    eb_set_fixture_expect_failure(
        &fixture, "tables: [{name: t, storage: f8_e4m3}]", "/t.npy: ", "is inf, more than");
    eb_set_fixture_load(&fixture, "tables: [{name: t, storage: f16}]", &set);
    eb_table_set_deinit(&set);
}

static void keeps_the_type_of_the_file(void **state)
{
    (void)state;
    static const uint16_t halves[4] = {0x3c00, 0x4000, 0xc000, 0x0000}; /* 1, 2, -2, 0 */
    static const float floats[4] = {1, 2, -2, 0};
    static const uint64_t dims[2] = {2, 2};
    struct eb_table_set set;
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F16, dims, halves);
    eb_set_fixture_load(&fixture, "tables: [{name: t, storage: int8}]", &set);
    assert_int_equal(set.tables[0].table.type, EB_F16);
    expect_row(&set.tables[0].table, 0, floats);
    expect_row(&set.tables[0].table, 1, floats + 2);
    eb_table_set_deinit(&set);
}

static void converts_a_table_of_many_chunks(void **state)
{
    (void)state;
    enum { MANY = 2200000 };
    static const uint64_t dims[2] = {MANY, 1};
    float *many = malloc(MANY * sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < MANY; i++) {
        many[i] = (float)i;
    }
    struct eb_table_set set;
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, dims, many);
    eb_set_fixture_load(&fixture, "tables: [{name: t, storage: int8}]", &set);
    for (uint64_t row = 0; row < MANY; row++) {
        struct eb_row_scale scale = eb_table_scale(&set.tables[0].table, row);
        if (scale.bias != many[row] || scale.scale != 0) {
            fail_msg("row %" PRIu64 " is %g", row, (double)scale.bias);
        }
    }
    eb_table_set_deinit(&set);
    free(many);
}

static void counts_memory_as_it_will_be(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {100000, 32};
    float *zeros = calloc(dims[0] * dims[1], sizeof *zeros);
    assert_non_null(zeros);
    struct eb_model_config config;
    struct eb_failure failure;
    struct eb_table_plan plan;
    static const char yaml[] = "tables: [{name: t, storage: int4}]";
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, dims, zeros);
    free(zeros);
    assert_true(
        eb_model_config_parse((const uint8_t *)yaml, sizeof yaml - 1, 255, &config, &failure));
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    assert_true(eb_table_plan_read(fixture.scratch.root, &options, &plan, &failure));
    assert_int_equal(
        eb_table_memory_need_bytes(&plan.need), eb_table_memory_footprint(100000 * (16 + 8)));
    eb_table_plan_deinit(&plan);
    eb_model_config_deinit(&config);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    double doubles[ROWS * COLUMNS] = {0};
    int32_t integers[ROWS * COLUMNS] = {0};
    eb_set_fixture_write_npy(&fixture, "d.npy", EB_STORAGE_F64, shape, doubles);
    eb_set_fixture_write_npy(&fixture, "i.npy", EB_STORAGE_I32, shape, integers);
    static const char *const cases[][2] = {
        {"tables: [{name: d, storage: int8}]", "table 'd': storage int8: values of type f64"},
        {"tables: [{name: d, storage: f32}]", "table 'd': storage f32: values of type f64"},
        {"tables: [{name: i, storage: int8}]", "table 'i': storage int8: its values are integers"},
        {"tables: [{name: i, storage: f32}]", "table 'i': storage f32: its values are integers"},
        {"tables: [{name: i, format: fbgemm_int8}]",
            "table 'i': expected fused rows as a u8 tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        eb_set_fixture_expect_failure(&fixture, cases[i][0], "model.yaml: ", cases[i][1]);
    }
}

static void names_the_value_that_cannot_become_a_code(void **state)
{
    (void)state;
    values[3 * COLUMNS + 2] = NAN;
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, storage: int4}]",
        "/t.npy: row 3 of table 't'", "value 2 is nan");
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, "tables: [{name: t, storage: f8_e5m2}]", &set);
    eb_table_set_deinit(&set);
}

/* ---- fused rows ---- */

static const struct {
    const char *name;
    struct eb_fused_format format;
} fused_cases[] = {
    {"fbgemm_int8", {EB_STORAGE_INT8, EB_FUSED_F32_LAST, 12}},
    {"fbgemm_int4", {EB_STORAGE_INT4, EB_FUSED_F16_LAST, 12}},
    {"fbgemm_int2", {EB_STORAGE_INT2, EB_FUSED_F16_LAST, 12}},
    {"fbgemm_int8_f16", {EB_STORAGE_INT8, EB_FUSED_F16_LAST, 12}},
    {"torchrec_int8", {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 12}},
    {"torchrec_int4", {EB_STORAGE_INT4, EB_FUSED_F16_FIRST, 12}},
    {"torchrec_int2", {EB_STORAGE_INT2, EB_FUSED_F16_FIRST, 12}},
};

static void reads_fused_rows(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof fused_cases / sizeof fused_cases[0]; n++) {
        const struct eb_fused_format *format = &fused_cases[n].format;
        const uint64_t dims[2] = {2, eb_fused_row_bytes(format)};
        const struct eb_row_scale scales[2] = {{0.5f, -3}, {2, 8}};
        uint8_t codes[2][12];
        uint8_t fused[2 * 64];
        uint64_t code_bytes = eb_storage_row_bytes(format->storage, format->elements);
        for (uint8_t i = 0; i < 24; i++) {
            codes[i / 12][i % 12] = (uint8_t)(i * 37);
        }
        for (size_t row = 0; row < 2; row++) {
            assert_true(eb_fused_row_join(format, codes[row], &scales[row], fused + row * dims[1]));
        }
        eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, dims, fused);
        char yaml[64];
        struct eb_table_set set;
        snprintf(
            yaml, sizeof yaml, "tables: [{name: t, format: %s, dim: 12}]", fused_cases[n].name);
        eb_set_fixture_load(&fixture, yaml, &set);
        const struct eb_table *table = &set.tables[0].table;
        assert_int_equal(table->storage, format->storage);
        assert_int_equal(table->type, EB_F32);
        assert_int_equal(table->row_elements, 12);
        assert_int_equal(set.tables[0].dims[1], 12);
        for (size_t row = 0; row < 2; row++) {
            struct eb_row_scale scale = eb_table_scale(table, row);
            assert_memory_equal(&scale, &scales[row], sizeof scale);
            assert_memory_equal((const uint8_t *)table->rows + row * table->row_stride_bytes,
                codes[row], code_bytes);
        }
        eb_table_set_deinit(&set);
    }
}

/* Writes two rows of a format, each followed by `padding` bytes. */
static void write_padded(const struct eb_fused_format *format, uint64_t padding)
{
    uint64_t bytes = eb_fused_row_bytes(format);
    const uint64_t dims[2] = {2, bytes + padding};
    struct eb_row_scale scale = {0.5f, -3};
    uint8_t codes[64];
    uint8_t fused[2 * 256] = {0};
    memset(codes, 0x5a, sizeof codes);
    for (size_t row = 0; row < 2; row++) {
        assert_true(eb_fused_row_join(format, codes, &scale, fused + row * dims[1]));
    }
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, dims, fused);
}

static void expect_dims(const char *yaml, uint64_t dim)
{
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, yaml, &set);
    const struct eb_table *table = &set.tables[0].table;
    assert_int_equal(set.tables[0].dims[0], 2);
    assert_int_equal(set.tables[0].dims[1], dim);
    assert_int_equal(table->row_elements, dim);
    for (size_t row = 0; row < 2; row++) {
        struct eb_row_scale scale = eb_table_scale(table, row);
        assert_true(scale.scale == 0.5f && scale.bias == -3);
        assert_int_equal(((const uint8_t *)table->rows)[row * table->row_stride_bytes], 0x5a);
    }
    eb_table_set_deinit(&set);
}

static void reads_padded_rows_of_a_dim_that_is_said(void **state)
{
    (void)state;
    struct eb_fused_format first = {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 16};
    write_padded(&first, 12);
    expect_dims("tables: [{name: t, format: torchrec_int8, dim: 16}]", 16);
    expect_dims("tables: [{name: t, format: torchrec_int8, dim: 28}]", 28);
    struct eb_fused_format odd = {EB_STORAGE_INT4, EB_FUSED_F16_FIRST, 5};
    write_padded(&odd, 9);
    expect_dims("tables: [{name: t, format: torchrec_int4, dim: 5}]", 5);
    struct eb_fused_format last = {EB_STORAGE_INT4, EB_FUSED_F16_LAST, 5};
    write_padded(&last, 0);
    expect_dims("tables: [{name: t, format: fbgemm_int4, dim: 5}]", 5);
    expect_dims("tables: [{name: t, format: fbgemm_int4}]", 6);
    write_padded(&first, 127);
    expect_dims("tables: [{name: t, format: torchrec_int8, dim: 16}]", 16);
}

static void refuses_a_dim_that_does_not_fit(void **state)
{
    (void)state;
    struct eb_fused_format first = {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 16};
    write_padded(&first, 12);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: torchrec_int8, dim: 29}]",
        "table 't': dim 29 needs rows of 33 bytes", "but these have 32");
    write_padded(&first, 128);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: torchrec_int8, dim: 16}]",
        "dim 16 needs rows of 20 bytes, padded by fewer than 128", "but these have 148");
    struct eb_fused_format last = {EB_STORAGE_INT8, EB_FUSED_F32_LAST, 16};
    write_padded(&last, 4);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8, dim: 16}]",
        "dim 16 needs rows of 24 bytes, but these have 28", "correct dim or format");
}

/* TorchRec's rows of 16 values have 32 bytes here, the last 12 of them padding. In a format whose
 * scale and bias follow the codes, these rows would have the scale 0. */
static void refuses_rows_of_another_layout(void **state)
{
    (void)state;
    struct eb_fused_format first = {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 16};
    write_padded(&first, 12);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8}]",
        "row 0 of table 't': in this format, a row with such codes cannot have the scale 0 and "
        "bias 0",
        "may be of format fbgemm_int8_f16 or torchrec_int8");
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8_f16}]",
        "row 0 of table 't': in this format, a row with", "of format fbgemm_int8 or torchrec_int8");
    struct eb_fused_format nibbles = {EB_STORAGE_INT4, EB_FUSED_F16_FIRST, 16};
    write_padded(&nibbles, 4);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int4}]",
        "in this format, a row with", "may be of format torchrec_int4;");
}

/* Writes rows `first` to `end` - 1 of 4 rows in TorchRec's format. Row r has the scale scales[r]
 * and codes other than 0. If scales[r] is NAN, row r has the scale 1 and only codes of 0. */
static void write_scaled(const char *file, const float scales[4], uint64_t first, uint64_t end)
{
    struct eb_fused_format format = {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 12};
    const uint64_t dims[2] = {end - first, eb_fused_row_bytes(&format)};
    uint8_t fused[4 * 64];
    for (uint64_t row = first; row < end; row++) {
        bool has_codes = !isnan(scales[row]);
        struct eb_row_scale scale = {has_codes ? scales[row] : 1, 0.25f};
        uint8_t codes[12];
        memset(codes, has_codes ? 0xa5 : 0, sizeof codes);
        assert_true(eb_fused_row_join(&format, codes, &scale, fused + (row - first) * dims[1]));
    }
    eb_set_fixture_write_npy(&fixture, file, EB_STORAGE_U8, dims, fused);
}

#define SCALED "tables: [{name: t, format: torchrec_int8, dim: 12}]"

/* FBGEMM makes the codes of an 8-bit row and then rounds the scale of the row to f16. The scale
 * becomes 0 if the row spans less than 7.6e-6. */
static void takes_single_rows_of_scale_0_or_below(void **state)
{
    (void)state;
    static const float tables[][4] = {
        {0, 1, 1, 1}, {0, 0, 0, 1}, {-1, 1, 1, 1}, {-1, 0, 0, 1}, {NAN, NAN, NAN, NAN}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct eb_table_set set;
        write_scaled("t.npy", tables[i], 0, 4);
        eb_set_fixture_load(&fixture, SCALED, &set);
        struct eb_row_scale scale = eb_table_scale(&set.tables[0].table, 0);
        assert_true(scale.scale == (isnan(tables[i][0]) ? 1 : tables[i][0]));
        assert_true(scale.bias == 0.25f);
        eb_table_set_deinit(&set);
    }
}

static void refuses_tables_most_of_whose_scales_cannot_be(void **state)
{
    (void)state;
    static const struct {
        float scales[4];
        const char *row;
        const char *count;
    } cases[] = {
        {{0, 0, 0, 0}, "row 0 of table 't'", "4 of 4 rows with codes"},
        {{0, 0, -1, 0}, "have the scale 0 and", "4 of 4 rows with codes"},
        {{1, -1, 1, -2},
            "row 1 of table 't': in this format, a row with such codes cannot have the scale -1 "
            "and",
            "2 of 4 rows"},
        {{NAN, -1, 1, 1}, "row 1 of table 't'", "1 of 3 rows"},
        {{NAN, NAN, NAN, 0}, "row 3 of table 't'", "1 of 1 rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_scaled("t.npy", cases[i].scales, 0, 4);
        eb_set_fixture_expect_failure(&fixture, SCALED, cases[i].row, cases[i].count);
        eb_set_fixture_expect_failure(
            &fixture, SCALED, "/t.npy: ", "may be of format fbgemm_int8 or fbgemm_int8_f16; give");
    }
}

static void judges_the_rows_of_all_files_of_a_table(void **state)
{
    (void)state;
    struct eb_table_set set;
    static const float good[4] = {0, 0, 1, 1};
    write_scaled("t-00000-of-00002.npy", good, 0, 2);
    write_scaled("t-00001-of-00002.npy", good, 2, 4);
    eb_set_fixture_load(&fixture, SCALED, &set);
    eb_table_set_deinit(&set);
    static const float bad[4] = {1, 1, -1, -1};
    write_scaled("t-00000-of-00002.npy", bad, 0, 2);
    write_scaled("t-00001-of-00002.npy", bad, 2, 4);
    eb_set_fixture_expect_failure(
        &fixture, SCALED, "/t-00001-of-00002.npy: row 2 of table 't'", "2 of 4 rows");
}

/* FBGEMM's GPU kernels store the f32 scale of a row at a multiple of 4 bytes. */
static void reads_f32_scales_that_are_aligned(void **state)
{
    (void)state;
    uint8_t fused[2 * 16] = {0};
    const uint64_t dims[2] = {2, 16};
    const float numbers[2] = {0.5f, -3};
    for (size_t row = 0; row < 2; row++) {
        memset(fused + row * 16, 0x5a, 5);
        memcpy(fused + row * 16 + 8, numbers, sizeof numbers);
    }
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, dims, fused);
    expect_dims("tables: [{name: t, format: fbgemm_int8, dim: 5}]", 5);
    expect_dims("tables: [{name: t, format: fbgemm_int8, dim: 8}]", 8);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8, dim: 4}]",
        "dim 4 needs rows of 12 bytes", "but these have 16");
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8_f16, dim: 9}]",
        "dim 9 needs rows of 13 bytes", "but these have 16");
}

static void refuses_fused_rows_whose_values_are_not_finite(void **state)
{
    (void)state;
    static const struct eb_row_scale bad_scales[] = {{NAN, 0}, {1, NAN}, {INFINITY, 0},
        {-INFINITY, 0}, {0, INFINITY}, {2e36f, 0}, {1e38f, 3e38f}};
    for (size_t n = 0; n < sizeof bad_scales / sizeof bad_scales[0]; n++) {
        const struct eb_fused_format *format = &fused_cases[0].format;
        const uint64_t dims[2] = {3, eb_fused_row_bytes(format)};
        struct eb_row_scale good = {1, 2};
        uint8_t codes[12] = {0};
        uint8_t fused[3 * 64];
        for (size_t row = 0; row < 3; row++) {
            (void)eb_fused_row_join(
                format, codes, row == 1 ? &bad_scales[n] : &good, fused + row * dims[1]);
        }
        eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, dims, fused);
        eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8}]",
            "/t.npy: row 1 of table 't': values of scale", "are not finite");
    }
}

static void refuses_rows_that_are_not_fused(void **state)
{
    (void)state;
    static const uint64_t narrow[2] = {3, 8};
    static const uint64_t flat[2] = {24, 0};
    static const uint8_t bytes[24] = {0};
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, narrow, bytes);
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: t, format: fbgemm_int8}]",
        "/t.npy: ", "rows of 8 bytes are not fused rows");
    eb_set_fixture_expect_failure(&fixture,
        "tables: [{name: t, format: fbgemm_int4, storage: int8}]",
        "/t.npy: ", "its format already determines");
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_U8, flat, bytes);
    eb_set_fixture_expect_failure(
        &fixture, "tables: [{name: t, format: fbgemm_int4}]", "/t.npy: ", "this is (24,) of u8");
}

/* ---- other settings of a table ---- */

static void has_the_defaults_that_are_said(void **state)
{
    (void)state;
    struct eb_table_set set;
    eb_set_fixture_write_npy(&fixture, "a.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_write_npy(&fixture, "b.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_load(&fixture,
        "tables: [{name: a, missing: unknown_row, unknown_row: 4, default_index: 2}]", &set);
    const struct eb_named_table *a = eb_table_set_find(&set, "a");
    assert_int_equal(a->missing, EB_MISSING_UNKNOWN_ROW);
    assert_int_equal(a->table.unknown_row, 4);
    assert_true(a->has_default);
    assert_int_equal(a->default_index, 2);
    const struct eb_named_table *b = eb_table_set_find(&set, "b");
    assert_int_equal(b->missing, EB_MISSING_UNSPECIFIED);
    assert_int_equal(b->table.unknown_row, -1);
    assert_false(b->has_default);
    eb_table_set_deinit(&set);
}

static void calls_a_table_by_another_name(void **state)
{
    (void)state;
    struct eb_table_set set;
    eb_set_fixture_write_npy(&fixture, "emb.0.weight.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_load(&fixture, "tables: [{name: user, source: emb.0.weight}]", &set);
    assert_string_equal(set.tables[0].name, "user");
    assert_non_null(eb_table_set_find(&set, "user"));
    assert_null(eb_table_set_find(&set, "emb.0.weight"));
    eb_table_set_deinit(&set);
}

static void refuses_what_does_not_fit_the_tables(void **state)
{
    (void)state;
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_write_npy(&fixture, "u.npy", EB_STORAGE_F32, shape, values);
    static const char *const cases[][2] = {
        {"tables: [{name: v}]", "table 'v': its source 'v' is not in this version"},
        {"tables: [{name: v, source: w}]", "table 'v': its source 'w' is not in this version"},
        {"tables: [{name: a, source: t}, {name: b, source: t}]",
            "tables 'a' and 'b' have the same source 't'"},
        {"tables: [{name: u, source: t}]", "table 'u' is also in"},
        {"tables: [{name: t, unknown_row: 5}]",
            "table 't': unknown_row 5 is not one of its 5 rows"},
        {"tables: [{name: t, missing: unknown_row}]",
            "table 't': missing: unknown_row needs an unknown_row"},
        {"tables: [{name: t, default_index: 5}]",
            "table 't': default_index 5 is neither one of its 5 rows"},
        {"tables: [{name: t, default_index: -2}]",
            "table 't': default_index -2 is neither one of its 5 rows"},
        {"features: [{name: f, table: x}]", "feature 'f': table 'x' is not in this version"},
        {"features: [{name: u, table: t}]", "feature 'u' has the name of a table"},
        {"features: [{name: f, table: t, default_index: 5}]",
            "feature 'f': default_index 5 is neither one of the 5 rows of table 't'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        eb_set_fixture_expect_failure(&fixture, cases[i][0], fixture.scratch.root, cases[i][1]);
    }
    struct eb_table_set set;
    eb_set_fixture_load(&fixture,
        "tables: [{name: t, default_index: -1}, {name: u, unknown_row: 4, default_index: 4}]\n"
        "features: [{name: f, table: t, default_index: 4}, {name: g, table: t, id_map: modulo}]",
        &set);
    eb_table_set_deinit(&set);
}

static void refuses_features_and_groups_that_do_not_fit(void **state)
{
    (void)state;
    static const uint64_t pair[2] = {2, 2};
    static const uint64_t no_rows[2] = {0, 2};
    static const uint64_t longer[2] = {2, 6};
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, shape, values);
    eb_set_fixture_write_npy(&fixture, "none.npy", EB_STORAGE_F32, no_rows, values);
    eb_set_fixture_write_npy(&fixture, "whole.npy", EB_STORAGE_I32, pair, values);
    eb_set_fixture_write_npy(&fixture, "doubles.npy", EB_STORAGE_F64, pair, values);
    eb_set_fixture_write_npy(&fixture, "long.npy", EB_STORAGE_F32, longer, values);
    static const char *const cases[][2] = {
        {"features: [{name: f, table: t, missing: unknown_row}]",
            "feature 'f': missing: unknown_row needs an unknown_row of table 't'"},
        {"features: [{name: f, table: none, id_map: modulo}]",
            "feature 'f': id_map is not possible for table 'none', which has no rows"},
        {"features: [{name: f, table: whole, reduction: sqrtn}]",
            "feature 'f': reduction SQRTN requires a floating-point table, but table 'whole' holds "
            "i"},
        {"features: [{name: f, table: whole, reduction: weighted_mean}]",
            "feature 'f': reduction WEIGHTED_MEAN requires a floating-point table"},
        {"features: [{name: f, table: t}, {name: g, table: whole}]\n"
         "groups: [{name: x, features: [f, g]}]",
            "group 'x': feature 'g' is of type i32, but 'f' is of type f32"},
        {"features: [{name: g, table: whole}]\ngroups: [{name: x, features: [g]}]",
            "group 'x': feature 'g' is of type i32"},
        {"features: [{name: f, table: t}, {name: g, table: doubles}]\n"
         "groups: [{name: x, features: [f, f, g]}]",
            "group 'x': feature 'g' is of type f64, but 'f' is of type f32"},
        {"features: [{name: f, table: t, reduction: none}, {name: g, table: t}]\n"
         "groups: [{name: x, features: [f, g]}]",
            "group 'x': only one of features 'f' and 'g' has the reduction NONE; in a group either "
            "all features have it or none"},
        {"features: [{name: f, table: t, reduction: none}, {name: g, table: t}]\n"
         "groups: [{name: x, features: [g, g, f]}]",
            "group 'x': only one of features 'g' and 'f' has the reduction NONE"},
        {"features: [{name: f, table: t, reduction: none}, {name: g, table: long, reduction: "
         "none}]\n"
         "groups: [{name: x, features: [f, g]}]",
            "group 'x': feature 'g' has rows of 6 values, but 'f' has rows of 7; with the "
            "reduction NONE all features of a group must have rows of one size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        eb_set_fixture_expect_failure(&fixture, cases[i][0], fixture.scratch.root, cases[i][1]);
    }
    struct eb_table_set set;
    eb_set_fixture_load(&fixture,
        "features: [{name: f, table: t, reduction: sqrtn}, {name: g, table: whole, reduction: "
        "max},\n {name: h, table: t, reduction: none}]\n"
        "groups: [{name: x, features: [f, f]}, {name: y, features: [h, h]}]",
        &set);
    eb_table_set_deinit(&set);
}

EB_TEST_GROUP(table_storage)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(converts_to_every_storage),
        TEST(refuses_values_that_the_storage_cannot_hold),
        TEST(keeps_the_type_of_the_file),
        TEST(converts_a_table_of_many_chunks),
        TEST(counts_memory_as_it_will_be),
        TEST(refuses_what_makes_no_sense),
        TEST(names_the_value_that_cannot_become_a_code),
        TEST(reads_fused_rows),
        TEST(reads_padded_rows_of_a_dim_that_is_said),
        TEST(refuses_a_dim_that_does_not_fit),
        TEST(refuses_rows_of_another_layout),
        TEST(takes_single_rows_of_scale_0_or_below),
        TEST(refuses_tables_most_of_whose_scales_cannot_be),
        TEST(judges_the_rows_of_all_files_of_a_table),
        TEST(reads_f32_scales_that_are_aligned),
        TEST(refuses_fused_rows_whose_values_are_not_finite),
        TEST(refuses_rows_that_are_not_fused),
        TEST(has_the_defaults_that_are_said),
        TEST(calls_a_table_by_another_name),
        TEST(refuses_what_does_not_fit_the_tables),
        TEST(refuses_features_and_groups_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
