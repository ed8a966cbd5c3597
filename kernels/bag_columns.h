/* Pooling of floating-point and code rows, the same for every instruction set and storage: blocks
 * of columns, summed in registers. The including file first includes a header of vectors, which
 * defines VEC, LANES, BLOCK_VECTORS (how many sums stay in
 * registers: 8 or 16) and INLINE and the functions vec_set, vec_load(storage, from, count),
 * vec_add, vec_fma(a, b, c) = a * b + c rounded once, vec_divide, vec_max(x, acc) = x > acc or x
 * is NaN ? x : acc, vec_min, vec_in_order(storage, v), vec_canonical and
 * vec_store(type, v, out, count); and defines ACC (a lane: float or double), ACC_TYPE, ACC_FMA and
 * ACC_SQRT. Then DEFINE_POOL(storage, name) defines the pool function of a storage.
 *
 * Vectors run across a row, never across the rows of a bag, so every element sees the reference's
 * operations in the reference's order.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <math.h>
#include <string.h>

/* Columns of a block. */
#define BLOCK_ELEMENTS (BLOCK_VECTORS * LANES)

/* Bags of fewer rows are not compared with the one before: to pool them costs about as much. */
#define COPY_ROWS_MIN 4

/* Of functions that are called from the loops: what they need is not kept in registers for them. */
#define COLD __attribute__((cold, noinline))

enum fold {
    FOLD_SUM,
    FOLD_SINGLE, /* sums of one row each */
    FOLD_WEIGHTED,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_VALUE, /* a row itself, times its weight */
    FOLD_COUNT
};

struct pass;

/* Pools the first columns of a pass: as many vectors as the function is for. */
typedef void (*pool_columns_fn)(const struct pass *pass);

/* By number of vectors; entry 0 takes what is less than one. NULL: smaller ones serve. */
typedef const pool_columns_fn pool_functions[BLOCK_VECTORS + 1];

/* Columns of a range of bags. */
struct pass {
    const struct eb_bag_job *job;
    uint32_t part_first; /* the part's first bag: none before it has been pooled here */
    uint32_t bag_first;
    uint32_t bag_end;
    uint32_t column;
    uint32_t column_end; /* of the block */
    uint32_t out_element_bytes;
    bool divides;                     /* its sums, in the end */
    pool_functions *functions;        /* [FOLD_COUNT] of the storage */
    struct eb_bag_prefetch *prefetch; /* NULL: no steps to take */
};

/* Stand in for rows that are EB_ROW_ZERO, whatever the column. */
static const uint8_t zeros[BLOCK_ELEMENTS * sizeof(ACC)];

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
    return shape.fold == FOLD_SUM || shape.fold == FOLD_SINGLE || shape.fold == FOLD_WEIGHTED;
}

/* Bits of an element. */
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

/* For rows that are EB_ROW_ZERO: they are added, not weighted, and 1 * 0 + acc is acc + 0. */
static const ACC one = 1;
static const struct eb_row_scale no_scale = {1, 0};

INLINE struct row find_row(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i)
{
    const int64_t number = bag->rows[i];
    struct row row = {zeros, &one, (const uint8_t *)&no_scale};
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

INLINE ACC load_float(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return (ACC)value;
}

INLINE ACC load_scale(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, scale));
}

INLINE ACC load_bias(const struct row *row)
{
    return load_float(row->scale + offsetof(struct eb_row_scale, bias));
}

INLINE VEC start_fold(enum fold fold)
{
    /* Below and above every number: the first row takes their place, also an infinite one. */
    if (fold == FOLD_MAX || fold == FOLD_MIN) {
        return vec_set(fold == FOLD_MAX ? (ACC)-INFINITY : (ACC)INFINITY);
    }
    return vec_set((ACC)-0.0);
}

/* The vector x of a row, values or codes, into acc. */
INLINE VEC fold_vector(struct shape shape, const struct row *row, VEC acc, VEC x)
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

INLINE void fold_row(struct shape shape, const struct row *row, unsigned rest, struct sums *sums)
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
INLINE struct sums sum_rows(struct shape shape, const struct source *source, const struct bag *bag,
    struct eb_bag_prefetch *prefetch)
{
    struct sums sums = {.bias = (ACC)-0.0};
#pragma GCC unroll 16
    for (unsigned v = 0; v < BLOCK_VECTORS; v++) {
        sums.acc[v] = start_fold(shape.fold);
    }
    if (prefetch) {
        for (uint32_t i = 0; i < bag->count; i++) {
            eb_bag_prefetch_step(prefetch);
            const struct row row = find_row(shape, source, bag, i);
            fold_row(shape, &row, source->rest, &sums);
        }
    } else {
        for (uint32_t i = 0; i < bag->count; i++) {
            const struct row row = find_row(shape, source, bag, i);
            fold_row(shape, &row, source->rest, &sums);
        }
    }
    return sums;
}

