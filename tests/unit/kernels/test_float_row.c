#include "kernels/element.h"
#include "kernels/float_row.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096

static const enum eb_storage fp8_storages[] = {EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2};
static const enum eb_type f16_types[] = {EB_F16, EB_BF16};

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint8_t narrow8(enum eb_storage to, float value)
{
    uint8_t code = 0;
    eb_float_row_narrow(to, &value, 1, &code);
    return code;
}

/* Expects the same number, including the sign of zero, or NaN for NaN. */
static void assert_same_row(float actual, double expected)
{
    if (isnan(expected)) {
        assert_true(isnan(actual));
    } else {
        assert_int_equal(bits_of(actual), bits_of((float)expected));
    }
}

static void widens_every_code(void **state)
{
    (void)state;
    static uint16_t codes[1 << 16];
    static float values[1 << 16];
    for (unsigned code = 0; code < 1 << 16; code++) {
        codes[code] = (uint16_t)code;
    }
    for (int i = 0; i < 2; i++) {
        enum eb_storage from = (enum eb_storage)f16_types[i];
        eb_float_row_widen(from, codes, 1 << 16, values);
        for (unsigned code = 0; code < 1 << 16; code++) {
            assert_same_row(values[code], eb_element_load_float(from, &codes[code]));
        }
    }
    static uint8_t bytes[256];
    for (unsigned code = 0; code < 256; code++) {
        bytes[code] = (uint8_t)code;
    }
    for (int i = 0; i < 2; i++) {
        eb_float_row_widen(fp8_storages[i], bytes, 256, values);
        for (unsigned code = 0; code < 256; code++) {
            assert_same_row(values[code], eb_element_load_float(fp8_storages[i], &bytes[code]));
        }
    }
}

/* Expects the block to be narrowed to F16 and BF16 as one element at a time is. */
static void assert_narrows_as_elements_do(const float *values)
{
    static uint16_t codes[BLOCK];
    for (int t = 0; t < 2; t++) {
        eb_float_row_narrow((enum eb_storage)f16_types[t], values, BLOCK, codes);
        for (int i = 0; i < BLOCK; i++) {
            uint16_t expected = 0;
            eb_element_store_float(f16_types[t], values[i], &expected);
            assert_int_equal(codes[i], expected);
        }
    }
}

static void narrows_to_f16_and_bf16_as_elements_do(void **state)
{
    (void)state;
    static float values[BLOCK];
    /* Every sign, exponent and leading mantissa, with the low bits at and beside the ties of both
     * types. */
    for (uint32_t high = 0; high < 1 << 16; high += BLOCK / 8) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            static const uint16_t lows[8] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001};
            values[i] = float_of((high + i / 8) << 16 | lows[i % 8]);
        }
        assert_narrows_as_elements_do(values);
    }
    uint32_t bits = 1;
    for (int round = 0; round < 256; round++) {
        for (int i = 0; i < BLOCK; i++) {
            bits = bits * 1664525 + 1013904223;
            values[i] = float_of(bits);
        }
        assert_narrows_as_elements_do(values);
    }
}

/* Tries each finite code, and values between it and the next one away from zero. */
static void rounds_fp8_at_every_tie(void **state)
{
    (void)state;
    static const unsigned largest[] = {0x7e, 0x7b};
    for (int f = 0; f < 2; f++) {
        enum eb_storage to = fp8_storages[f];
        for (uint8_t code = 0; code < largest[f]; code++) {
            uint8_t next = (uint8_t)(code + 1);
            float low = (float)eb_element_load_float(to, &code);
            float middle = (low + (float)eb_element_load_float(to, &next)) / 2;
            assert_int_equal(narrow8(to, low), code);
            assert_int_equal(narrow8(to, nextafterf(middle, 0)), code);
            assert_int_equal(narrow8(to, middle), code + (code & 1));
            assert_int_equal(narrow8(to, nextafterf(middle, INFINITY)), next);
            assert_int_equal(narrow8(to, -nextafterf(middle, INFINITY)), 0x80 | next);
            assert_int_equal(narrow8(to, -middle), 0x80 | (code + (code & 1)));
        }
    }
}

