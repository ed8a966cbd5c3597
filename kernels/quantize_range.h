/* Computations that the vector variants of a conversion do once for each row: the scale that
 * follows from the range of the row's values, and the bounds beyond which values are too large. The
 * reference (quantize.c) computes the same without these functions.
 *
 * The key of a float is an integer. Keys compare as their floats do, with -0 below +0 and NaNs at
 * both ends. Because keys are integers, the order in which lanes and values are compared does not
 * matter.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/quantize.h"

#include <string.h>

/* The smallest and the largest key of a row's values. */
struct eb_quantize_range {
    int32_t low;
    int32_t high;
};

/* How a row's values become codes: the integer part of (value - bias) * codes_per_unit + 1/2. */
struct eb_quantize_factors {
    struct eb_row_scale scale; /* with the bias */
    double codes_per_unit;     /* 1 / scale, or 0 if that is 0 */
};

static inline float eb_quantize_key_value(int32_t key)
{
    uint32_t bits = (uint32_t)key;
    float value;
    bits ^= (0 - (bits >> 31)) >> 1;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Computes the factors of a row from the range of its values. `levels` is the highest code. Returns
 * false if a value is not finite, or if the values are too far apart. (The width is a NaN if a
 * value is a NaN, or if all values are the same infinity.) */
static inline bool eb_quantize_range_factors(
    const struct eb_quantize_range *range, double levels, struct eb_quantize_factors *factors)
{
    float smallest = eb_quantize_key_value(range->low);
    double width = (double)eb_quantize_key_value(range->high) - smallest;
    float step = (float)(width / levels);
    uint32_t bits;
    memcpy(&bits, &step, sizeof bits);
    /* The next larger float has the next larger bits. About every second row needs it, and no
     * processor can predict which, so there is no branch. */
    bits += step * levels < width;
    memcpy(&step, &bits, sizeof step);
    factors->scale = (struct eb_row_scale){step, smallest};
    factors->codes_per_unit = step > 0 ? 1.0 / step : 0.0;
    return width <= EB_QUANTIZE_RANGE_MAX;
}

/* Bounds of the values that are too large for F16 or BF16, as bits without the sign. */
struct eb_quantize_excess {
    int32_t above; /* the largest value that is not too large */
    int32_t last;  /* the largest finite value */
};

static inline struct eb_quantize_excess eb_quantize_excess_of(enum eb_storage to)
{
    /* The smallest values that become infinite are 65520 and 2^128 - 2^119. */
    int32_t first = to == EB_STORAGE_F16 ? INT32_C(0x477ff000) : INT32_C(0x7f7f8000);
    return (struct eb_quantize_excess){first - 1, INT32_C(0x7f7fffff)};
}