/* By what the sum of bag b is divided, in the reference's order. */
static COLD ACC find_divisor(const struct eb_bag_job *job, uint32_t b)
{
    uint32_t count = job->starts[b + 1] - job->starts[b];
    const ACC *weights = job->weights ? (const ACC *)job->weights + job->starts[b] : NULL;
    ACC weight_sum = weights ? 0 : (ACC)count;
    ACC square_sum = weight_sum;
    for (uint32_t i = 0; weights && i < count; i++) {
        weight_sum = weight_sum + weights[i];
        square_sum = ACC_FMA(weights[i], weights[i], square_sum);
    }
    return job->reduction == EB_REDUCTION_SQRTN ? ACC_SQRT(square_sum) : weight_sum;
}

/* Sums as they are put out, but for their type. */
INLINE void finish(struct shape shape, const struct pass *pass, uint32_t b, struct sums *sums)
{
    const unsigned vectors = shape.vectors > 0 ? shape.vectors : 1;
    const bool divides = is_sum(shape) && shape.fold != FOLD_SINGLE && pass->divides;
    ACC divisor = divides ? find_divisor(pass->job, b) : 1;
#pragma GCC unroll 16
    for (unsigned v = 0; v < vectors; v++) {
        VEC sum = vec_in_order(shape.storage, sums->acc[v]);
        if (is_code(shape) && is_sum(shape)) {
            sum = vec_add(sum, vec_set(sums->bias));
        }
        if (divides) {
            sum = divisor == 0 ? vec_set(0) : vec_divide(sum, vec_set(divisor));
        }
        sums->acc[v] = vec_canonical(sum);
    }
}

/* Columns to the output type: what few ask for, kept out of the way of f32. */
static COLD void convert(enum eb_type type, const ACC *columns, unsigned count, uint8_t *out)
{
    const size_t vector_bytes = LANES * eb_type_bytes(type);
    while (count > 0) {
        unsigned some = count < LANES ? count : LANES;
        VEC v = vec_load((enum eb_storage)ACC_TYPE, (const void *)columns, some);
        vec_store(type, v, out, some);
        columns += some;
        out += vector_bytes;
        count -= some;
    }
}

