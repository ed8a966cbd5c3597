#include "kernels/fused_row.h"
#include "kernels/quantize.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum eb_storage code_storages[] = {EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};

static void lays_out_parts(void **state)
{
    (void)state;
    struct eb_row_scale scale = {2, -1};
    const uint8_t row[] = {0x11, 0x22, 0x33};
    uint8_t fused[11];
    struct eb_fused_format format = {EB_STORAGE_INT8, EB_FUSED_F32_LAST, 3};
    assert_true(eb_fused_row_join(&format, row, &scale, fused));
    const uint8_t f32_last[] = {0x11, 0x22, 0x33, 0, 0, 0, 0x40, 0, 0, 0x80, 0xbf};
    assert_memory_equal(fused, f32_last, sizeof f32_last);

    format = (struct eb_fused_format){EB_STORAGE_INT4, EB_FUSED_F16_LAST, 5};
    assert_true(eb_fused_row_join(&format, row, &scale, fused));
    const uint8_t f16_last[] = {0x11, 0x22, 0x33, 0, 0x40, 0, 0xbc};
    assert_memory_equal(fused, f16_last, sizeof f16_last);

    format = (struct eb_fused_format){EB_STORAGE_INT2, EB_FUSED_F16_FIRST, 12};
    assert_true(eb_fused_row_join(&format, row, &scale, fused));
    const uint8_t f16_first[] = {0, 0x40, 0, 0xbc, 0x11, 0x22, 0x33};
    assert_memory_equal(fused, f16_first, sizeof f16_first);
}

static void counts_bytes_of_rows(void **state)
{
    (void)state;
    static const struct {
        struct eb_fused_format format;
        uint64_t bytes;
    } rows[] = {
        {{EB_STORAGE_INT8, EB_FUSED_F32_LAST, 128}, 136},
        {{EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 128}, 132},
        {{EB_STORAGE_INT8, EB_FUSED_F32_ALIGNED, 128}, 136},
        {{EB_STORAGE_INT8, EB_FUSED_F32_ALIGNED, 129}, 140},
        {{EB_STORAGE_INT8, EB_FUSED_F32_ALIGNED, 131}, 140},
        {{EB_STORAGE_INT4, EB_FUSED_F16_LAST, 128}, 68},
        {{EB_STORAGE_INT4, EB_FUSED_F16_FIRST, 127}, 68},
        {{EB_STORAGE_INT4, EB_FUSED_F16_LAST, 1}, 5},
        {{EB_STORAGE_INT2, EB_FUSED_F16_LAST, 128}, 36},
        {{EB_STORAGE_INT2, EB_FUSED_F16_FIRST, 129}, 37},
        {{EB_STORAGE_INT8, EB_FUSED_F32_LAST, UINT32_MAX}, UINT64_C(0xffffffff) + 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(eb_fused_row_bytes(&rows[i].format), rows[i].bytes);
    }
}

/* Expects the row and its scale to come back unchanged from memory that is exactly as long as the
 * joined row and begins at an odd address. */
static void assert_comes_back(
    const struct eb_fused_format *format, const uint8_t *row, const struct eb_row_scale *scale)
{
    uint64_t row_bytes = eb_storage_row_bytes(format->storage, format->elements);
    uint8_t *memory = malloc(1 + eb_fused_row_bytes(format));
    uint8_t *back = malloc(row_bytes);
    assert_true(memory && back);
    memory[0] = 0xa5;
    struct eb_row_scale back_scale = {NAN, NAN};
    assert_true(eb_fused_row_join(format, row, scale, memory + 1));
    eb_fused_row_split(format, memory + 1, back, &back_scale);
    assert_memory_equal(back, row, row_bytes);
    assert_memory_equal(&back_scale, scale, sizeof back_scale);
    assert_int_equal(memory[0], 0xa5);
    free(memory);
    free(back);
}

static void splits_what_it_joined(void **state)
{
    (void)state;
    float values[163];
    for (int i = 0; i < 163; i++) {
        values[i] = sinf((float)i) * 3;
    }
    uint8_t row[163];
    struct eb_row_scale scale;
    struct eb_fused_format format;
    for (format.elements = 1; format.elements <= 163; format.elements++) {
        for (int s = 0; s < 3; s++) {
            format.storage = code_storages[s];
            format.layout = EB_FUSED_F32_LAST;
            assert_true(eb_quantize_row(format.storage, values, format.elements, row, &scale));
            assert_comes_back(&format, row, &scale);
            assert_true(
                eb_quantize_row_f16_scale(format.storage, values, format.elements, row, &scale));
            assert_comes_back(&format, row, &scale);
            format.layout = EB_FUSED_F16_LAST;
            assert_comes_back(&format, row, &scale);
            format.layout = EB_FUSED_F16_FIRST;
            assert_comes_back(&format, row, &scale);
        }
    }
}

static void tells_that_f16_rounds(void **state)
{
    (void)state;
    struct eb_fused_format format = {EB_STORAGE_INT4, EB_FUSED_F16_LAST, 2};
    static const struct eb_row_scale scales[] = {{0.1f, 0}, {1, 0.1f}, {0x1p-25f, 1}, {70000, 1}};
    static const struct eb_row_scale rounded[] = {
        {0x1.998p-4f, 0}, {1, 0x1.998p-4f}, {0, 1}, {INFINITY, 1}};
    uint8_t row = 0x21;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        uint8_t fused[5];
        uint8_t back = 0;
        struct eb_row_scale scale;
        assert_false(eb_fused_row_join(&format, &row, &scales[i], fused));
        eb_fused_row_split(&format, fused, &back, &scale);
        assert_int_equal(back, row);
        assert_memory_equal(&scale, &rounded[i], sizeof scale);
    }
}

