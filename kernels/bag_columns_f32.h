/* Blocks of columns of f32 rows, summed in registers; the same for every instruction set, for the
 * files of which bag_pool_f32.h is. The including file defines vectors:
 * VEC (a vector of floats), LANES (how many), and the static inline functions
 *   vec_set(value), vec_load(floats), vec_load_some(floats, count), vec_add(a, b),
 *   vec_fma(a, b, c) = a * b + c rounded once, vec_divide(a, b),
 *   vec_max(x, acc) = x > acc or x is NaN ? x : acc, vec_min(x, acc) likewise with <,
 *   vec_canonical(v), every NaN in its canonical form,
 *   vec_store(type, v, out, count), the first `count` lanes as f32, f16 or bf16,
 * of which the `_some` forms and stores touch no byte past `count` elements.
 *
 * Vectors run across a row, never across the rows of a bag, so every element sees the reference's
 * operations in the reference's order.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))

/* Vectors of accumulators that stay in registers. */
#define BLOCK_VECTORS 8
#define BLOCK_FLOATS (BLOCK_VECTORS * LANES)

#define LINE_BYTES 64

/* How far the prefetch cursor runs ahead of the sums, in rows, and into which cache. On a Sapphire
 * Rapids virtual machine, one thread, 2 GB of f32 in 2 MiB pages, uniform indices, AVX-512, GB/s at
 * dim 128 / 64 / 32: T0 at 16 rows 12.2 / 9.2 / 7.0; T1 at 8 rows 14.5 / 10.4 / 7.1, at 32 rows
 * 14.4 / 11.2 / 8.0, at 64 rows 16.3 / 12.0 / 8.0. At 64 a tile's first rows pay more. */
#define PREFETCH_ROWS 32
#define PREFETCH_HINT _MM_HINT_T1

enum fold { FOLD_SUM, FOLD_WEIGHTED, FOLD_MAX, FOLD_MIN, FOLD_COUNT };

/* One bag of at least one row. */
struct bag {
    const struct eb_bag_job *job;
    const int64_t *rows;
    const float *weights; /* beside rows; NULL: none */
    uint32_t row_count;
    uint32_t rows_left; /* from the bag's first to the tile's last: what may be prefetched */
    bool divides;
    float divisor;
    uint8_t *out;
};

/* Adds up columns of a bag's rows and stores them. */
typedef void (*pool_columns_fn)(const struct bag *bag, uint32_t column);

/* Stands in for rows that are EB_ROW_ZERO, whatever the column. */
static const float zeros[BLOCK_FLOATS];

INLINE void prefetch_row(
    const struct eb_table *table, int64_t row, uint32_t column, uint32_t floats)
{
    if (row == EB_ROW_ZERO) {
        return;
    }
    const char *bytes = (const char *)table->rows + (uint64_t)row * table->row_stride_bytes;
    const char *first = bytes + column * sizeof(float);
    const size_t count = floats * sizeof(float);
    for (size_t i = 0; i < count; i += LINE_BYTES) {
        _mm_prefetch(first + i, PREFETCH_HINT);
    }
    /* What straddles lines ends in one more. */
    _mm_prefetch(first + count - 1, PREFETCH_HINT);
}

INLINE VEC fold_start(enum fold fold)
{
    /* Below and above every number: the first row takes their place, also an infinite one. */
    if (fold == FOLD_MAX || fold == FOLD_MIN) {
        return vec_set(fold == FOLD_MAX ? -INFINITY : INFINITY);
    }
    return vec_set(-0.0f);
}

INLINE VEC fold_row(enum fold fold, VEC acc, VEC x, VEC weight)
{
    switch (fold) {
    case FOLD_WEIGHTED: return vec_fma(weight, x, acc);
    case FOLD_MAX: return vec_max(x, acc);
    case FOLD_MIN: return vec_min(x, acc);
    default: return vec_add(acc, x);
    }
}

