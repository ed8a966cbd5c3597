#include "kernels/fused_row.h"

#include "kernels/element.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rounding to f16 changes a number by at most 2^-11 of its value, or by 2^-25 if it is subnormal.
 * The two bounds here are twice as large, because the scale has been rounded too. */
#define F16_ROUNDING 0x1p-10
#define F16_ROUNDING_LEAST 0x1p-24

/* Codes of EB_FUSED_F32_ALIGNED are padded to a multiple of this many bytes. */
#define ALIGNED_BYTES 4

/* At most one in this many coded rows of a table may have a negative scale. */
#define NEGATIVE_SHARE 4

/* The offsets and sizes of a fused row's parts. */
struct parts {
    enum eb_type number; /* type of scale and bias */
    uint64_t codes_offset;
    uint64_t codes_bytes;
    uint64_t scale_offset;
    uint64_t bias_offset;
    uint64_t row_bytes;
};

static bool is_f32(const struct eb_fused_format *format)
{
    return format->layout == EB_FUSED_F32_LAST || format->layout == EB_FUSED_F32_ALIGNED;
}

static struct parts find_parts(const struct eb_fused_format *format)
{
    assert(eb_storage_is_code(format->storage) && format->elements > 0);
    assert(format->layout < EB_FUSED_LAYOUT_COUNT);
    struct parts parts = {
        .number = is_f32(format) ? EB_F32 : EB_F16,
        .codes_bytes = eb_storage_row_bytes(format->storage, format->elements),
    };
    uint64_t number_bytes = eb_type_bytes(parts.number);
    uint64_t filled_bytes = parts.codes_bytes;
    if (format->layout == EB_FUSED_F32_ALIGNED) {
        filled_bytes += (ALIGNED_BYTES - filled_bytes % ALIGNED_BYTES) % ALIGNED_BYTES;
    }
    if (format->layout == EB_FUSED_F16_FIRST) {
        parts.codes_offset = 2 * number_bytes;
    } else {
        parts.scale_offset = filled_bytes;
    }
    parts.bias_offset = parts.scale_offset + number_bytes;
    parts.row_bytes = filled_bytes + 2 * number_bytes;
    return parts;
}

/* Reads a scale or bias. Its type is used as a storage: a dense storage has the same number as its
 * type. */
static float load_number(enum eb_type type, const uint8_t *bytes)
{
    return (float)eb_element_load_float((enum eb_storage)type, bytes);
}

/* Stores a scale or bias. Returns whether that was exact. */
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

/* Returns whether all bytes are 0. Stops at the first byte that is not, which comes early in most
 * rows. */
static bool is_zeros(const uint8_t *bytes, uint64_t count)
{
    uint64_t at = 0;
    while (at < count && bytes[at] == 0) {
        at++;
    }
    return at == count;
}

/* Returns whether the scale, which is negative, may be negative only because of rounding to f16. */
static bool is_rounding(const struct eb_fused_format *format, const struct eb_row_scale *scale)
{
    double levels = (double)((1u << eb_storage_bits(format->storage)) - 1);
    return !is_f32(format) &&
           levels * -(double)scale->scale <=
               F16_ROUNDING * fabs((double)scale->bias) + levels * F16_ROUNDING_LEAST;
}

enum eb_fused_sign eb_fused_row_sign(
    const struct eb_fused_format *format, const void *row, const struct eb_row_scale *scale)
{
    if (is_zeros(row, eb_storage_row_bytes(format->storage, format->elements))) {
        return EB_FUSED_UNCODED;
    }
    if (scale->scale == 0) {
        return EB_FUSED_ZERO;
    }
    return scale->scale > 0 || is_rounding(format, scale) ? EB_FUSED_POSITIVE : EB_FUSED_NEGATIVE;
}

void eb_fused_counters_add(struct eb_fused_counters *counters, enum eb_fused_sign sign)
{
    counters->coded += sign != EB_FUSED_UNCODED;
    counters->zero += sign == EB_FUSED_ZERO;
    counters->negative += sign == EB_FUSED_NEGATIVE;
}

bool eb_fused_counters_is_plausible(const struct eb_fused_counters *counters)
{
    return counters->negative <= counters->coded / NEGATIVE_SHARE &&
           (counters->coded == 0 || counters->negative + counters->zero < counters->coded);
}

bool eb_fused_row_join(const struct eb_fused_format *format, const void *row,
    const struct eb_row_scale *scale, void *fused)
{
    struct parts parts = find_parts(format);
    uint8_t *bytes = fused;
    bool exact = store_number(parts.number, scale->scale, bytes + parts.scale_offset);
    exact &= store_number(parts.number, scale->bias, bytes + parts.bias_offset);
    memcpy(bytes + parts.codes_offset, row, parts.codes_bytes);
    if (format->layout == EB_FUSED_F32_ALIGNED) {
        memset(bytes + parts.codes_bytes, 0, parts.scale_offset - parts.codes_bytes);
    }
    return exact;
}
