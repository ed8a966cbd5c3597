#include "kernels/bag_ops.h"
#include "kernels/element.h"
#include "kernels/quantize.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX 1000
#define GUARD 0xa5

static const enum eb_storage code_storages[] = {EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};
#define CODE_STORAGES (sizeof code_storages / sizeof *code_storages)

typedef bool (*quantize_fn)(enum eb_storage to, const float *values, uint32_t elements, void *row,
    struct eb_row_scale *scale);

/* A quantised row, whose memory is exactly as long as the row. */
struct quantized {
    enum eb_storage storage;
    uint32_t elements;
    const float *values;
    uint8_t *row;
    struct eb_row_scale scale;
};

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Returns a number in [-1, 1). */
static float random_unit(void)
{
    return ldexpf((float)(int32_t)random_bits(), -31);
}

static bool quantize(struct quantized *quantized, quantize_fn convert, enum eb_storage to,
    const float *values, uint32_t elements)
{
    *quantized = (struct quantized){.storage = to, .elements = elements, .values = values};
    quantized->row = malloc(eb_storage_row_bytes(to, elements));
    assert_non_null(quantized->row);
    memset(quantized->row, GUARD, eb_storage_row_bytes(to, elements));
    return convert(to, values, elements, quantized->row, &quantized->scale);
}

static unsigned levels_of(enum eb_storage storage)
{
    return (1u << eb_storage_bits(storage)) - 1;
}

static unsigned code_at(const struct quantized *quantized, uint32_t position)
{
    unsigned bits = eb_storage_bits(quantized->storage);
    uint32_t per_byte = 8 / bits;
    unsigned byte = quantized->row[position / per_byte];
    return byte >> (position % per_byte * bits) & levels_of(quantized->storage);
}

static void assert_rest_is_zero(const struct quantized *quantized)
{
    uint32_t per_byte = 8 / eb_storage_bits(quantized->storage);
    for (uint32_t i = quantized->elements; i % per_byte != 0; i++) {
        assert_int_equal(code_at(quantized, i), 0);
    }
}

/* Expects what the header promises of every element, computed with precision to spare. */
static void assert_close(const struct quantized *quantized)
{
    float *back = malloc(quantized->elements * sizeof *back);
    assert_non_null(back);
    eb_dequantize_row(
        quantized->storage, quantized->row, &quantized->scale, quantized->elements, back);
    long double step = quantized->scale.scale;
    for (uint32_t i = 0; i < quantized->elements; i++) {
        unsigned code = code_at(quantized, i);
        long double error =
            step * code + (quantized->scale.bias - (long double)quantized->values[i]);
        assert_true(fabsl(error) <= step * (0.5L + 0x1p-42L));
        float expected = fmaf(quantized->scale.scale, (float)code, quantized->scale.bias);
        assert_memory_equal(&back[i], &expected, sizeof expected);
        assert_true(isfinite(back[i]));
    }
    free(back);
}

static void find_extremes(const struct quantized *quantized, float *smallest, float *largest)
{
    *smallest = INFINITY;
    *largest = -INFINITY;
    for (uint32_t i = 0; i < quantized->elements; i++) {
        *smallest = fminf(*smallest, quantized->values[i]);
        *largest = fmaxf(*largest, quantized->values[i]);
    }
}

static void assert_smallest_scale(const struct quantized *quantized)
{
    float smallest = 0;
    float largest = 0;
    find_extremes(quantized, &smallest, &largest);
    double width = (double)largest - smallest;
    double levels = levels_of(quantized->storage);
    float step = quantized->scale.scale;
    assert_true(quantized->scale.bias == smallest);
    assert_true(step * levels >= width);
    assert_true(step == 0 || nextafterf(step, 0) * levels < width);
    assert_true(step <= width / levels * (1 + 0x1p-23) + 0x1p-149);
}

static float f16_neighbour(float value, int step)
{
    uint16_t code = 0;
    eb_element_store_float(EB_F16, value, &code);
    code = (uint16_t)(code + step);
    return (float)eb_element_load_float(EB_STORAGE_F16, &code);
}

