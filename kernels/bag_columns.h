/* Pooling of floating-point and code rows, the same for every instruction set and storage: blocks
 * of columns, summed in registers. The including file first includes a header of vectors, which
 * defines VEC, LANES and INLINE and the functions vec_set, vec_load(storage, from, count),
 * vec_add, vec_fma(a, b, c) = a * b + c rounded once, vec_divide, vec_max(x, acc) = x > acc or x
 * is NaN ? x : acc, vec_min, vec_in_order(storage, v), vec_canonical and
 * vec_store(type, v, out, count); and defines ACC (a lane: float or double), ACC_FMA and ACC_SQRT.
 * Then DEFINE_POOL(storage, name) defines the pool function of a storage.
 *
 * Vectors run across a row, never across the rows of a bag, so every element sees the reference's
 * operations in the reference's order.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <math.h>
#include <string.h>

/* Vectors of sums that stay in registers, and the columns of a block. */
#define BLOCK_VECTORS 8
#define BLOCK_ELEMENTS (BLOCK_VECTORS * LANES)

/* Bags of fewer rows are not compared with the one before: to pool them costs about as much. */
#define COPY_ROWS_MIN 4

enum fold { FOLD_SUM, FOLD_WEIGHTED, FOLD_MAX, FOLD_MIN, FOLD_VALUE, FOLD_COUNT };

struct pass;

/* Pools the first columns of a pass: as many vectors as the function is for. */
typedef void (*pool_columns_fn)(const struct pass *pass);

/* By number of vectors; entry 0 takes what is less than one. NULL: smaller ones serve. */
typedef const pool_columns_fn pool_functions[BLOCK_VECTORS + 1];

/* Columns of a range of bags. */
struct pass {
    const struct eb_bag_job *job;
    const uint8_t *base; /* of column 0 in row 0 */
    uint32_t part_first; /* the part's first bag: none before it has been pooled here */
    uint32_t bag_first;
    uint32_t bag_end;
    uint32_t column;
    uint32_t column_end; /* of the block */
    uint32_t out_element_bytes;
    bool divides;
    pool_functions *functions;        /* [FOLD_COUNT] of the storage */
    struct eb_bag_prefetch *prefetch; /* NULL: no steps to take */
};

/* One bag of a pass. */
struct bag {
    const int64_t *rows; /* [count] */
    const ACC *weights;  /* beside rows; NULL: none */
    uint32_t count;
    uint8_t *out; /* the first of the pass's columns */
};

/* Stand in for rows that are EB_ROW_ZERO, whatever the column. */
static const uint8_t zeros[BLOCK_ELEMENTS * sizeof(ACC)];

INLINE struct bag find_bag(const struct pass *pass, uint32_t b)
{
    const struct eb_bag_job *job = pass->job;
    uint32_t first = job->starts ? job->starts[b] : b;
    return (struct bag){
        .rows = job->rows + first,
        .weights = job->weights ? (const ACC *)job->weights + first : NULL,
        .count = job->starts ? job->starts[b + 1] - first : 1,
        .out =
            job->out + b * job->out_stride_bytes + (uint64_t)pass->column * pass->out_element_bytes,
    };
}

/* By what the sum is divided, in the reference's order. */
static ACC find_divisor(const struct eb_bag_job *job, const struct bag *bag)
{
    ACC weight_sum = bag->weights ? 0 : (ACC)bag->count;
    ACC square_sum = weight_sum;
    for (uint32_t i = 0; bag->weights && i < bag->count; i++) {
        weight_sum = weight_sum + bag->weights[i];
        square_sum = ACC_FMA(bag->weights[i], bag->weights[i], square_sum);
    }
    return job->reduction == EB_REDUCTION_SQRTN ? ACC_SQRT(square_sum) : weight_sum;
}

/* Copies the result of the bag before if that pooled the same rows. */
static bool repeat(const struct pass *pass, const struct bag *bag, uint32_t b, size_t bytes)
{
    const struct bag before = find_bag(pass, b - 1);
    size_t count = bag->count;
    bool is_same = before.count == count && bag->rows[0] == before.rows[0] &&
                   memcmp(bag->rows, before.rows, count * sizeof bag->rows[0]) == 0 &&
                   (!bag->weights ||
                       memcmp(bag->weights, before.weights, count * sizeof bag->weights[0]) == 0);
    if (!is_same) {
        return false;
    }
    memcpy(bag->out, before.out, bytes);
    for (size_t i = 0; pass->prefetch && i < count; i++) {
        eb_bag_prefetch_step(pass->prefetch);
    }
    return true;
}