static void widens_every_f16_scale(void **state)
{
    (void)state;
    struct eb_fused_format format = {EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 1};
    for (unsigned code = 0; code < 1 << 16; code++) {
        uint16_t half = (uint16_t)code;
        uint8_t fused[5] = {0, 0x3c, 0, 0x3c, 9};
        memcpy(fused + code % 2 * 2, &half, sizeof half);
        uint8_t row = 0;
        struct eb_row_scale scale;
        eb_fused_row_split(&format, fused, &row, &scale);
        float expected = 0;
        eb_dequantize_row(EB_STORAGE_F16, &half, NULL, 1, &expected);
        float actual = code % 2 ? scale.bias : scale.scale;
        assert_true(isnan(expected) ? isnan(actual) : actual == expected);
        assert_true((code % 2 ? scale.scale : scale.bias) == 1);
        assert_int_equal(row, 9);
    }
}

static enum eb_fused_sign sign_of(
    enum eb_storage storage, enum eb_fused_layout layout, uint8_t code, struct eb_row_scale scale)
{
    struct eb_fused_format format = {storage, layout, 8};
    uint8_t row[8] = {0};
    row[eb_storage_row_bytes(storage, 8) - 1] = code;
    return eb_fused_row_sign(&format, row, &scale);
}

static void tells_the_sign_of_a_row(void **state)
{
    (void)state;
    const struct {
        uint8_t code;
        struct eb_row_scale scale;
        enum eb_fused_sign sign;
    } rows[] = {
        {0x80, {0x1p-149f, -1}, EB_FUSED_POSITIVE},
        {0xff, {3, 0}, EB_FUSED_POSITIVE},
        {0x80, {0, 0.25f}, EB_FUSED_ZERO},
        {1, {-0.0f, 0}, EB_FUSED_ZERO},
        {1, {-0.01f, 0.3f}, EB_FUSED_NEGATIVE},
        {0, {0, 0.25f}, EB_FUSED_UNCODED},
        {0, {-1, 0}, EB_FUSED_UNCODED},
        {0, {1, 0}, EB_FUSED_UNCODED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int s = 0; s < 3; s++) {
            for (int layout = 0; layout < EB_FUSED_LAYOUT_COUNT; layout++) {
                assert_int_equal(sign_of(code_storages[s], (enum eb_fused_layout)layout,
                                     rows[i].code, rows[i].scale),
                    rows[i].sign);
            }
        }
    }
}

/* A row that holds only 0.3. In f16 its least value becomes 0.300048828125, 4.9e-5 above all
 * values, so the scale is negative. In f32 the bias is the row's least value, and no value lies
 * below it. */
static void takes_scales_that_rounding_made_negative(void **state)
{
    (void)state;
    struct eb_row_scale above = {-0x3p-24f, 0x1.334p-2f};
    assert_int_equal(sign_of(EB_STORAGE_INT8, EB_FUSED_F16_LAST, 0xff, above), EB_FUSED_POSITIVE);
    assert_int_equal(sign_of(EB_STORAGE_INT8, EB_FUSED_F16_FIRST, 0xff, above), EB_FUSED_POSITIVE);
    assert_int_equal(sign_of(EB_STORAGE_INT8, EB_FUSED_F32_LAST, 0xff, above), EB_FUSED_NEGATIVE);
    assert_int_equal(
        sign_of(EB_STORAGE_INT8, EB_FUSED_F32_ALIGNED, 0xff, above), EB_FUSED_NEGATIVE);
}

static void judges_rows_together(void **state)
{
    (void)state;
    static const struct {
        struct eb_fused_counters counters; /* coded, zero, negative */
        bool is_plausible;
    } cases[] = {
        {{0, 0, 0}, true},
        {{1, 0, 0}, true},
        {{1, 1, 0}, false},
        {{1, 0, 1}, false},
        {{3, 0, 1}, false},
        {{4, 0, 1}, true},
        {{4, 0, 2}, false},
        {{4, 2, 1}, true},
        {{4, 3, 1}, false},
        {{1000, 999, 0}, true},
        {{1000, 1000, 0}, false},
        {{UINT64_MAX, 0, UINT64_MAX}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(eb_fused_counters_is_plausible(&cases[i].counters), cases[i].is_plausible);
    }
    struct eb_fused_counters counters = {0};
    eb_fused_counters_add(&counters, EB_FUSED_UNCODED);
    assert_int_equal(counters.coded, 0);
    eb_fused_counters_add(&counters, EB_FUSED_POSITIVE);
    eb_fused_counters_add(&counters, EB_FUSED_ZERO);
    eb_fused_counters_add(&counters, EB_FUSED_NEGATIVE);
    assert_true(counters.coded == 3 && counters.zero == 1 && counters.negative == 1);
}

EB_TEST_GROUP(fused_row)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lays_out_parts),
        cmocka_unit_test(counts_bytes_of_rows),
        cmocka_unit_test(splits_what_it_joined),
        cmocka_unit_test(tells_that_f16_rounds),
        cmocka_unit_test(widens_every_f16_scale),
        cmocka_unit_test(tells_the_sign_of_a_row),
        cmocka_unit_test(takes_scales_that_rounding_made_negative),
        cmocka_unit_test(judges_rows_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