static void assert_smallest_f16_scale(const struct quantized *quantized)
{
    float smallest = 0;
    float largest = 0;
    find_extremes(quantized, &smallest, &largest);
    float bias = quantized->scale.bias;
    float step = quantized->scale.scale;
    double width = (double)largest - bias;
    double levels = levels_of(quantized->storage);
    assert_true(bias == f16_neighbour(bias, 0) && step == f16_neighbour(step, 0));
    assert_true(bias <= smallest);
    float above = bias == 0 ? 0x1p-24f : f16_neighbour(bias, signbit(bias) ? -1 : 1);
    assert_true(above > smallest);
    assert_true(step * levels >= width);
    assert_true(step == 0 || f16_neighbour(step, -1) * levels < width);
    assert_true(step <= width / levels * (1 + 0x1p-10) + 0x1p-24);
}

/* Expects all of the header's promises to hold for every storage of codes. */
static void assert_quantizes(const float *values, uint32_t elements)
{
    for (size_t s = 0; s < CODE_STORAGES; s++) {
        struct quantized quantized;
        assert_true(quantize(&quantized, eb_quantize_row, code_storages[s], values, elements));
        assert_close(&quantized);
        assert_smallest_scale(&quantized);
        assert_rest_is_zero(&quantized);
        free(quantized.row);
    }
    assert_int_equal(eb_quantize_find_error(values, elements), elements);
}

static void assert_quantizes_f16_scale(const float *values, uint32_t elements)
{
    for (size_t s = 0; s < CODE_STORAGES; s++) {
        struct quantized quantized;
        assert_true(
            quantize(&quantized, eb_quantize_row_f16_scale, code_storages[s], values, elements));
        assert_close(&quantized);
        assert_smallest_f16_scale(&quantized);
        assert_rest_is_zero(&quantized);
        free(quantized.row);
    }
}

static void quantizes_rows_of_any_length(void **state)
{
    (void)state;
    static float values[ELEMENTS_MAX];
    for (uint32_t i = 0; i < ELEMENTS_MAX; i++) {
        values[i] = random_unit();
    }
    for (uint32_t elements = 1; elements <= 300; elements++) {
        assert_quantizes(values, elements);
        assert_quantizes_f16_scale(values, elements);
    }
    assert_quantizes(values, ELEMENTS_MAX);
    assert_quantizes_f16_scale(values, ELEMENTS_MAX);
}

static void quantizes_rows_of_any_size_of_values(void **state)
{
    (void)state;
    float values[64];
    for (int round = 0; round < 20000; round++) {
        int exponent = (int)(random_bits() % 274) - 149;
        float bias = ldexpf(random_unit(), exponent + (int)(random_bits() % 60) - 30);
        bias = isfinite(bias) && fabsf(bias) < 0x1p125f ? bias : 0;
        for (int i = 0; i < 64; i++) {
            values[i] = ldexpf(random_unit(), exponent) + bias;
        }
        assert_quantizes(values, 1 + random_bits() % 64);
    }
}

static void quantizes_rows_of_values_of_many_sizes(void **state)
{
    (void)state;
    float values[64];
    for (int round = 0; round < 5000; round++) {
        for (int i = 0; i < 64; i++) {
            values[i] = ldexpf(random_unit(), (int)(random_bits() % 272) - 149);
        }
        assert_quantizes(values, 64);
        for (int i = 0; i < 64; i++) {
            values[i] = ldexpf(random_unit(), (int)(random_bits() % 40) - 24);
        }
        assert_quantizes_f16_scale(values, 64);
    }
}

/* Values half way between codes, and the floats next to them. */
static void rounds_to_the_nearest_code(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        float step = ldexpf(1 + fabsf(random_unit()), (int)(random_bits() % 100) - 50);
        float bias = step * random_unit() * 1000;
        float values[3 * 255 + 2] = {bias, bias + step * 255};
        uint32_t count = 2;
        for (int code = 0; code < 255; code++) {
            float tie = bias + step * ((float)code + 0.5f);
            values[count++] = tie;
            values[count++] = nextafterf(tie, -INFINITY);
            values[count++] = nextafterf(tie, INFINITY);
        }
        assert_quantizes(values, count);
    }
}

static void rounds_ties_up(void **state)
{
    (void)state;
    const float values[] = {0, 0.5f, 1, 1.5f, 2.5f, 3};
    struct quantized quantized;
    assert_true(quantize(&quantized, eb_quantize_row, EB_STORAGE_INT2, values, 6));
    const unsigned codes[] = {0, 1, 1, 2, 3, 3};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(code_at(&quantized, i), codes[i]);
    }
    free(quantized.row);
}

