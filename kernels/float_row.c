#include "kernels/float_row.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define F32_MANTISSA_BITS 23
#define F32_EXPONENT_BIAS 127
#define F32_INFINITY UINT32_C(0x7f800000)
#define F32_NAN UINT32_C(0x7fc00000)
#define F32_MAGNITUDE UINT32_C(0x7fffffff)

/* A float format of at most 16 bits. Codes do not include the sign bit. */
struct narrow_format {
    int bits;
    int mantissa_bits;
    int exponent_bias;
    uint32_t too_large;     /* code for values that are too large */
    uint32_t special_first; /* first code that is not a finite value */
    uint32_t infinity;      /* code of infinity; if the format has none, a number above all codes */
    uint32_t nan;           /* code of the quiet NaN */
};

static const struct narrow_format f16 = {16, 10, 15, 0x7c00, 0x7c00, 0x7c00, 0x7e00};
static const struct narrow_format bf16 = {16, 7, 127, 0x7f80, 0x7f80, 0x7f80, 0x7fc0};
static const struct narrow_format e5m2 = {8, 2, 15, 0x7b, 0x7c, 0x7c, 0x7e};
static const struct narrow_format e4m3 = {8, 3, 7, 0x7e, 0x7f, 0x80, 0x7f};

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns 2^exponent, which must be a normal number. */
static inline float power_of_two(int exponent)
{
    return float_of((uint32_t)(exponent + F32_EXPONENT_BIAS) << F32_MANTISSA_BITS);
}

/* Returns `condition ? yes : no` without a branch. Compilers must not evaluate a floating-point
 * operation whose result is not used. They would therefore turn a conditional expression into a
 * branch and not vectorize the loop. */
static inline uint32_t choose_row_reader(bool condition, uint32_t yes, uint32_t no)
{
    return no ^ ((yes ^ no) & (0 - (uint32_t)condition));
}

static inline uint32_t narrow_one(const struct narrow_format *format, uint32_t bits)
{
    int shift = F32_MANTISSA_BITS - format->mantissa_bits;
    int exponent_min = 1 - format->exponent_bias;
    uint32_t magnitude = bits & F32_MAGNITUDE;
    uint32_t sign = bits >> 31 << (format->bits - 1);

    /* A carry out of the mantissa correctly increments the exponent. */
    uint32_t rebias = (uint32_t)(F32_EXPONENT_BIAS - format->exponent_bias);
    uint32_t half_less = (UINT32_C(1) << (shift - 1)) - 1;
    uint32_t normal = (magnitude + half_less + ((magnitude >> shift) & 1)) >> shift;
    normal -= rebias << format->mantissa_bits;
    uint32_t code = normal;
    if (rebias > 0) {
        /* The addition rounds: the last bit of this sum is the format's smallest subnormal. */
        float unit = power_of_two(exponent_min - format->mantissa_bits + F32_MANTISSA_BITS);
        uint32_t subnormal = bits_of(float_of(magnitude) + unit) - bits_of(unit);
        code =
            choose_row_reader(magnitude < bits_of(power_of_two(exponent_min)), subnormal, normal);
    }
    code = choose_row_reader(code < format->too_large, code, format->too_large);
    return choose_row_reader(magnitude > F32_INFINITY, format->nan, code | sign);
}

static inline uint32_t widen_one(const struct narrow_format *format, uint32_t code)
{
    int shift = F32_MANTISSA_BITS - format->mantissa_bits;
    uint32_t sign = code >> (format->bits - 1) << 31;
    uint32_t magnitude = code & ((UINT32_C(1) << (format->bits - 1)) - 1);
    /* If the format's exponent is read as that of an f32, values (subnormal values too) are too
     * small by this factor. */
    float rebias = power_of_two(F32_EXPONENT_BIAS - format->exponent_bias);
    uint32_t finite = bits_of(float_of(magnitude << shift) * rebias);
    uint32_t special = choose_row_reader(magnitude == format->infinity, F32_INFINITY, F32_NAN);
    return sign | choose_row_reader(magnitude < format->special_first, finite, special);
}

static inline void narrow_row(
    const struct narrow_format *format, const float *values, uint32_t elements, uint8_t *row)
{
    for (size_t i = 0; i < elements; i++) {
        uint32_t code = narrow_one(format, bits_of(values[i]));
        if (format->bits == 8) {
            row[i] = (uint8_t)code;
        } else {
            uint16_t wide = (uint16_t)code;
            memcpy(row + i * sizeof wide, &wide, sizeof wide);
        }
    }
}

static inline void widen_row(
    const struct narrow_format *format, const uint8_t *row, uint32_t elements, float *values)
{
    for (size_t i = 0; i < elements; i++) {
        uint16_t code = 0;
        if (format->bits == 8) {
            code = row[i];
        } else {
            memcpy(&code, row + i * sizeof code, sizeof code);
        }
        values[i] = float_of(widen_one(format, code));
    }
}

void eb_float_row_narrow(enum eb_storage to, const float *values, uint32_t elements, void *row)
{
    switch (to) {
    case EB_STORAGE_F16: narrow_row(&f16, values, elements, row); break;
    case EB_STORAGE_BF16: narrow_row(&bf16, values, elements, row); break;
    case EB_STORAGE_F8_E4M3: narrow_row(&e4m3, values, elements, row); break;
    case EB_STORAGE_F8_E5M2: narrow_row(&e5m2, values, elements, row); break;
    default: assert(false && "a float narrower than f32");
    }
}

void eb_float_row_widen(enum eb_storage from, const void *row, uint32_t elements, float *values)
{
    switch (from) {
    case EB_STORAGE_F16: widen_row(&f16, row, elements, values); break;
    case EB_STORAGE_BF16: widen_row(&bf16, row, elements, values); break;
    case EB_STORAGE_F8_E4M3: widen_row(&e4m3, row, elements, values); break;
    case EB_STORAGE_F8_E5M2: widen_row(&e5m2, row, elements, values); break;
    default: assert(false && "a float narrower than f32");
    }
}