INLINE void store_sums(
    struct shape shape, enum eb_type type, unsigned rest, const struct sums *sums, uint8_t *out)
{
    ACC buffer[BLOCK_ELEMENTS];
    uint8_t *to = type == ACC_TYPE ? out : (uint8_t *)buffer;
    if (shape.vectors == 0) {
        vec_store(ACC_TYPE, sums->acc[0], to, rest);
    }
#pragma GCC unroll 16
    for (unsigned v = 0; v < shape.vectors; v++) {
        vec_store(ACC_TYPE, sums->acc[v], to + v * sizeof(VEC), LANES);
    }
    if (type != ACC_TYPE) {
        convert(type, buffer, shape.vectors > 0 ? shape.vectors * LANES : rest, out);
    }
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
static COLD void fill(const struct pass *pass, uint32_t b, uint32_t columns)
{
    const struct eb_bag_job *job = pass->job;
    uint8_t *out = job->out + b * job->out_stride_bytes;
    if (job->default_row < 0 || eb_bag_is_copied(job)) {
        eb_bag_copy_columns(job, job->default_row, pass->column, columns, out);
        return;
    }
    struct eb_bag_job filled = *job;
    filled.reduction = EB_REDUCTION_NONE;
    filled.rows = &job->default_row;
    filled.weights = NULL;
    filled.starts = NULL;
    filled.out = out;
    struct pass values = *pass;
    values.job = &filled;
    values.bag_first = 0;
    values.bag_end = 1;
    values.column_end = pass->column + columns;
    values.prefetch = NULL;
    pool_block(&values, FOLD_VALUE);
}

/* Copies the result of the bag before, if that pooled the same rows, for these columns. */
static COLD bool repeat(const struct pass *pass, uint32_t b, uint32_t columns)
{
    const struct eb_bag_job *job = pass->job;
    const size_t count = job->starts[b + 1] - job->starts[b];
    const int64_t *rows = job->rows + job->starts[b];
    const ACC *weights = job->weights ? (const ACC *)job->weights + job->starts[b] : NULL;
    if (memcmp(rows, rows - count, count * sizeof rows[0]) != 0 ||
        (weights && memcmp(weights, weights - count, count * sizeof weights[0]) != 0)) {
        return false;
    }
    uint8_t *out =
        job->out + b * job->out_stride_bytes + (uint64_t)pass->column * pass->out_element_bytes;
    memcpy(out, out - job->out_stride_bytes, (size_t)columns * pass->out_element_bytes);
    for (size_t i = 0; pass->prefetch && i < count; i++) {
        eb_bag_prefetch_step(pass->prefetch);
    }
    return true;
}

INLINE struct source find_source(struct shape shape, const struct pass *pass)
{
    const struct eb_table *table = pass->job->table;
    return (struct source){
        .columns = (const uint8_t *)table->rows + (uint64_t)pass->column * element_bits(shape) / 8,
        .scales = table->scales,
        .row_stride_bytes = table->row_stride_bytes,
        .scale_stride_bytes = table->scale_stride_bytes,
        .rest = pass->column_end - pass->column,
    };
}

/* Whether a bag is worth comparing with the one before: as many rows, of which the first is the
 * same. */
INLINE bool may_repeat(const int64_t *rows, uint32_t count, uint32_t count_before)
{
    return __builtin_expect(count == count_before && count >= COPY_ROWS_MIN, 1) &&
           __builtin_expect(rows[0] == rows[-(int64_t)count], 0);
}

/* What does not need to be as fast as it can when rows are cached. */
INLINE bool is_rare(struct shape shape)
{
    return shape.fold == FOLD_MAX || shape.fold == FOLD_MIN || shape.fold == FOLD_VALUE;
}

INLINE bool has_single_rows(struct shape shape)
{
    return shape.fold == FOLD_VALUE || shape.fold == FOLD_SINGLE;
}

/* Jobs of FOLD_VALUE have no starts, others have; those of FOLD_WEIGHTED have weights. */
INLINE struct bag find_bag(
    struct shape shape, const struct eb_bag_job *job, uint32_t first, uint32_t b)
{
    struct bag bag = {
        .rows = job->rows + first,
        .count = has_single_rows(shape) ? 1 : job->starts[b + 1] - first,
    };
    if (shape.fold == FOLD_WEIGHTED || (shape.fold == FOLD_VALUE && job->weights)) {
        bag.weights = (const ACC *)job->weights + first;
    }
    return bag;
}

/* `prefetch` is the pass's, as a constant where there is none. */
INLINE void pool_columns(
    struct shape shape, const struct pass *pass, struct eb_bag_prefetch *prefetch)
{
    const struct eb_bag_job job = *pass->job;
    const struct source source = find_source(shape, pass);
    const uint32_t columns = shape.vectors > 0 ? shape.vectors * LANES : source.rest;
    const bool is_single = has_single_rows(shape);
    const uint32_t bag_first = pass->bag_first;
    const uint32_t bag_end = pass->bag_end;
    uint8_t *out = job.out + bag_first * job.out_stride_bytes +
                   (uint64_t)pass->column * pass->out_element_bytes;
    uint32_t first = shape.fold == FOLD_VALUE ? bag_first : job.starts[bag_first];
    uint32_t count_before =
        !is_single && bag_first > pass->part_first ? first - job.starts[bag_first - 1] : 0;
    for (uint32_t b = bag_first; b < bag_end; b++) {
        const struct bag bag = find_bag(shape, &job, first, b);
        if (!is_single && __builtin_expect(bag.count == 0, 0)) {
            fill(pass, b, columns);
        } else if (is_single || !may_repeat(bag.rows, bag.count, count_before) ||
                   !repeat(pass, b, columns)) {
            struct sums sums = sum_rows(shape, &source, &bag, prefetch);
            finish(shape, pass, b, &sums);
            store_sums(shape, job.output_type, source.rest, &sums, out);
        }
        first += bag.count;
        count_before = bag.count;
        out += job.out_stride_bytes;
    }
}

static bool has_one_row_each(const struct eb_bag_part *part)
{
    const uint32_t *starts = part->job->starts;
    uint32_t b = part->bag_first;
    while (b < part->bag_end && starts[b + 1] - starts[b] == 1) {
        b++;
    }
    return b == part->bag_end;
}

static enum fold choose_fold(const struct eb_bag_part *part)
{
    switch (part->job->reduction) {
    case EB_REDUCTION_MAX: return FOLD_MAX;
    case EB_REDUCTION_MIN: return FOLD_MIN;
    case EB_REDUCTION_NONE: return FOLD_VALUE;
    case EB_REDUCTION_SUM:
        if (!part->job->weights && has_one_row_each(part)) {
            return FOLD_SINGLE;
        }
        break;
    default: break;
    }
    return part->job->weights ? FOLD_WEIGHTED : FOLD_SUM;
}

/* Group by group, block by block: the order of bag_prefetch.h. */
static void pool_groups(struct pass *pass, const struct eb_bag_part *part, enum fold fold)
{
    pass->bag_end = part->bag_first;
    while (pass->bag_end < part->bag_end) {
        pass->bag_first = pass->bag_end;
        pass->bag_end = eb_bag_group_end(part->job, pass->bag_first, part->bag_end);
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
    const enum fold fold = choose_fold(part);
    struct pass pass = {
        .job = job,
        .part_first = part->bag_first,
        .bag_first = part->bag_first,
        .bag_end = part->bag_end,
        .column = part->element_first,
        .column_end = part->element_end,
        .out_element_bytes = (uint32_t)eb_type_bytes(job->output_type),
        .divides = job->reduction != EB_REDUCTION_SUM,
        .functions = functions,
        .prefetch = prefetch,
    };
    const bool is_one_function =
        columns < LANES ||
        (columns % LANES == 0 && columns <= BLOCK_ELEMENTS && functions[fold][columns / LANES]);
    if (is_one_function) {
        functions[fold][columns / LANES](&pass);
    } else {
        pool_groups(&pass, part, fold);
    }
}

#define DEFINE_COLUMNS(name, storage, fold, vectors)                                               \
    static void name##_##vectors(const struct pass *pass)                                          \
    {                                                                                              \
        const struct shape shape = {storage, fold, vectors};                                       \
        if (!pass->prefetch && !is_rare(shape)) {                                                  \
            pool_columns(shape, pass, NULL);                                                       \
        } else {                                                                                   \
            pool_columns(shape, pass, pass->prefetch);                                             \
        }                                                                                          \
    }

/* A whole block of sums at a time where registers allow more than eight vectors. */
#if BLOCK_VECTORS == 16
#define DEFINE_BLOCK(name, storage, fold) DEFINE_COLUMNS(name, storage, fold, 16)
#define LIST_BLOCK(name) [16] = name##_16,
#else
#define DEFINE_BLOCK(name, storage, fold)
#define LIST_BLOCK(name)
#endif

/* Sums have functions for most numbers of vectors, what is rare for few. */
#define DEFINE_FEW(name, storage, fold)                                                            \
    DEFINE_COLUMNS(name, storage, fold, 0)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 1)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 2)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 4)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 8)