static void lays_codes_low_bits_first(void **state)
{
    (void)state;
    const float values[] = {-1, 0, 1, 2, 14};
    struct eb_row_scale scale;
    uint8_t row[5];
    assert_true(eb_quantize_row(EB_STORAGE_INT2, (float[]){5, 7, 9, 11, 7}, 5, row, &scale));
    assert_memory_equal(row, ((uint8_t[]){0xe4, 0x01}), 2);
    assert_true(scale.scale == 2 && scale.bias == 5);
    assert_true(eb_quantize_row(EB_STORAGE_INT4, values, 5, row, &scale));
    assert_memory_equal(row, ((uint8_t[]){0x10, 0x32, 0x0f}), 3);
    assert_true(scale.scale == 1 && scale.bias == -1);
    assert_true(eb_quantize_row(EB_STORAGE_INT8, (float[]){0, 255, 7, 128, 1}, 5, row, &scale));
    assert_memory_equal(row, ((uint8_t[]){0, 255, 7, 128, 1}), 5);
    assert_true(scale.scale == 1 && scale.bias == 0);
}

static void keeps_equal_values_exactly(void **state)
{
    (void)state;
    static const float constants[] = {
        0, 1, -1, 0.1f, -1e-45f, 0x1p-149f, -FLT_MAX, FLT_MAX, FLT_MIN, 3e38f};
    for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
        float values[7];
        for (int i = 0; i < 7; i++) {
            values[i] = constants[c];
        }
        assert_quantizes(values, 7);
        for (size_t s = 0; s < CODE_STORAGES; s++) {
            struct quantized quantized;
            assert_true(quantize(&quantized, eb_quantize_row, code_storages[s], values, 7));
            float back[7];
            eb_dequantize_row(code_storages[s], quantized.row, &quantized.scale, 7, back);
            assert_memory_equal(back, values, sizeof values);
            free(quantized.row);
        }
    }
}

static void quantizes_zeros_of_both_signs(void **state)
{
    (void)state;
    assert_quantizes((float[]){0, -0.0f, 0}, 3);
    assert_quantizes((float[]){-0.0f}, 1);
    assert_quantizes((float[]){-0.0f, 1}, 2);
    assert_quantizes_f16_scale((float[]){0, -0.0f, 0}, 3);
    assert_quantizes_f16_scale((float[]){-0.0f, 1}, 2);
}

static void quantizes_at_the_ends_of_f32(void **state)
{
    (void)state;
    static const float pairs[][2] = {{0, 0x1p126f}, {FLT_MAX - 0x1p126f, FLT_MAX},
        {-FLT_MAX, 0x1p126f - FLT_MAX}, {-0x1p125f, 0x1p125f}, {FLT_MAX, 0x1.fffffcp127f},
        {0, 0x1p-149f}, {-0x1p-149f, 0x1p-149f}, {0, 127 * 0x1p-149f}, {0, 128 * 0x1p-149f},
        {0, 254 * 0x1p-149f}, {0, 256 * 0x1p-149f}, {FLT_MIN, 2 * FLT_MIN}, {-1e-30f, 1e30f},
        {1e8f, 1e8f + 8}, {-1, 0x1p-149f}};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        float low = pairs[p][0];
        float values[5] = {low, pairs[p][1]};
        for (int i = 2; i < 5; i++) {
            values[i] = low + (pairs[p][1] - low) * (float)(i - 1) / 4;
        }
        assert_quantizes(values, 5);
    }
    /* Near the widest range, any rounding of the scale must keep the largest value finite. */
    for (int i = 0; i < 2000; i++) {
        float width = ldexpf(1 + fabsf(random_unit()), (int)(random_bits() % 24) + 102);
        assert_quantizes((float[]){FLT_MAX - fminf(width, 0x1p126f), FLT_MAX}, 2);
    }
}

static void assert_refused(const float *values, uint32_t elements, uint32_t position)
{
    for (size_t s = 0; s < CODE_STORAGES; s++) {
        struct quantized quantized;
        assert_false(quantize(&quantized, eb_quantize_row, code_storages[s], values, elements));
        for (uint64_t i = 0; i < eb_storage_row_bytes(code_storages[s], elements); i++) {
            assert_int_equal(quantized.row[i], GUARD);
        }
        assert_true(quantized.scale.scale == 0 && quantized.scale.bias == 0);
        free(quantized.row);
    }
    assert_int_equal(eb_quantize_find_error(values, elements), position);
}

