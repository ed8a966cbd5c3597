/* Pools columns of a range of bags. Each function is compiled for one storage, one fold and one
 * number of vectors.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_copy.h"
#include "kernels/bag_sums.h"

/* Bags of fewer rows are not compared with the bag before: pooling them costs about as much. */
#define COPY_ROWS_MIN 4

struct pass;

/* Pools the first columns of a pass, as many vectors as the function is compiled for. */
typedef void (*pool_columns_fn)(const struct pass *pass);

/* Functions by number of vectors. Entry 0 is for less than one vector. NULL: a smaller one is
 * used. */
typedef const pool_columns_fn pool_functions[BLOCK_VECTORS + 1];

/* A range of bags, and columns of them. */
struct pass {
    const struct eb_bag_job *job;
    uint32_t part_first; /* the range's first bag: no bag before it has been pooled here */
    uint32_t bag_first;
    uint32_t bag_end;
    uint32_t column;
    uint32_t column_end; /* end of the block */
    uint32_t out_element_bytes;
    pool_functions *functions;        /* [FOLD_COUNT], those of the storage */
    struct eb_bag_prefetch *prefetch; /* NULL: no steps are taken */
};

/* Pools columns [column, column_end) of the pass's bags, at most a block. */
static void pool_column_block(const struct pass *block, enum fold fold)
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
        /* A row is one step, whatever number of functions its block takes. */
        pass.prefetch = NULL;
    }
}

/* Writes the result of an empty bag: its default row's values, or zeros. */
static COLD void fill_columns(const struct pass *pass, uint32_t b, uint32_t columns)
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
    pool_column_block(&values, FOLD_VALUE);
}

/* Copies these columns of the bag before if it pooled the same rows. Returns whether it did. */
static COLD bool repeat_column(const struct pass *pass, uint32_t b, uint32_t columns)
{
    const struct eb_bag_job *job = pass->job;
    size_t count = job->starts[b + 1] - job->starts[b];
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

static INLINE struct source find_column_source(struct shape shape, const struct pass *pass)
{
    const struct eb_table *table = pass->job->table;
    return (struct source){
        .columns = (const uint8_t *)table->rows +
                   (uint64_t)pass->column * eb_storage_bits(shape.storage) / 8,
        .scales = table->scales,
        .row_stride_bytes = table->row_stride_bytes,
        .scale_stride_bytes = table->scale_stride_bytes,
        .rest = pass->column_end - pass->column,
    };
}

/* Returns whether a bag is worth comparing with the one before: both have the same number of rows
 * and the same first row. */
static INLINE bool may_repeat(const int64_t *rows, uint32_t count, uint32_t count_before)
{
    return __builtin_expect(count == count_before && count >= COPY_ROWS_MIN, 1) &&
           __builtin_expect(rows[0] == rows[-(int64_t)count], 0);
}

/* Returns whether the shape need not be as fast as possible when rows are cached. */
static INLINE bool is_rare(struct shape shape)
{
    return shape.fold == FOLD_MAX || shape.fold == FOLD_MIN || shape.fold == FOLD_VALUE;
}

static INLINE bool has_single_rows(struct shape shape)
{
    return shape.fold == FOLD_VALUE || shape.fold == FOLD_SINGLE;
}

/* Returns bag b, whose rows begin at `first`. Only FOLD_VALUE jobs have no starts. FOLD_WEIGHTED
 * jobs have weights. */
static INLINE struct bag find_column_bag(
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

/* Pools the columns of the shape. `prefetch` is the pass's, or the constant NULL if it has none. */
static INLINE void pool_columns(
    struct shape shape, const struct pass *pass, struct eb_bag_prefetch *prefetch)
{
    const struct eb_bag_job *job = pass->job;
    struct source source = find_column_source(shape, pass);
    uint32_t columns = shape.vectors > 0 ? shape.vectors * LANES : source.rest;
    bool is_single = has_single_rows(shape);
    uint32_t bag_first = pass->bag_first;
    uint32_t bag_end = pass->bag_end;
    uint8_t *out = job->out + bag_first * job->out_stride_bytes +
                   (uint64_t)pass->column * pass->out_element_bytes;
    uint32_t first = shape.fold == FOLD_VALUE ? bag_first : job->starts[bag_first];
    uint32_t count_before =
        !is_single && bag_first > pass->part_first ? first - job->starts[bag_first - 1] : 0;
    for (uint32_t b = bag_first; b < bag_end; b++) {
        struct bag bag = find_column_bag(shape, job, first, b);
        if (!is_single && __builtin_expect(bag.count == 0, 0)) {
            fill_columns(pass, b, columns);
        } else if (is_single || !may_repeat(bag.rows, bag.count, count_before) ||
                   !repeat_column(pass, b, columns)) {
            struct sums sums = sum_rows(shape, &source, &bag, prefetch);
            finish_sums(shape, job, b, &sums);
            store_sums(shape, job->output_type, source.rest, &sums, out);
        }
        first += bag.count;
        count_before = bag.count;
        out += job->out_stride_bytes;
    }
}