/* What is known when a function is compiled. */
struct shape {
    enum eb_storage storage;
    enum fold fold;
    unsigned vectors; /* of columns; 0: less than one */
};

INLINE bool is_code(struct shape shape)
{
    return shape.storage == EB_STORAGE_INT8 || shape.storage == EB_STORAGE_INT4 ||
           shape.storage == EB_STORAGE_INT2;
}

INLINE bool is_sum(struct shape shape)
{
    return shape.fold == FOLD_SUM || shape.fold == FOLD_WEIGHTED;
}

/* A row of a bag: its columns of the pass, and what it is multiplied with. A zero row is added, not
 * weighted: 1 * 0 + acc is acc + 0. */
struct row {
    const uint8_t *columns;
    ACC weight;
    ACC scale; /* of codes */
    ACC bias;
};

/* A bag in work. */
struct sums {
    VEC acc[BLOCK_VECTORS];
    ACC bias; /* of codes that are summed */
};

INLINE VEC start_fold(enum fold fold)
{
    /* Below and above every number: the first row takes their place, also an infinite one. */
    if (fold == FOLD_MAX || fold == FOLD_MIN) {
        return vec_set(fold == FOLD_MAX ? (ACC)-INFINITY : (ACC)INFINITY);
    }
    return vec_set((ACC)-0.0);
}

/* Bits of an element; a constant like the shape. */
INLINE unsigned element_bits(struct shape shape)
{
    switch (shape.storage) {
    case EB_STORAGE_F64: return 64;
    case EB_STORAGE_F32: return 32;
    case EB_STORAGE_F16:
    case EB_STORAGE_BF16: return 16;
    case EB_STORAGE_INT4: return 4;
    case EB_STORAGE_INT2: return 2;
    default: return 8;
    }
}

/* `columns` are the pass's in row 0. */
INLINE struct row find_row(struct shape shape, const struct pass *pass, const struct bag *bag,
    const uint8_t *columns, uint32_t i)
{
    const struct eb_table *table = pass->job->table;
    const int64_t number = bag->rows[i];
    struct row row = {zeros, 1, 1, 0};
    if (number < 0) {
        return row;
    }
    row.columns = columns + (uint64_t)number * table->row_stride_bytes;
    if (shape.fold == FOLD_WEIGHTED || (shape.fold == FOLD_VALUE && bag->weights)) {
        row.weight = bag->weights[i];
    }
    if (is_code(shape)) {
        row.scale = (ACC)table->scales[number].scale;
        row.bias = (ACC)table->scales[number].bias;
    }
    return row;
}

INLINE VEC fold_vector(struct shape shape, const struct row *row, VEC acc, VEC x)
{
    if (is_code(shape) && is_sum(shape)) {
        return vec_fma(vec_set(row->weight * row->scale), x, acc);
    }
    if (is_code(shape)) {
        x = vec_fma(vec_set(row->scale), x, vec_set(row->bias));
    }
    switch (shape.fold) {
    case FOLD_SUM: return vec_add(acc, x);
    case FOLD_MAX: return vec_max(x, acc);
    case FOLD_MIN: return vec_min(x, acc);
    default: return vec_fma(vec_set(row->weight), x, acc);
    }
}

INLINE void fold_row(struct shape shape, const struct row *row, unsigned rest, struct sums *sums)
{
    const size_t vector_bytes = LANES * element_bits(shape) / 8;
    if (shape.vectors == 0) {
        VEC x = vec_load(shape.storage, row->columns, rest);
        sums->acc[0] = fold_vector(shape, row, sums->acc[0], x);
    }
#pragma GCC unroll 8
    for (unsigned v = 0; v < shape.vectors; v++) {
        VEC x = vec_load(shape.storage, row->columns + v * vector_bytes, LANES);
        sums->acc[v] = fold_vector(shape, row, sums->acc[v], x);
    }
    if (is_code(shape) && shape.fold == FOLD_SUM) {
        sums->bias = sums->bias + row->bias;
    } else if (is_code(shape) && shape.fold == FOLD_WEIGHTED) {
        sums->bias = ACC_FMA(row->weight, row->bias, sums->bias);
    }
}

/* What a bag's sum still needs: the sum of biases, a division. */
INLINE VEC finish(struct shape shape, const struct sums *sums, unsigned v, const ACC *divisor)
{
    VEC sum = vec_in_order(shape.storage, sums->acc[v]);
    if (is_code(shape) && is_sum(shape)) {
        sum = vec_add(sum, vec_set(sums->bias));
    }
    if (divisor) {
        sum = *divisor == 0 ? vec_set(0) : vec_divide(sum, vec_set(*divisor));
    }
    return vec_canonical(sum);
}

