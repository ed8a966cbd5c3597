#include "kernels/element.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <math.h>
#include <string.h>

static double load16(enum eb_storage storage, unsigned code)
{
    uint16_t bits = (uint16_t)code;
    return eb_element_load_float(storage, &bits);
}

static double load8(enum eb_storage storage, unsigned code)
{
    uint8_t bits = (uint8_t)code;
    return eb_element_load_float(storage, &bits);
}

static unsigned store16(enum eb_type type, double value)
{
    uint16_t bits = 0;
    eb_element_store_float(type, value, &bits);
    return bits;
}

/* Expects the same number, including the sign of zero, or NaN for NaN. */
static void assert_same_element(double actual, double expected)
{
    if (isnan(expected)) {
        assert_true(isnan(actual));
        return;
    }
    assert_memory_equal(&actual, &expected, sizeof actual);
}

/* Returns the value of a code as the formats define it: sign, exponent, fraction. */
static double meaning(unsigned code, int exponent_bits, int fraction_bits)
{
    int exponent = (int)(code >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = (double)(code & ((1u << fraction_bits) - 1)) / (1 << fraction_bits);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double value =
        exponent == 0 ? fraction * pow(2, 1 - bias) : (1 + fraction) * pow(2, exponent - bias);
    return code >> (exponent_bits + fraction_bits) ? -value : value;
}

static void loads_every_f16(void **state)
{
    (void)state;
    for (unsigned code = 0; code <= 0xffff; code++) {
        double expected = meaning(code, 5, 10);
        if ((code & 0x7c00) == 0x7c00) {
            expected = code & 0x3ff ? NAN : copysign(INFINITY, expected);
        }
        assert_same_element(load16(EB_STORAGE_F16, code), expected);
    }
    assert_true(load16(EB_STORAGE_F16, 0x7bff) == 65504.0);
    assert_true(load16(EB_STORAGE_F16, 0x0001) == ldexp(1, -24));
}

static void loads_every_bf16(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0xffff; code++) {
        uint32_t bits = code << 16;
        float expected;
        memcpy(&expected, &bits, sizeof expected);
        assert_same_element(load16(EB_STORAGE_BF16, code), expected);
    }
}

static void loads_every_fp8(void **state)
{
    (void)state;
    for (unsigned code = 0; code <= 0xff; code++) {
        double expected = (code & 0x7f) == 0x7f ? NAN : meaning(code, 4, 3);
        assert_same_element(load8(EB_STORAGE_F8_E4M3, code), expected);
        assert_same_element(load8(EB_STORAGE_F8_E5M2, code), load16(EB_STORAGE_F16, code << 8));
    }
    assert_true(load8(EB_STORAGE_F8_E4M3, 0x7e) == 448.0);
    assert_true(load8(EB_STORAGE_F8_E5M2, 0x7b) == 57344.0);
}

static void loads_every_code_of_a_byte(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte <= 0xff; byte++) {
        const uint8_t row[] = {(uint8_t)~byte, (uint8_t)byte};
        assert_int_equal(eb_element_load_code(EB_STORAGE_INT8, row, 1), byte);
        unsigned from_int4 = 0;
        unsigned from_int2 = 0;
        for (uint32_t i = 0; i < 2; i++) {
            from_int4 |= eb_element_load_code(EB_STORAGE_INT4, row, 2 + i) << 4 * i;
        }
        for (uint32_t i = 0; i < 4; i++) {
            from_int2 |= eb_element_load_code(EB_STORAGE_INT2, row, 4 + i) << 2 * i;
        }
        assert_int_equal(from_int4, byte);
        assert_int_equal(from_int2, byte);
    }
}

/* Expects each code, and the values between it and the next one away from zero, to round to the
 * nearest code, for both signs. */
static void assert_rounds(enum eb_type type, unsigned infinity, double past_largest)
{
    for (unsigned code = 0; code < infinity; code++) {
        double low = load16((enum eb_storage)type, code);
        double high = code + 1 < infinity ? load16((enum eb_storage)type, code + 1) : past_largest;
        double middle = low + (high - low) / 2;
        for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
            double by = sign ? -1 : 1;
            assert_int_equal(store16(type, by * low), sign | code);
            assert_int_equal(store16(type, by * nextafter(middle, 0)), sign | code);
            assert_int_equal(store16(type, by * middle), sign | (code + (code & 1)));
            assert_int_equal(store16(type, by * nextafter(middle, INFINITY)), sign | (code + 1));
        }
    }
    assert_int_equal(store16(type, INFINITY), infinity);
    assert_int_equal(store16(type, -1e300), 0x8000 | infinity);
    assert_int_equal(store16(type, -5e-324), 0x8000);
}

