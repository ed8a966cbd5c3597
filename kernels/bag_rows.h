/* Rows of floats and of codes as the pool functions read them, the same for every instruction set.
 * The file that includes bag_pool.h first includes a header of vectors. That header defines VEC,
 * LANES, BLOCK_VECTORS (how many sums stay in registers: 8 or 16), INLINE and the functions
 * vec_set, vec_load(storage, from, count), vec_add, vec_fma(a, b, c) = a * b + c rounded once,
 * vec_divide, vec_max(x, acc) = x > acc or x is NaN ? x : acc, vec_min, vec_in_order(storage, v),
 * vec_nans, vec_canonical and vec_store(type, v, out, count). The file also defines ACC (a lane:
 * float or double), ACC_TYPE, ACC_FMA, ACC_SQRT and ACC_ZERO_ROW_WEIGHT.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"
#include "kernels/bag_shape.h"
#include "kernels/zero_row.h"

#include <assert.h>
#include <string.h>

/* Count of a block's columns. */
#define BLOCK_ELEMENTS (BLOCK_VECTORS * LANES)

static_assert(BLOCK_ELEMENTS * sizeof(ACC) <= EB_ZERO_ROW_BYTES, "a block of a row of zeros");

/* One bag. */
struct bag {
    const int64_t *rows; /* [count] */
    const ACC *weights;  /* parallel to rows; NULL: none */
    uint32_t count;
};

/* The source of a pass's values: the same for every bag. */
struct source {
    const uint8_t *columns; /* the pass's columns in row 0 */
    const uint8_t *scales;
    uint64_t row_stride_bytes;
    uint64_t scale_stride_bytes;
    unsigned rest; /* count of columns if they are less than a vector */
};

/* A row of a bag: its columns and their factors. Factors are addresses, because making a vector of
 * equal values from memory is cheaper than from a register. */
struct row {
    const uint8_t *columns;
    const ACC *weight;
    const uint8_t *scale; /* codes only: an eb_row_scale at any alignment */
};

static INLINE struct row find_float_row(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i)
{
    int64_t number = bag->rows[i];
    struct row row = {eb_zero_row, &ACC_ZERO_ROW_WEIGHT, (const uint8_t *)&eb_zero_row_scale};
    if (__builtin_expect(number < 0, 0)) {
        return row;
    }
    row.columns = source->columns + (uint64_t)number * source->row_stride_bytes;
    if (shape.fold == FOLD_WEIGHTED || (shape.fold == FOLD_VALUE && bag->weights)) {
        row.weight = &bag->weights[i];
    }
    if (is_code(shape)) {
        row.scale = source->scales + (uint64_t)number * source->scale_stride_bytes;
    }
    return row;
}

static INLINE ACC load_float(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return (ACC)value;
}

static INLINE ACC load_float_scale(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, scale));
}

static INLINE ACC load_bias(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, bias));
}
