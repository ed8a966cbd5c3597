#include "kernels/element.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are little-endian");

/* A binary floating-point format of at most 16 bits with subnormals. Codes do not include the sign
 * bit. */
struct format {
    int mantissa_bits;
    int exponent_min; /* exponent of the smallest normal number */
    unsigned infinity;
    unsigned nan_first;
};

static const struct format f16 = {10, -14, 0x7c00, 0x7c01};
static const struct format bf16 = {7, -126, 0x7f80, 0x7f81};
static const struct format e5m2 = {2, -14, 0x7c, 0x7d};
/* E4M3FN has no infinity: its last code is its only NaN. */
static const struct format e4m3 = {3, -6, 0x80, 0x7f};

#define DOUBLE_MANTISSA_BITS 52
#define DOUBLE_EXPONENT_BIAS 1023

/* Returns the value of `magnitude`, a finite code without its sign. */
static double widen_finite(const struct format *format, unsigned magnitude)
{
    unsigned exponent = magnitude >> format->mantissa_bits;
    unsigned mantissa = magnitude & ((1u << format->mantissa_bits) - 1);
    if (exponent > 0) {
        mantissa |= 1u << format->mantissa_bits;
        exponent--;
    }
    return ldexp(mantissa, (int)exponent + format->exponent_min - format->mantissa_bits);
}

static double widen_element(const struct format *format, unsigned magnitude, bool negative)
{
    double value = INFINITY;
    if (magnitude >= format->nan_first) {
        value = NAN;
    } else if (magnitude != format->infinity) {
        value = widen_finite(format, magnitude);
    }
    return negative ? -value : value;
}

double eb_element_load_float(enum eb_storage storage, const void *element)
{
    uint64_t bits = 0;
    memcpy(&bits, element, eb_storage_bytes(storage));
    float single = 0;
    double value = 0;
    switch (storage) {
    case EB_STORAGE_F32: memcpy(&single, element, sizeof single); return single;
    case EB_STORAGE_F64: memcpy(&value, element, sizeof value); return value;
    case EB_STORAGE_F16: return widen_element(&f16, bits & 0x7fff, bits >> 15);
    case EB_STORAGE_BF16: return widen_element(&bf16, bits & 0x7fff, bits >> 15);
    case EB_STORAGE_F8_E4M3: return widen_element(&e4m3, bits & 0x7f, bits >> 7);
    case EB_STORAGE_F8_E5M2: return widen_element(&e5m2, bits & 0x7f, bits >> 7);
    default: assert(false && "a floating-point storage"); return 0;
    }
}

/* Returns value / 2^shift, rounded to the nearest integer, ties to even. */
static uint64_t shift_rounded(uint64_t value, int shift)
{
    if (shift > DOUBLE_MANTISSA_BITS + 1) {
        return 0;
    }
    uint64_t half = UINT64_C(1) << (shift - 1);
    uint64_t rest = value & (2 * half - 1);
    uint64_t whole = value >> shift;
    return whole + (rest > half || (rest == half && (whole & 1)));
}

/* Returns the code, without sign, of a double that is not a NaN. `magnitude` is the double's bits
 * without its sign. */
static uint64_t narrow_magnitude(const struct format *format, uint64_t magnitude)
{
    int exponent = (int)(magnitude >> DOUBLE_MANTISSA_BITS) - DOUBLE_EXPONENT_BIAS;
    uint64_t one = UINT64_C(1) << DOUBLE_MANTISSA_BITS;
    uint64_t significand = (magnitude & (one - 1)) | one;
    int shift = DOUBLE_MANTISSA_BITS - format->mantissa_bits;
    uint64_t code = 0;
    if (exponent < format->exponent_min) {
        code = shift_rounded(significand, shift + format->exponent_min - exponent);
    } else {
        /* A carry out of the mantissa correctly increments the exponent. Adding the leading bit of
         * the significand also increments the exponent. */
        code = (uint64_t)(exponent - format->exponent_min) << format->mantissa_bits;
        code += shift_rounded(significand, shift);
    }
    return code < format->infinity ? code : format->infinity;
}

static uint16_t narrow(const struct format *format, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    uint64_t quiet_bit = UINT64_C(1) << (format->mantissa_bits - 1);
    uint64_t code = format->infinity | quiet_bit;
    if (!isnan(value)) {
        code = narrow_magnitude(format, bits & ~(UINT64_C(1) << 63)) | (bits >> 63 << 15);
    }
    return (uint16_t)code;
}

static void store_f32(double value, void *element)
{
    float single = (float)value;
    uint32_t bits = UINT32_C(0x7fc00000);
    if (!isnan(value)) {
        memcpy(&bits, &single, sizeof bits);
    }
    memcpy(element, &bits, sizeof bits);
}

static void store_f64(double value, void *element)
{
    uint64_t bits = UINT64_C(0x7ff8000000000000);
    if (!isnan(value)) {
        memcpy(&bits, &value, sizeof bits);
    }
    memcpy(element, &bits, sizeof bits);
}

static void store_narrow(const struct format *format, double value, void *element)
{
    uint16_t code = narrow(format, value);
    memcpy(element, &code, sizeof code);
}

void eb_element_store_float(enum eb_type type, double value, void *element)
{
    switch (type) {
    case EB_F32: store_f32(value, element); break;
    case EB_F64: store_f64(value, element); break;
    case EB_F16: store_narrow(&f16, value, element); break;
    case EB_BF16: store_narrow(&bf16, value, element); break;
    default: assert(false && "a floating-point type");
    }
}

unsigned eb_element_load_code(enum eb_storage storage, const void *row, uint32_t element)
{
    assert(eb_storage_is_code(storage));
    const uint8_t *bytes = row;
    unsigned bits = eb_storage_bits(storage);
    unsigned per_byte = 8 / bits;
    unsigned byte = bytes[element / per_byte];
    return byte >> (element % per_byte * bits) & ((1u << bits) - 1);
}

uint64_t eb_element_load_int(enum eb_type type, const void *element)
{
    assert(!eb_type_is_float(type));
    size_t bytes = eb_type_bytes(type);
    uint64_t value = 0;
    memcpy(&value, element, bytes);
    if (eb_type_is_signed(type) && bytes < sizeof value) {
        uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
        value = (value ^ sign) - sign;
    }
    return value;
}

void eb_element_store_int(enum eb_type type, uint64_t value, void *element)
{
    assert(!eb_type_is_float(type));
    memcpy(element, &value, eb_type_bytes(type));
}