static void rounds_f16_at_every_tie(void **state)
{
    (void)state;
    assert_rounds(EB_F16, 0x7c00, 65536.0);
}

static void rounds_bf16_at_every_tie(void **state)
{
    (void)state;
    assert_rounds(EB_BF16, 0x7f80, ldexp(1, 128));
}

static void rounds_f64_once(void **state)
{
    (void)state;
    /* If these values were rounded to f32 first, they would become ties and round to even, which
     * is the wrong way. */
    assert_int_equal(store16(EB_BF16, 1 + ldexp(1, -8) + ldexp(1, -40)), 0x3f81);
    assert_int_equal(store16(EB_F16, 1 + ldexp(1, -11) + ldexp(1, -40)), 0x3c01);
    float single;
    eb_element_store_float(EB_F32, 1 + ldexp(1, -24) + ldexp(1, -50), &single);
    assert_true(single == 1 + ldexpf(1, -23));
}

static void stores_canonical_nans(void **state)
{
    (void)state;
    uint64_t odd_bits = UINT64_C(0xfff4000000000123);
    double odd;
    memcpy(&odd, &odd_bits, sizeof odd);
    uint32_t single = 0;
    uint64_t wide = 0;
    eb_element_store_float(EB_F32, odd, &single);
    eb_element_store_float(EB_F64, odd, &wide);
    assert_int_equal(single, UINT32_C(0x7fc00000));
    assert_true(wide == UINT64_C(0x7ff8000000000000));
    assert_int_equal(store16(EB_F16, odd), 0x7e00);
    assert_int_equal(store16(EB_BF16, odd), 0x7fc0);
}

static void keeps_f32_subnormals(void **state)
{
    (void)state;
    float tiny = ldexpf(1, -149);
    float back = 0;
    eb_element_store_float(EB_F32, eb_element_load_float(EB_STORAGE_F32, &tiny), &back);
    assert_memory_equal(&back, &tiny, sizeof back);
    assert_int_equal(store16(EB_BF16, ldexp(3, -133)), 3);
}

static void extends_signs_of_integers(void **state)
{
    (void)state;
    uint64_t ones = UINT64_MAX;
    assert_true(eb_element_load_int(EB_I8, &ones) == ones);
    assert_true(eb_element_load_int(EB_U8, &ones) == 0xff);
    assert_true(eb_element_load_int(EB_I16, &ones) == ones);
    assert_true(eb_element_load_int(EB_U16, &ones) == 0xffff);
    assert_true(eb_element_load_int(EB_I32, &ones) == ones);
    assert_true(eb_element_load_int(EB_U32, &ones) == UINT32_MAX);
    assert_true(eb_element_load_int(EB_I64, &ones) == ones);
    assert_true(eb_element_load_int(EB_U64, &ones) == ones);
    int8_t positive = 127;
    assert_true(eb_element_load_int(EB_I8, &positive) == 127);
}

static void stores_low_bits_only(void **state)
{
    (void)state;
    uint8_t bytes[4] = {1, 1, 1, 1};
    eb_element_store_int(EB_U16, UINT64_C(0x123456), bytes);
    assert_memory_equal(bytes, ((uint8_t[]){0x56, 0x34, 1, 1}), 4);
}

EB_TEST_GROUP(element)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_every_f16),
        cmocka_unit_test(loads_every_bf16),
        cmocka_unit_test(loads_every_fp8),
        cmocka_unit_test(loads_every_code_of_a_byte),
        cmocka_unit_test(rounds_f16_at_every_tie),
        cmocka_unit_test(rounds_bf16_at_every_tie),
        cmocka_unit_test(rounds_f64_once),
        cmocka_unit_test(stores_canonical_nans),
        cmocka_unit_test(keeps_f32_subnormals),
        cmocka_unit_test(extends_signs_of_integers),
        cmocka_unit_test(stores_low_bits_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