INLINE void store_sums(
    struct shape shape, const struct pass *pass, const struct bag *bag, const struct sums *sums)
{
    const enum eb_type type = pass->job->output_type;
    const size_t vector_bytes = LANES * pass->out_element_bytes;
    ACC divisor = 0;
    if (is_sum(shape) && pass->divides) {
        divisor = find_divisor(pass->job, bag);
    }
    const ACC *by = is_sum(shape) && pass->divides ? &divisor : NULL;
    if (shape.vectors == 0) {
        vec_store(type, finish(shape, sums, 0, by), bag->out, pass->column_end - pass->column);
    }
#pragma GCC unroll 8
    for (unsigned v = 0; v < shape.vectors; v++) {
        vec_store(type, finish(shape, sums, v, by), bag->out + v * vector_bytes, LANES);
    }
}

/* The sum of a bag of at least one row. */
INLINE void pool_bag(struct shape shape, const struct pass *pass, const struct bag *bag)
{
    const unsigned rest = pass->column_end - pass->column;
    const uint8_t *columns = pass->base + (uint64_t)pass->column * element_bits(shape) / 8;
    struct sums sums = {.bias = (ACC)-0.0};
#pragma GCC unroll 8
    for (unsigned v = 0; v < BLOCK_VECTORS; v++) {
        sums.acc[v] = start_fold(shape.fold);
    }
    for (uint32_t i = 0; i < bag->count; i++) {
        if (pass->prefetch) {
            eb_bag_prefetch_step(pass->prefetch);
        }
        const struct row row = find_row(shape, pass, bag, columns, i);
        fold_row(shape, &row, rest, &sums);
    }
    store_sums(shape, pass, bag, &sums);
}

/* Columns [column, column_end), a block or less, of the pass's bags. */
static void pool_block(const struct pass *block, enum fold fold)
{
    struct pass pass = *block;
    pool_functions *functions = &block->functions[fold];
    while (pass.column < pass.column_end) {
        uint32_t columns = pass.column_end - pass.column;
        uint32_t vectors = columns / LANES;
        while (!(*functions)[vectors]) {
            vectors--;
        }
        (*functions)[vectors](&pass);
        pass.column += vectors > 0 ? vectors * LANES : columns;
        /* A row is one step, however many functions its block takes. */
        pass.prefetch = NULL;
    }
}

/* The result of an empty bag: its default row's values, or zeros. */
static void fill(const struct pass *pass, uint32_t b, uint32_t columns)
{
    const struct eb_bag_job *job = pass->job;
    uint8_t *out = job->out + b * job->out_stride_bytes;
    if (job->default_row < 0 || eb_bag_is_copied(job)) {
        eb_bag_copy_columns(job, job->default_row, pass->column, columns, out);
        return;
    }
    struct eb_bag_job filled = *job;
    filled.rows = &job->default_row;
    filled.weights = NULL;
    filled.starts = NULL;
    filled.out = out;
    struct pass values = *pass;
    values.job = &filled;
    values.bag_first = 0;
    values.bag_end = 1;
    values.column_end = pass->column + columns;
    values.divides = false;
    values.prefetch = NULL;
    pool_block(&values, FOLD_VALUE);
}

INLINE void pool_columns(struct shape shape, const struct pass *pass)
{
    const uint32_t columns =
        shape.vectors ? shape.vectors * LANES : pass->column_end - pass->column;
    for (uint32_t b = pass->bag_first; b < pass->bag_end; b++) {
        const struct bag bag = find_bag(pass, b);
        if (bag.count == 0) {
            fill(pass, b, columns);
            continue;
        }
        if (bag.count < COPY_ROWS_MIN || b == pass->part_first ||
            !repeat(pass, &bag, b, columns * pass->out_element_bytes)) {
            pool_bag(shape, pass, &bag);
        }
    }
}

static enum fold choose_fold(const struct eb_bag_job *job)
{
    switch (job->reduction) {
    case EB_REDUCTION_MAX: return FOLD_MAX;
    case EB_REDUCTION_MIN: return FOLD_MIN;
    case EB_REDUCTION_NONE: return FOLD_VALUE;
    default: return job->weights ? FOLD_WEIGHTED : FOLD_SUM;
    }
}

static bool is_divided(enum eb_reduction reduction)
{
    return reduction == EB_REDUCTION_MEAN || reduction == EB_REDUCTION_WEIGHTED_MEAN ||
           reduction == EB_REDUCTION_SQRTN;
}