static void refuses_values_that_are_not_finite(void **state)
{
    (void)state;
    static const float wrong[] = {INFINITY, -INFINITY, NAN, -NAN};
    float values[40];
    for (uint32_t elements = 1; elements <= 40; elements += 13) {
        for (uint32_t position = 0; position < elements; position++) {
            for (int w = 0; w < 4; w++) {
                memset(values, 0, sizeof values);
                values[position] = wrong[w];
                values[elements - 1] += wrong[w];
                assert_refused(values, elements, position);
                struct eb_row_scale scale;
                assert_false(eb_quantize_row_f16_scale(
                    EB_STORAGE_INT4, values, elements, (uint8_t[20]){0}, &scale));
            }
        }
    }
}

static void refuses_ranges_that_f32_cannot_say(void **state)
{
    (void)state;
    assert_refused((float[]){1, 0, nextafterf(0x1p126f, INFINITY), 0}, 4, 2);
    assert_refused((float[]){0, 0x1p126f, 1, -0x1p103f, 5}, 5, 3);
    assert_refused((float[]){FLT_MAX, -FLT_MAX}, 2, 1);
    assert_refused((float[]){-FLT_MAX, 0, FLT_MAX}, 3, 1);
}

static void quantizes_constants_with_f16_scales(void **state)
{
    (void)state;
    static const float constants[] = {
        0, 1, -1, 0.1f, -0.1f, 1e-8f, -1e-8f, 65504, -65504, 70000, 1e5f, 0x1p-24f, 0x1p-149f};
    for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
        const float values[] = {constants[c], constants[c], constants[c]};
        assert_quantizes_f16_scale(values, 3);
        struct eb_row_scale scale;
        uint8_t row;
        assert_true(eb_quantize_row_f16_scale(EB_STORAGE_INT4, values, 1, &row, &scale));
        /* A value that f16 holds exactly comes back unchanged. */
        if (f16_neighbour(constants[c], 0) == constants[c]) {
            assert_true(scale.scale == 0 && scale.bias == constants[c]);
        }
    }
}

static void refuses_what_f16_scales_cannot_say(void **state)
{
    (void)state;
    struct eb_row_scale scale = {7, 7};
    uint8_t row[2] = {GUARD, GUARD};
    float low = nextafterf(-65504, -INFINITY);
    assert_false(eb_quantize_row_f16_scale(EB_STORAGE_INT8, &low, 1, row, &scale));
    for (size_t s = 0; s < CODE_STORAGES; s++) {
        float widest = 65504.0f * (float)levels_of(code_storages[s]);
        float values[] = {0, nextafterf(widest, INFINITY)};
        assert_false(eb_quantize_row_f16_scale(code_storages[s], values, 2, row, &scale));
        values[1] = widest;
        struct quantized quantized;
        assert_true(quantize(&quantized, eb_quantize_row_f16_scale, code_storages[s], values, 2));
        assert_true(quantized.scale.scale == 65504);
        free(quantized.row);
    }
    assert_true(scale.scale == 7 && scale.bias == 7);
    assert_memory_equal(row, ((uint8_t[]){GUARD, GUARD}), 2);
}

static void quantizes_floats_by_narrowing(void **state)
{
    (void)state;
    const float values[] = {1, -0.0f, NAN, 1e9f, -0x1p-149f};
    uint16_t wide[5];
    uint8_t narrow[5];
    float same[5];
    assert_true(eb_quantize_row(EB_STORAGE_F32, values, 5, same, NULL));
    assert_memory_equal(same, values, sizeof values);
    assert_true(eb_quantize_row(EB_STORAGE_F16, values, 5, wide, NULL));
    assert_memory_equal(wide, ((uint16_t[]){0x3c00, 0x8000, 0x7e00, 0x7c00, 0x8000}), 10);
    assert_true(eb_quantize_row(EB_STORAGE_BF16, values, 5, wide, NULL));
    assert_memory_equal(wide, ((uint16_t[]){0x3f80, 0x8000, 0x7fc0, 0x4e6e, 0x8000}), 10);
    assert_true(eb_quantize_row(EB_STORAGE_F8_E4M3, values, 5, narrow, NULL));
    assert_memory_equal(narrow, ((uint8_t[]){0x38, 0x80, 0x7f, 0x7e, 0x80}), 5);
    assert_true(eb_quantize_row(EB_STORAGE_F8_E5M2, values, 5, narrow, NULL));
    assert_memory_equal(narrow, ((uint8_t[]){0x3c, 0x80, 0x7e, 0x7b, 0x80}), 5);
}