static void saturates_fp8(void **state)
{
    (void)state;
    static const float too_large[] = {448, 464, 465, 480, 57344, 61440, 65536, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        assert_int_equal(narrow8(EB_STORAGE_F8_E4M3, too_large[i]), 0x7e);
        assert_int_equal(narrow8(EB_STORAGE_F8_E4M3, -too_large[i]), 0xfe);
        if (too_large[i] >= 57344) {
            assert_int_equal(narrow8(EB_STORAGE_F8_E5M2, too_large[i]), 0x7b);
            assert_int_equal(narrow8(EB_STORAGE_F8_E5M2, -too_large[i]), 0xfb);
        }
    }
}

static void keeps_nans_of_fp8(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        assert_int_equal(narrow8(EB_STORAGE_F8_E4M3, float_of(nans[i])), 0x7f);
        assert_int_equal(narrow8(EB_STORAGE_F8_E5M2, float_of(nans[i])), 0x7e);
    }
}

struct bound {
    enum eb_storage storage;
    int relative; /* exponent of two of the relative error of normal numbers */
    int smallest; /* exponent of two of the smallest normal number */
    int absolute; /* exponent of two of the absolute error below that number */
    float largest;
};

static const struct bound bounds[] = {
    {EB_STORAGE_F16, -11, -14, -25, 65504},
    {EB_STORAGE_BF16, -8, -126, -134, 0x1.fep127f},
    {EB_STORAGE_F8_E4M3, -4, -6, -10, 448},
    {EB_STORAGE_F8_E5M2, -3, -14, -17, 57344},
};

static void assert_bound(const struct bound *bound, float value)
{
    uint16_t code = 0;
    float back = 0;
    eb_float_row_narrow(bound->storage, &value, 1, &code);
    eb_float_row_widen(bound->storage, &code, 1, &back);
    double error = fabs((double)back - value);
    double size = fabs((double)value);
    if (size < ldexp(1, bound->smallest)) {
        assert_true(error <= ldexp(1, bound->absolute));
    } else if (size <= bound->largest) {
        assert_true(error <= ldexp(size, bound->relative));
    }
}

static void keeps_the_stated_bounds(void **state)
{
    (void)state;
    uint32_t bits = 7;
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        for (int i = 0; i < 200000; i++) {
            bits = bits * 1664525 + 1013904223;
            /* A float of any size, and one near the format's range. */
            assert_bound(&bounds[b], float_of(bits & 0xff7fffff));
            assert_bound(&bounds[b], ldexpf((float)(int32_t)bits, -31 - i % 32));
        }
    }
}

/* Expects conversions to stay within rows that end where their memory ends and begin at an odd
 * address. */
static void assert_stays_within(enum eb_storage storage, uint32_t elements)
{
    size_t bytes = elements * eb_storage_bytes(storage);
    uint8_t *memory = malloc(1 + bytes);
    float *values = malloc(elements * sizeof *values);
    float *back = malloc(elements * sizeof *back);
    assert_true(memory && values && back);
    memory[0] = 0xa5;
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = ldexpf(i % 2 ? -1 : 1.5f, (int)(i % 8) - 4);
    }
    eb_float_row_narrow(storage, values, elements, memory + 1);
    eb_float_row_widen(storage, memory + 1, elements, back);
    assert_memory_equal(back, values, elements * sizeof *values);
    assert_int_equal(memory[0], 0xa5);
    free(memory);
    free(values);
    free(back);
}

static void stays_within_rows_of_any_length(void **state)
{
    (void)state;
    for (uint32_t elements = 1; elements < 164; elements++) {
        assert_stays_within(EB_STORAGE_F16, elements);
        assert_stays_within(EB_STORAGE_BF16, elements);
        assert_stays_within(EB_STORAGE_F8_E4M3, elements);
        assert_stays_within(EB_STORAGE_F8_E5M2, elements);
    }
}

EB_TEST_GROUP(float_row)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widens_every_code),
        cmocka_unit_test(narrows_to_f16_and_bf16_as_elements_do),
        cmocka_unit_test(rounds_fp8_at_every_tie),
        cmocka_unit_test(saturates_fp8),
        cmocka_unit_test(keeps_nans_of_fp8),
        cmocka_unit_test(keeps_the_stated_bounds),
        cmocka_unit_test(stays_within_rows_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