INLINE void store(const struct bag *bag, uint32_t column, VEC v, unsigned count)
{
    enum eb_type type = bag->job->output_type;
    if (bag->divides && bag->divisor == 0) {
        v = vec_set(0);
    } else if (bag->divides) {
        v = vec_divide(v, vec_set(bag->divisor));
    }
    size_t element_bytes = type == EB_F32 ? sizeof(float) : sizeof(uint16_t);
    vec_store(type, vec_canonical(v), bag->out + column * element_bytes, count);
}

/* `vectors` whole vectors from `column` on, or with 0 the rest of the row, less than one. Fold and
 * vectors are constants wherever this is called. */
INLINE void pool_columns(
    const struct bag *bag, uint32_t column, enum fold fold, const unsigned vectors)
{
    const struct eb_table *table = bag->job->table;
    const uint8_t *base = (const uint8_t *)table->rows + column * sizeof(float);
    const unsigned rest = table->row_elements - column;
    const uint32_t floats = vectors > 0 ? vectors * LANES : rest;
    VEC acc[BLOCK_VECTORS];
#pragma GCC unroll 8
    for (unsigned v = 0; v < BLOCK_VECTORS; v++) {
        acc[v] = fold_start(fold);
    }
    for (uint32_t i = 0; i < bag->row_count; i++) {
        if (i + PREFETCH_ROWS < bag->rows_left) {
            prefetch_row(table, bag->rows[i + PREFETCH_ROWS], column, floats);
        }
        int64_t row = bag->rows[i];
        const uint8_t *x =
            row >= 0 ? base + (uint64_t)row * table->row_stride_bytes : (const uint8_t *)zeros;
        /* A zero row is added, not weighted: 1 * 0 + acc is acc + 0. */
        VEC weight = vec_set(fold == FOLD_WEIGHTED && row >= 0 ? bag->weights[i] : 1);
        if (vectors == 0) {
            acc[0] = fold_row(fold, acc[0], vec_load_some(x, rest), weight);
        }
#pragma GCC unroll 8
        for (unsigned v = 0; v < vectors; v++) {
            acc[v] = fold_row(fold, acc[v], vec_load(x + v * sizeof(VEC)), weight);
        }
    }
    if (vectors == 0) {
        store(bag, column, acc[0], rest);
    }
#pragma GCC unroll 8
    for (unsigned v = 0; v < vectors; v++) {
        store(bag, column + v * LANES, acc[v], LANES);
    }
}

#define DEFINE_COLUMNS(name, fold, vectors)                                                        \
    static void name##_##vectors(const struct bag *bag, uint32_t column)                           \
    {                                                                                              \
        pool_columns(bag, column, fold, vectors);                                                  \
    }
#define DEFINE_FOLD(name, fold)                                                                    \
    DEFINE_COLUMNS(name, fold, 0)                                                                  \
    DEFINE_COLUMNS(name, fold, 1)                                                                  \
    DEFINE_COLUMNS(name, fold, 2)                                                                  \
    DEFINE_COLUMNS(name, fold, 3)                                                                  \
    DEFINE_COLUMNS(name, fold, 4)                                                                  \
    DEFINE_COLUMNS(name, fold, 5)                                                                  \
    DEFINE_COLUMNS(name, fold, 6)                                                                  \
    DEFINE_COLUMNS(name, fold, 7)                                                                  \
    DEFINE_COLUMNS(name, fold, 8)
#define LIST_FOLD(name)                                                                            \
    {                                                                                              \
        name##_0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8   \
    }

DEFINE_FOLD(sum, FOLD_SUM)
DEFINE_FOLD(weighted, FOLD_WEIGHTED)
DEFINE_FOLD(max, FOLD_MAX)
DEFINE_FOLD(min, FOLD_MIN)

static const pool_columns_fn pool_functions[FOLD_COUNT][BLOCK_VECTORS + 1] = {
    [FOLD_SUM] = LIST_FOLD(sum),
    [FOLD_WEIGHTED] = LIST_FOLD(weighted),
    [FOLD_MAX] = LIST_FOLD(max),
    [FOLD_MIN] = LIST_FOLD(min),
};