static void dequantizes_floats(void **state)
{
    (void)state;
    const double wide[] = {1, 0.1, -1e300, 0x1p-149};
    float values[4];
    eb_dequantize_row(EB_STORAGE_F64, wide, NULL, 4, values);
    assert_true(values[0] == 1 && values[1] == 0.1f);
    assert_true(values[2] == -INFINITY && values[3] == 0x1p-149f);
    eb_dequantize_row(EB_STORAGE_F16, (uint16_t[]){0x3c00, 0xc000}, NULL, 2, values);
    assert_true(values[0] == 1 && values[1] == -2);
    eb_dequantize_row(EB_STORAGE_F8_E4M3, (uint8_t[]){0x38, 0xfe}, NULL, 2, values);
    assert_true(values[0] == 1 && values[1] == -448);
    const float same[] = {0.1f, -5};
    eb_dequantize_row(EB_STORAGE_F32, same, NULL, 2, values);
    assert_memory_equal(values, same, sizeof same);
}

static void finds_what_a_storage_is_too_narrow_for(void **state)
{
    (void)state;
    static const struct {
        enum eb_storage storage;
        float fits;
        float excess;
        bool holds_infinity;
    } cases[] = {
        {EB_STORAGE_F32, FLT_MAX, 0, true},
        {EB_STORAGE_F16, 65519.996f, 65520, true},
        {EB_STORAGE_BF16, 0x1.fefffep127f, 0x1.ffp127f, true},
        {EB_STORAGE_F8_E4M3, 464, 464.00003f, false},
        {EB_STORAGE_F8_E5M2, 61440, 61440.004f, false},
        {EB_STORAGE_INT8, FLT_MAX, 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum eb_storage to = cases[i].storage;
        const float fits[] = {NAN, -cases[i].fits, 0, cases[i].fits};
        const float excess[] = {NAN, 1, -cases[i].excess, cases[i].excess};
        const float infinity[] = {0, -INFINITY};
        assert_int_equal(eb_quantize_find_excess(to, fits, 4), 4);
        assert_int_equal(eb_quantize_find_excess(to, excess, 4), cases[i].excess > 0 ? 2 : 4);
        assert_int_equal(eb_quantize_find_excess(to, infinity, 2), cases[i].holds_infinity ? 2 : 1);
    }
}

static void dequantizes_with_one_rounding(void **state)
{
    (void)state;
    /* s * q + b = 1 + 2^-24 + 2^-54. Rounded to f64 first, the sum would be a tie and round
     * to even. */
    struct eb_row_scale scale = {5237765 * 0x1p-54f, 1};
    float value = 0;
    eb_dequantize_row(EB_STORAGE_INT8, (uint8_t[]){205}, &scale, 1, &value);
    assert_true(value == 1 + 0x1p-23f);
}

/* ---- rows of a table ---- */

#define ROWS 40
#define ROW_ELEMENTS 19

/* Expects the reference to do with each row what eb_dequantize_row and eb_quantize_row do. */
static void assert_converts_as_single_rows(enum eb_storage from, enum eb_storage to)
{
    uint8_t rows[ROWS * ROW_ELEMENTS * sizeof(float)];
    uint8_t out[ROWS * 2 * ROW_ELEMENTS * sizeof(float)];
    float values[ROW_ELEMENTS];
    size_t row_bytes = eb_storage_row_bytes(from, ROW_ELEMENTS);
    struct eb_row_format format = eb_row_format_of(to, ROW_ELEMENTS);
    struct eb_quantize_job job = {
        from, to, ROW_ELEMENTS, row_bytes, format.stride_bytes, format.row_offset_bytes, values};
    for (uint32_t i = 0; i < ROWS * ROW_ELEMENTS; i++) {
        float value = random_unit();
        eb_element_store_float((enum eb_type)from, value, rows + i * eb_storage_bytes(from));
    }
    assert_int_equal(eb_quantize_rows(eb_bag_ops_find("ref"), &job, rows, ROWS, out), ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        uint8_t row[ROW_ELEMENTS * sizeof(float)];
        struct eb_row_scale scale = {0};
        const uint8_t *found = out + i * format.stride_bytes;
        eb_dequantize_row(from, rows + i * row_bytes, NULL, ROW_ELEMENTS, values);
        assert_true(eb_quantize_row(to, values, ROW_ELEMENTS, row, &scale));
        assert_memory_equal(
            found + format.row_offset_bytes, row, eb_storage_row_bytes(to, ROW_ELEMENTS));
        if (eb_storage_is_code(to)) {
            assert_memory_equal(found, &scale, sizeof scale);
        }
    }
}

static void converts_the_rows_of_a_table(void **state)
{
    (void)state;
    static const enum eb_storage from[] = {EB_STORAGE_F32, EB_STORAGE_F16, EB_STORAGE_BF16};
    static const enum eb_storage to[] = {EB_STORAGE_F16, EB_STORAGE_BF16, EB_STORAGE_F8_E4M3,
        EB_STORAGE_F8_E5M2, EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        for (size_t k = 0; k < sizeof to / sizeof to[0]; k++) {
            assert_converts_as_single_rows(from[i], to[k]);
        }
    }
}

/* Expects every variant to convert the rows before row `bad`, in which `value` stands. */
static void assert_stops_at(enum eb_storage to, size_t bad, float value)
{
    static float rows[ROWS][ROW_ELEMENTS];
    static uint8_t out[ROWS * 2 * ROW_ELEMENTS * sizeof(float)];
    struct eb_row_format format = eb_row_format_of(to, ROW_ELEMENTS);
    struct eb_quantize_job job = {EB_STORAGE_F32, to, ROW_ELEMENTS, sizeof rows[0],
        format.stride_bytes, format.row_offset_bytes, NULL};
    const struct eb_bag_ops *ops;
    memset(rows, 0, sizeof rows);
    rows[ROWS - 1][0] = value;
    rows[bad][ROW_ELEMENTS - 1] = value;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            assert_int_equal(eb_quantize_rows(ops, &job, (const uint8_t *)rows, ROWS, out), bad);
        }
    }
}

