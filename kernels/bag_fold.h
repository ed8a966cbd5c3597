/* Sums up a bag's rows in registers, a number of vectors of columns at a time. Vectors run across a
 * row, never across the rows of a bag, so every element gets the reference's operations in the
 * reference's order.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_prefetch.h"
#include "kernels/bag_rows.h"

#include <math.h>

/* The sums of a bag that is being pooled. */
struct sums {
    VEC acc[BLOCK_VECTORS];
    ACC bias; /* sum of the biases, if codes are summed */
};

static INLINE VEC start_fold(enum fold fold)
{
    /* Below and above every number: the first row replaces them, even an infinite one. */
    if (fold == FOLD_MAX || fold == FOLD_MIN) {
        return vec_set(fold == FOLD_MAX ? (ACC)-INFINITY : (ACC)INFINITY);
    }
    return vec_set((ACC)-0.0);
}

/* Folds the vector x of a row, values or codes, into acc. */
static INLINE VEC fold_vector(struct shape shape, const struct row *row, VEC acc, VEC x)
{
    if (is_code(shape) && is_sum(shape)) {
        ACC scale = load_float_scale(row);
        ACC factor = shape.fold == FOLD_WEIGHTED ? *row->weight * scale : scale;
        return vec_fma(vec_set(factor), x, acc);
    }
    if (is_code(shape)) {
        x = vec_fma(vec_set(load_float_scale(row)), x, vec_set(load_bias(row)));
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
    size_t vector_bytes = LANES * eb_storage_bits(shape.storage) / 8;
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

/* Makes the compiler hold a value in a register for the next loop, rather than read it again from
 * its source. */
#define KEEP_AT_HAND(value) __asm__("" : "+r"(value))

/* Returns the least number of cache lines that a row of the shape takes. */
static INLINE uint32_t count_lines(struct shape shape)
{
    size_t bytes = (size_t)shape.vectors * LANES * eb_storage_bits(shape.storage) / 8;
    return (uint32_t)((bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES);
}

/* The cache lines that sum_lean prefetches, as addresses in row 0. Row n lies n * stride_bytes
 * further. */
struct lines {
    uintptr_t first;
    uintptr_t last;
    uint64_t stride_bytes;
    bool has_one_more; /* than the least that a row of the shape takes */
};

static INLINE struct lines find_lines(struct shape shape, const struct eb_bag_cursor *cursor)
{
    struct lines lines = {
        .first = cursor->base,
        .last = cursor->base + cursor->last_byte,
        .stride_bytes = cursor->row_stride_bytes,
        .has_one_more = cursor->line_count > count_lines(shape),
    };
    KEEP_AT_HAND(lines.first);
    KEEP_AT_HAND(lines.last);
    KEEP_AT_HAND(lines.stride_bytes);
    return lines;
}

/* Returns whether the span is prefetched as most are: the far cursor takes the first cache line or
 * nothing, and the near one takes the least number that a row of the shape has, or one more. */
static INLINE bool is_lean(struct shape shape, const struct eb_bag_span *span)
{
    const struct eb_bag_cursor *far = &span->prefetch->far;
    const struct eb_bag_cursor *near = &span->prefetch->near;
    bool is_far_lean = far->line_count == 0 || (far->is_plain && far->line_count == 1);
    return shape.vectors > 0 && is_far_lean && !near->scales &&
           near->line_count - count_lines(shape) <= 1;
}

/* Prefetches a row for the near cursor. The number of cache lines is a constant, so there is no
 * loop. */
static INLINE void prefetch_near(
    struct shape shape, const struct lines *near, const int64_t *number, bool is_l1)
{
    uint32_t line_count = count_lines(shape);
    uintptr_t offset = (uintptr_t)*number * near->stride_bytes;
#pragma GCC unroll 16
    for (uint32_t line = 0; line + 1 < line_count; line++) {
        eb_bag_prefetch_line(near->first + offset + line * EB_LINE_BYTES, is_l1);
    }
    if (near->has_one_more) {
        eb_bag_prefetch_line(near->first + offset + (line_count - 1) * EB_LINE_BYTES, is_l1);
    }
    eb_bag_prefetch_line(near->last + offset, is_l1);
}

/* Sums up the rows of a lean span. The instruction count is kept low, since it bounds how much
 * memory traffic a processor has in flight: 80 more per row cost codes of 4 bits and 128 columns a
 * fifth of their rate. */
static INLINE void sum_lean(struct shape shape, const struct source *source, const struct bag *bag,
    const struct eb_bag_span *span, struct sums *sums)
{
    bool has_far = span->prefetch->far.line_count > 0;
    bool is_l1 = span->prefetch->near.is_l1;
    struct lines far = find_lines(shape, &span->prefetch->far);
    struct lines near = find_lines(shape, &span->prefetch->near);
    for (uint32_t i = 0; i < span->count; i++) {
        if (has_far) {
            eb_bag_prefetch_line(far.first + (uintptr_t)span->far[i] * far.stride_bytes, false);
        }
        if (is_l1) {
            prefetch_near(shape, &near, span->near + i, true);
        } else {
            prefetch_near(shape, &near, span->near + i, false);
        }
        struct row row = find_float_row(shape, source, bag, i);
        fold_row(shape, &row, source->rest, sums);
    }
}

/* Returns the sums of a bag of at least one row. */
static INLINE struct sums sum_rows(struct shape shape, const struct source *of_pass,
    const struct bag *of_job, struct eb_bag_prefetch *prefetch)
{
    struct sums sums = {.bias = (ACC)-0.0};
    struct source source = *of_pass;
    struct bag bag = *of_job;
    KEEP_AT_HAND(source.columns);
    KEEP_AT_HAND(source.row_stride_bytes);
#pragma GCC unroll 16
    for (unsigned v = 0; v < BLOCK_VECTORS; v++) {
        sums.acc[v] = start_fold(shape.fold);
    }
    if (!prefetch) {
        for (uint32_t i = 0; i < bag.count; i++) {
            struct row row = find_float_row(shape, &source, &bag, i);
            fold_row(shape, &row, source.rest, &sums);
        }
        return sums;
    }
    while (bag.count > 0) {
        struct eb_bag_span span = eb_bag_prefetch_span(prefetch, bag.count);
        if (is_lean(shape, &span)) {
            sum_lean(shape, &source, &bag, &span, &sums);
        } else {
            for (uint32_t i = 0; i < span.count; i++) {
                eb_bag_span_prefetch(&span, i);
                struct row row = find_float_row(shape, &source, &bag, i);
                fold_row(shape, &row, source.rest, &sums);
            }
        }
        bag.rows += span.count;
        bag.weights = bag.weights ? bag.weights + span.count : NULL;
        bag.count -= span.count;
    }
    return sums;
}
