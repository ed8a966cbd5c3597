/* Sums of a bag's rows in registers: a number of vectors of columns at a time, for rows of floats
 * and of codes, the same for every instruction set. The including file first includes a header of
 * vectors, which defines VEC, LANES, BLOCK_VECTORS (how many sums stay in registers: 8 or 16),
 * INLINE and the functions vec_set, vec_load(storage, from, count), vec_add, vec_fma(a, b, c) =
 * a * b + c rounded once, vec_divide, vec_max(x, acc) = x > acc or x is NaN ? x : acc, vec_min,
 * vec_in_order(storage, v), vec_canonical and vec_store(type, v, out, count); and defines ACC (a
 * lane: float or double), ACC_TYPE, ACC_FMA, ACC_SQRT and ACC_ZERO_ROW_WEIGHT.
 *
 * Vectors run across a row, never across the rows of a bag, so every element sees the reference's
 * operations in the reference's order.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_prefetch.h"
#include "kernels/bag_shape.h"
#include "kernels/zero_row.h"

#include <math.h>
#include <string.h>

/* Columns of a block. */
#define BLOCK_ELEMENTS (BLOCK_VECTORS * LANES)

_Static_assert(BLOCK_ELEMENTS * sizeof(ACC) <= EB_ZERO_ROW_BYTES, "a block of a row of zeros");

/* One bag. */
struct bag {
    const int64_t *rows; /* [count] */
    const ACC *weights;  /* beside rows; NULL: none */
    uint32_t count;
};

/* Where values come from: what is the same for every bag of a pass. */
struct source {
    const uint8_t *columns; /* the pass's in row 0 */
    const uint8_t *scales;
    uint64_t row_stride_bytes;
    uint64_t scale_stride_bytes;
    unsigned rest; /* columns where they are less than a vector */
};

/* A bag in work. */
struct sums {
    VEC acc[BLOCK_VECTORS];
    ACC bias; /* of codes that are summed */
};

/* A row of a bag: its columns, and what they are multiplied with. Addresses, because a vector of
 * equal values is read from memory for less than it is made from a register. */
struct row {
    const uint8_t *columns;
    const ACC *weight;
    const uint8_t *scale; /* of codes: an eb_row_scale at any alignment */
};

static INLINE struct row find_row(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i)
{
    const int64_t number = bag->rows[i];
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

static INLINE ACC load_scale(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, scale));
}

static INLINE ACC load_bias(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, bias));
}

static INLINE VEC start_fold(enum fold fold)
{
    /* Below and above every number: the first row takes their place, also an infinite one. */
    if (fold == FOLD_MAX || fold == FOLD_MIN) {
        return vec_set(fold == FOLD_MAX ? (ACC)-INFINITY : (ACC)INFINITY);
    }
    return vec_set((ACC)-0.0);
}

/* The vector x of a row, values or codes, into acc. */
static INLINE VEC fold_vector(struct shape shape, const struct row *row, VEC acc, VEC x)
{
    if (is_code(shape) && is_sum(shape)) {
        ACC scale = load_scale(row);
        ACC factor = shape.fold == FOLD_WEIGHTED ? *row->weight * scale : scale;
        return vec_fma(vec_set(factor), x, acc);
    }
    if (is_code(shape)) {
        x = vec_fma(vec_set(load_scale(row)), x, vec_set(load_bias(row)));
    }
    switch (shape.fold) {
    case FOLD_SUM:
    case FOLD_SINGLE: return vec_add(acc, x);
    case FOLD_MAX: return vec_max(x, acc);
    case FOLD_MIN: return vec_min(x, acc);
    default: return vec_fma(vec_set(*row->weight), x, acc);
    }
}

static INLINE void fold_row(
    struct shape shape, const struct row *row, unsigned rest, struct sums *sums)
{
    const size_t vector_bytes = LANES * element_bits(shape) / 8;
    if (shape.vectors == 0) {
        VEC x = vec_load(shape.storage, row->columns, rest);
        sums->acc[0] = fold_vector(shape, row, sums->acc[0], x);
    }
#pragma GCC unroll 16
    for (unsigned v = 0; v < shape.vectors; v++) {
        VEC x = vec_load(shape.storage, row->columns + v * vector_bytes, LANES);
        sums->acc[v] = fold_vector(shape, row, sums->acc[v], x);
    }
    if (is_code(shape) && (shape.fold == FOLD_SUM || shape.fold == FOLD_SINGLE)) {
        sums->bias = sums->bias + load_bias(row);
    } else if (is_code(shape) && shape.fold == FOLD_WEIGHTED) {
        sums->bias = ACC_FMA(*row->weight, load_bias(row), sums->bias);
    }
}

/* The sums of a bag of at least one row. */
static INLINE struct sums sum_rows(struct shape shape, const struct source *source,
    const struct bag *bag, struct eb_bag_prefetch *prefetch)
{
    struct sums sums = {.bias = (ACC)-0.0};
#pragma GCC unroll 16
    for (unsigned v = 0; v < BLOCK_VECTORS; v++) {
        sums.acc[v] = start_fold(shape.fold);
    }
    if (!prefetch) {
        for (uint32_t i = 0; i < bag->count; i++) {
            const struct row row = find_row(shape, source, bag, i);
            fold_row(shape, &row, source->rest, &sums);
        }
        return sums;
    }
    for (uint32_t i = 0; i < bag->count;) {
        const struct eb_bag_span span = eb_bag_prefetch_span(prefetch, bag->count - i);
        for (uint32_t k = 0; k < span.count; k++, i++) {
            eb_bag_cursor_call(&prefetch->far, span.far + k);
            eb_bag_cursor_call(&prefetch->near, span.near + k);
            const struct row row = find_row(shape, source, bag, i);
            fold_row(shape, &row, source->rest, &sums);
        }
    }
    return sums;
}