#define DEFINE_MOST(name, storage, fold)                                                           \
    DEFINE_FEW(name, storage, fold)                                                                \
    DEFINE_COLUMNS(name, storage, fold, 3)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 6)                                                         \
    DEFINE_BLOCK(name, storage, fold)
#define LIST_FEW(name)                                                                             \
    [0] = name##_0, [1] = name##_1, [2] = name##_2, [4] = name##_4, [8] = name##_8
#define LIST_MOST(name) LIST_BLOCK(name) LIST_FEW(name), [3] = name##_3, [6] = name##_6

#define DEFINE_POOL(storage, name, function)                                                       \
    DEFINE_MOST(name##_sum, storage, FOLD_SUM)                                                     \
    DEFINE_MOST(name##_single, storage, FOLD_SINGLE)                                               \
    DEFINE_MOST(name##_weighted, storage, FOLD_WEIGHTED)                                           \
    DEFINE_FEW(name##_max, storage, FOLD_MAX)                                                      \
    DEFINE_FEW(name##_min, storage, FOLD_MIN)                                                      \
    DEFINE_FEW(name##_value, storage, FOLD_VALUE)                                                  \
    static pool_functions name##_functions[FOLD_COUNT] = {                                         \
        [FOLD_SUM] = {LIST_MOST(name##_sum)},                                                      \
        [FOLD_SINGLE] = {LIST_MOST(name##_single)},                                                \
        [FOLD_WEIGHTED] = {LIST_MOST(name##_weighted)},                                            \
        [FOLD_MAX] = {LIST_FEW(name##_max)},                                                       \
        [FOLD_MIN] = {LIST_FEW(name##_min)},                                                       \
        [FOLD_VALUE] = {LIST_FEW(name##_value)},                                                   \
    };                                                                                             \
    void function(const struct eb_bag_part *part, struct eb_bag_prefetch *prefetch)                \
    {                                                                                              \
        pool_part(part, prefetch, name##_functions);                                               \
    }