static void stops_at_the_first_row_that_cannot_be_converted(void **state)
{
    (void)state;
    for (size_t bad = 0; bad < ROWS; bad++) {
        assert_stops_at(EB_STORAGE_INT8, bad, INFINITY);
        assert_stops_at(EB_STORAGE_INT4, bad, -NAN);
        assert_stops_at(EB_STORAGE_INT2, bad, 0x1.000002p126f);
        assert_stops_at(EB_STORAGE_F16, bad, -65520);
        assert_stops_at(EB_STORAGE_BF16, bad, 0x1.ffp127f);
        assert_stops_at(EB_STORAGE_F8_E4M3, bad, INFINITY);
    }
}

EB_TEST_GROUP(quantize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizes_rows_of_any_length),
        cmocka_unit_test(quantizes_rows_of_any_size_of_values),
        cmocka_unit_test(quantizes_rows_of_values_of_many_sizes),
        cmocka_unit_test(rounds_to_the_nearest_code),
        cmocka_unit_test(rounds_ties_up),
        cmocka_unit_test(lays_codes_low_bits_first),
        cmocka_unit_test(keeps_equal_values_exactly),
        cmocka_unit_test(quantizes_zeros_of_both_signs),
        cmocka_unit_test(quantizes_at_the_ends_of_f32),
        cmocka_unit_test(refuses_values_that_are_not_finite),
        cmocka_unit_test(refuses_ranges_that_f32_cannot_say),
        cmocka_unit_test(quantizes_constants_with_f16_scales),
        cmocka_unit_test(refuses_what_f16_scales_cannot_say),
        cmocka_unit_test(quantizes_floats_by_narrowing),
        cmocka_unit_test(dequantizes_floats),
        cmocka_unit_test(finds_what_a_storage_is_too_narrow_for),
        cmocka_unit_test(dequantizes_with_one_rounding),
        cmocka_unit_test(converts_the_rows_of_a_table),
        cmocka_unit_test(stops_at_the_first_row_that_cannot_be_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
