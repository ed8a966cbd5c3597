#include "kernels/quantize.h"

#include "kernels/bag_ops.h"
#include "kernels/bag_variant.h"
#include "kernels/element.h"
#include "kernels/float_row.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* If codes are narrower than a byte, this many are computed at a time and then packed. The packed
 * codes fill whole bytes. */
#define CHUNK_ELEMENTS 256

static_assert(CHUNK_ELEMENTS % 4 == 0, "a chunk's codes fill their bytes at two bits too");

struct value_range {
    float smallest;
    float largest;
};

static unsigned levels_of(enum eb_storage storage)
{
    assert(eb_storage_is_code(storage));
    return (1u << eb_storage_bits(storage)) - 1;
}

/* Turns a float's bits into an integer that compares as the floats do, with -0 below +0 and NaNs at
 * both ends. Applied twice, it returns the bits. Compilers vectorize a loop that compares integers,
 * because the comparisons may be made in any order, but not a loop that compares floats. */
static inline uint32_t swap_order(uint32_t bits)
{
    return bits ^ ((0 - (bits >> 31)) >> 1);
}

static inline int32_t key_of_value(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int32_t)swap_order(bits);
}

static float value_of(int32_t key)
{
    uint32_t bits = swap_order((uint32_t)key);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Finds the range of the values. Returns false if a value is not finite. */
static bool find_quantized_range(const float *values, uint32_t elements, struct value_range *range)
{
    int32_t low = INT32_MAX;
    int32_t high = INT32_MIN;
    for (uint32_t i = 0; i < elements; i++) {
        int32_t key = key_of_value(values[i]);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    *range = (struct value_range){value_of(low), value_of(high)};
    return low >= key_of_value(-FLT_MAX) && high <= key_of_value(FLT_MAX);
}

/* Computes the codes of `elements` values, a byte each. No value may be below the bias. Except for
 * an error far below half a code, none may be above the highest code's value. */
static void encode_codes(
    const float *values, uint32_t elements, const struct eb_row_scale *scale, uint8_t *codes)
{
    double bias = scale->bias;
    double codes_per_unit = scale->scale > 0 ? 1.0 / scale->scale : 0.0;
    for (uint32_t i = 0; i < elements; i++) {
        codes[i] = (uint8_t)(int)((values[i] - bias) * codes_per_unit + 0.5);
    }
}

static void pack_nibbles(const uint8_t *codes, uint32_t bytes, uint8_t *packed)
{
    for (uint32_t i = 0; i < bytes; i++) {
        packed[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    }
}

static void pack_pairs(const uint8_t *codes, uint32_t bytes, uint8_t *packed)
{
    for (uint32_t i = 0; i < bytes; i++) {
        const uint8_t *four = codes + 4 * (size_t)i;
        packed[i] = (uint8_t)(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
    }
}

static void encode_row(enum eb_storage to, const float *values, uint32_t elements, uint8_t *row,
    const struct eb_row_scale *scale)
{
    if (to == EB_STORAGE_INT8) {
        encode_codes(values, elements, scale, row);
        return;
    }
    uint32_t count = 0;
    for (uint32_t start = 0; start < elements; start += count) {
        count = elements - start < CHUNK_ELEMENTS ? elements - start : CHUNK_ELEMENTS;
        uint8_t codes[CHUNK_ELEMENTS] = {0};
        encode_codes(values + start, count, scale, codes);
        uint32_t bytes = (uint32_t)eb_storage_row_bytes(to, count);
        uint8_t *packed = row + eb_storage_row_bytes(to, start);
        if (to == EB_STORAGE_INT4) {
            pack_nibbles(codes, bytes, packed);
        } else {
            pack_pairs(codes, bytes, packed);
        }
    }
}

static bool quantize_codes(enum eb_storage to, const float *values, uint32_t elements, uint8_t *row,
    struct eb_row_scale *scale)
{
    double levels = levels_of(to);
    struct value_range range;
    if (!find_quantized_range(values, elements, &range)) {
        return false;
    }
    double width = (double)range.largest - range.smallest;
    if (width > EB_QUANTIZE_RANGE_MAX) {
        return false;
    }
    float step = (float)(width / levels);
    if (step * levels < width) {
        step = nextafterf(step, INFINITY);
    }
    *scale = (struct eb_row_scale){step, range.smallest};
    encode_row(to, values, elements, row, scale);
    return true;
}

bool eb_quantize_row(enum eb_storage to, const float *values, uint32_t elements, void *row,
    struct eb_row_scale *scale)
{
    assert(elements > 0);
    if (eb_storage_is_code(to)) {
        return quantize_codes(to, values, elements, row, scale);
    }
    if (to == EB_STORAGE_F32) {
        memcpy(row, values, elements * sizeof *values);
    } else {
        eb_float_row_narrow(to, values, elements, row);
    }
    return true;
}

static float f16_value(uint16_t code)
{
    return (float)eb_element_load_float(EB_STORAGE_F16, &code);
}

/* Returns the largest f16 that is at most `value`: minus infinity if `value` is below all finite
 * f16 numbers. */
static float f16_at_most(float value)
{
    uint16_t code;
    eb_element_store_float(EB_F16, value, &code);
    if (f16_value(code) > value) {
        code = (uint16_t)(signbit(value) ? code + 1 : code - 1);
    }
    return f16_value(code);
}

/* Returns the smallest f16 that is at least width / levels: infinity if that quotient is above all
 * finite f16 numbers. */
static float f16_step(double width, double levels)
{
    uint16_t code;
    eb_element_store_float(EB_F16, width / levels, &code);
    if (f16_value(code) * levels < width) {
        code++;
    }
    return f16_value(code);
}

bool eb_quantize_row_f16_scale(enum eb_storage to, const float *values, uint32_t elements,
    void *row, struct eb_row_scale *scale)
{
    assert(elements > 0);
    double levels = levels_of(to);
    struct value_range range;
    if (!find_quantized_range(values, elements, &range)) {
        return false;
    }
    float bias = f16_at_most(range.smallest);
    float step = f16_step((double)range.largest - bias, levels);
    /* An infinite bias is infinitely far from all values, so the step is then infinite too. */
    if (!isfinite(step)) {
        return false;
    }
    *scale = (struct eb_row_scale){step, bias};
    encode_row(to, values, elements, row, scale);
    return true;
}

bool eb_quantize_scale_is_sound(enum eb_storage storage, const struct eb_row_scale *scale)
{
    float last = (float)levels_of(storage);
    return isfinite(scale->bias) && isfinite(fmaf(scale->scale, last, scale->bias));
}

uint32_t eb_quantize_find_error(const float *values, uint32_t elements)
{
    float smallest = FLT_MAX;
    float largest = -FLT_MAX;
    for (uint32_t i = 0; i < elements; i++) {
        smallest = fminf(smallest, values[i]);
        largest = fmaxf(largest, values[i]);
        if (!isfinite(values[i]) || (double)largest - smallest > EB_QUANTIZE_RANGE_MAX) {
            return i;
        }
    }
    return elements;
}

/* Bounds on the values that are too large for a storage, regardless of sign. */
struct excess {
    int32_t above; /* key_of_value of the largest value that is not too large */
    int32_t last;
};

static struct excess excess_of(enum eb_storage to)
{
    switch (to) {
    case EB_STORAGE_F16:
        return (struct excess){key_of_value(0x1.ffdffep15f), key_of_value(FLT_MAX)};
    case EB_STORAGE_BF16:
        return (struct excess){key_of_value(0x1.fefffep127f), key_of_value(FLT_MAX)};
    case EB_STORAGE_F8_E4M3: return (struct excess){key_of_value(464), key_of_value(INFINITY)};
    case EB_STORAGE_F8_E5M2: return (struct excess){key_of_value(61440), key_of_value(INFINITY)};
    default: return (struct excess){INT32_MAX, INT32_MAX};
    }
}

static bool is_excess(const struct excess *excess, float value)
{
    int32_t size = key_of_value(fabsf(value));
    return (size > excess->above) & (size <= excess->last);
}

uint32_t eb_quantize_find_excess(enum eb_storage to, const float *values, uint32_t elements)
{
    struct excess excess = excess_of(to);
    uint32_t found = 0;
    for (uint32_t i = 0; i < elements; i++) {
        found |= is_excess(&excess, values[i]);
    }
    uint32_t at = found ? 0 : elements;
    while (at < elements && !is_excess(&excess, values[at])) {
        at++;
    }
    return at;
}

static void decode_row(enum eb_storage from, const uint8_t *row, const struct eb_row_scale *scale,
    uint32_t elements, float *values)
{
    unsigned bits = eb_storage_bits(from);
    unsigned levels = levels_of(from);
    for (uint32_t i = 0; i < elements; i++) {
        uint64_t position = (uint64_t)i * bits;
        unsigned code = (unsigned)row[position / 8] >> (position % 8) & levels;
        values[i] = fmaf(scale->scale, (float)code, scale->bias);
    }
}

static void load_doubles(const uint8_t *row, uint32_t elements, float *values)
{
    for (size_t i = 0; i < elements; i++) {
        double value;
        memcpy(&value, row + i * sizeof value, sizeof value);
        values[i] = (float)value;
    }
}

void eb_dequantize_row(enum eb_storage from, const void *row, const struct eb_row_scale *scale,
    uint32_t elements, float *values)
{
    if (eb_storage_is_code(from)) {
        decode_row(from, row, scale, elements, values);
    } else if (from == EB_STORAGE_F32) {
        memcpy(values, row, elements * sizeof *values);
    } else if (from == EB_STORAGE_F64) {
        load_doubles(row, elements, values);
    } else {
        eb_float_row_widen(from, row, elements, values);
    }
}

/* ---- rows ---- */

/* Converts a row. Returns false if it cannot be converted. */
static bool convert_row_plain(const struct eb_quantize_job *job, const uint8_t *row, uint8_t *out)
{
    struct eb_row_scale scale;
    const float *values = job->values;
    if (job->from == EB_STORAGE_F32) {
        values = (const float *)(const void *)row;
    } else {
        eb_dequantize_row(job->from, row, NULL, job->elements, job->values);
    }
    if (eb_quantize_find_excess(job->to, values, job->elements) < job->elements ||
        !eb_quantize_row(job->to, values, job->elements, out + job->to_offset_bytes, &scale)) {
        return false;
    }
    if (eb_storage_is_code(job->to)) {
        memcpy(out, &scale, sizeof scale);
    }
    return true;
}

uint64_t eb_quantize_ref_rows(
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out)
{
    uint64_t done = 0;
    while (done < count && convert_row_plain(job, rows, out)) {
        rows += job->from_stride_bytes;
        out += job->to_stride_bytes;
        done++;
    }
    return done;
}

uint64_t eb_quantize_rows(const struct eb_bag_ops *ops, const struct eb_quantize_job *job,
    const uint8_t *rows, uint64_t count, uint8_t *out)
{
    assert(job->elements > 0);
    return eb_bag_ops_variant(ops)->quantize_rows(job, rows, count, out);
}