/* Bag by bag, block by block: the order of bag_prefetch.h. */
static void pool_bags(struct pass *pass, const struct eb_bag_part *part, enum fold fold)
{
    for (uint32_t b = part->bag_first; b < part->bag_end; b++) {
        pass->bag_first = b;
        pass->bag_end = b + 1;
        pass->column = part->element_first;
        while (pass->column < part->element_end) {
            uint32_t columns = part->element_end - pass->column;
            columns = columns < BLOCK_ELEMENTS ? columns : BLOCK_ELEMENTS;
            pass->column_end = pass->column + columns;
            pool_block(pass, fold);
            pass->column = pass->column_end;
        }
    }
}

static void pool_part(const struct eb_bag_part *part, struct eb_bag_prefetch *prefetch,
    pool_functions functions[FOLD_COUNT])
{
    const struct eb_bag_job *job = part->job;
    const uint32_t columns = part->element_end - part->element_first;
    const enum fold fold = choose_fold(job);
    struct pass pass = {
        .job = job,
        .base = job->table->rows,
        .part_first = part->bag_first,
        .bag_first = part->bag_first,
        .bag_end = part->bag_end,
        .column = part->element_first,
        .column_end = part->element_end,
        .out_element_bytes = (uint32_t)eb_type_bytes(job->output_type),
        .divides = is_divided(job->reduction),
        .functions = functions,
        .prefetch = prefetch,
    };
    pool_columns_fn whole =
        columns <= BLOCK_ELEMENTS ? functions[fold][(columns + LANES - 1) / LANES] : NULL;
    if (columns < LANES || (whole && columns % LANES == 0)) {
        functions[fold][columns / LANES](&pass);
    } else {
        pool_bags(&pass, part, fold);
    }
}

#define DEFINE_COLUMNS(name, suffix, ...)                                                          \
    static void name##_##suffix(const struct pass *pass)                                           \
    {                                                                                              \
        pool_columns((struct shape){__VA_ARGS__}, pass);                                           \
    }

/* Sums have a function for every number of vectors, what is rare for some. */
#define DEFINE_SOME(name, storage, fold)                                                           \
    DEFINE_COLUMNS(name, 0, storage, fold, 0)                                                      \
    DEFINE_COLUMNS(name, 1, storage, fold, 1)                                                      \
    DEFINE_COLUMNS(name, 2, storage, fold, 2)                                                      \
    DEFINE_COLUMNS(name, 4, storage, fold, 4)                                                      \
    DEFINE_COLUMNS(name, 8, storage, fold, 8)
#define DEFINE_ALL(name, storage, fold)                                                            \
    DEFINE_SOME(name, storage, fold)                                                               \
    DEFINE_COLUMNS(name, 3, storage, fold, 3)                                                      \
    DEFINE_COLUMNS(name, 5, storage, fold, 5)                                                      \
    DEFINE_COLUMNS(name, 6, storage, fold, 6)                                                      \
    DEFINE_COLUMNS(name, 7, storage, fold, 7)
#define LIST_SOME(name)                                                                            \
    {                                                                                              \
        name##_0, name##_1, name##_2, NULL, name##_4, NULL, NULL, NULL, name##_8                   \
    }
#define LIST_ALL(name)                                                                             \
    {                                                                                              \
        name##_0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8   \
    }

#define DEFINE_POOL(storage, name, function)                                                       \
    DEFINE_ALL(name##_sum, storage, FOLD_SUM)                                                      \
    DEFINE_ALL(name##_weighted, storage, FOLD_WEIGHTED)                                            \
    DEFINE_SOME(name##_max, storage, FOLD_MAX)                                                     \
    DEFINE_SOME(name##_min, storage, FOLD_MIN)                                                     \
    DEFINE_SOME(name##_value, storage, FOLD_VALUE)                                                 \
    static pool_functions name##_functions[FOLD_COUNT] = {                                         \
        [FOLD_SUM] = LIST_ALL(name##_sum),                                                         \
        [FOLD_WEIGHTED] = LIST_ALL(name##_weighted),                                               \
        [FOLD_MAX] = LIST_SOME(name##_max),                                                        \
        [FOLD_MIN] = LIST_SOME(name##_min),                                                        \
        [FOLD_VALUE] = LIST_SOME(name##_value),                                                    \
    };                                                                                             \
    void function(const struct eb_bag_part *part, struct eb_bag_prefetch *prefetch)                \
    {                                                                                              \
        pool_part(part, prefetch, name##_functions);                                               \
    }
