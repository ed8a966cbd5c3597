#include "kernels/fused_row.h"

#include "kernels/element.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rounding a number to f16 moves it by at most 2^-11 of itself, or by 2^-25; twice that, since the
 * scale has been rounded too. */
#define F16_ROUNDING 0x1p-10
#define F16_ROUNDING_LEAST 0x1p-24

/* Where the parts of a fused row begin. */
struct parts {
    enum eb_type number; /* what scale and bias are */
    uint64_t codes_offset;
    uint64_t codes_bytes;
    uint64_t scale_offset;
    uint64_t bias_offset;
    uint64_t row_bytes;
};

static struct parts find_parts(const struct eb_fused_format *format)
{
    assert(eb_storage_is_code(format->storage) && format->elements > 0);
    assert(format->layout < EB_FUSED_LAYOUT_COUNT);
    struct parts parts = {
        .number = format->layout == EB_FUSED_F32_LAST ? EB_F32 : EB_F16,
        .codes_bytes = eb_storage_row_bytes(format->storage, format->elements),
    };
    uint64_t number_bytes = eb_type_bytes(parts.number);
    if (format->layout == EB_FUSED_F16_FIRST) {
        parts.codes_offset = 2 * number_bytes;
    } else {
        parts.scale_offset = parts.codes_bytes;
    }
    parts.bias_offset = parts.scale_offset + number_bytes;
    parts.row_bytes = parts.codes_bytes + 2 * number_bytes;
    return parts;
}

/* The dense storages carry the number of their type. */
static float load_number(enum eb_type type, const uint8_t *bytes)
{
    return (float)eb_element_load_float((enum eb_storage)type, bytes);
}

/* Whether it was stored exactly. */
static bool store_number(enum eb_type type, float value, uint8_t *bytes)
{
    eb_element_store_float(type, value, bytes);
    return load_number(type, bytes) == value;
}

uint64_t eb_fused_row_bytes(const struct eb_fused_format *format)
{
    return find_parts(format).row_bytes;
}

void eb_fused_row_split(
    const struct eb_fused_format *format, const void *fused, void *row, struct eb_row_scale *scale)
{
    struct parts parts = find_parts(format);
    const uint8_t *bytes = fused;
    scale->scale = load_number(parts.number, bytes + parts.scale_offset);
    scale->bias = load_number(parts.number, bytes + parts.bias_offset);
    memcpy(row, bytes + parts.codes_offset, parts.codes_bytes);
}

static bool is_zeros(const uint8_t *bytes, uint64_t count)
{
    uint8_t any = 0;
    for (uint64_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

bool eb_fused_row_is_plausible(
    const struct eb_fused_format *format, const void *row, const struct eb_row_scale *scale)
{
    if (scale->scale > 0) {
        return true;
    }
    if (scale->scale == 0) {
        return is_zeros(row, find_parts(format).codes_bytes);
    }
    const double levels = (double)((1u << eb_storage_bits(format->storage)) - 1);
    return format->layout != EB_FUSED_F32_LAST &&
           levels * -(double)scale->scale <=
               F16_ROUNDING * fabs((double)scale->bias) + levels * F16_ROUNDING_LEAST;
}

bool eb_fused_row_join(const struct eb_fused_format *format, const void *row,
    const struct eb_row_scale *scale, void *fused)
{
    struct parts parts = find_parts(format);
    uint8_t *bytes = fused;
    bool exact = store_number(parts.number, scale->scale, bytes + parts.scale_offset);
    exact &= store_number(parts.number, scale->bias, bytes + parts.bias_offset);
    memcpy(bytes + parts.codes_offset, row, parts.codes_bytes);
    return exact;
}
