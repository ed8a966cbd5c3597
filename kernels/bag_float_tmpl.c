/* Pools rows of floats and of codes, the same for every instruction set and both accumulators (f32
 * and f64). A range's bags are pooled in groups and blocks of columns. Each function is compiled
 * for one storage, one fold and one number of vectors of columns, whose sums stay in registers.
 * Vectors run across a row, never across the rows of a bag, so every element gets the reference's
 * operations in the reference's order.
 *
 * A template: the including file first includes a header of vectors, which defines VEC, LANES,
 * BLOCK_VECTORS (how many sums stay in registers: 8 or 16), INLINE and the functions vec_set,
 * vec_load(storage, from, count), vec_add, vec_fma(a, b, c) = a * b + c rounded once, vec_divide,
 * vec_max(x, acc) = x > acc or x is NaN ? x : acc, vec_min, vec_in_order(storage, v), vec_nans,
 * vec_canonical and vec_store(type, v, out, count). It defines ACC (a lane: float or double),
 * ACC_TYPE, ACC_FMA, ACC_SQRT and ACC_ZERO_ROW_WEIGHT. Then DEFINE_POOL(storage, name, function)
 * defines the pool function of a storage; the names of its components begin with `name`. */
#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The operation on the rows of a bag. */
enum fold {
    FOLD_SUM,
    FOLD_SINGLE, /* sum of bags of one row each */
    FOLD_WEIGHTED,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_VALUE, /* the row itself, times its weight */
    FOLD_COUNT
};

/* The constants of a compiled function. */
struct shape {
    enum eb_storage storage;
    enum fold fold;
    unsigned vectors; /* number of vectors of columns; 0: fewer columns than a vector has */
};

static INLINE bool is_code(struct shape shape)
{
    return shape.storage == EB_STORAGE_INT8 || shape.storage == EB_STORAGE_INT4 ||
           shape.storage == EB_STORAGE_INT2;
}

static INLINE bool is_sum(struct shape shape)
{
    return shape.fold == FOLD_SUM || shape.fold == FOLD_SINGLE || shape.fold == FOLD_WEIGHTED;
}

/* Count of a block's columns. */
#define BLOCK_ELEMENTS (BLOCK_VECTORS * LANES)

static_assert(BLOCK_ELEMENTS * sizeof(ACC) <= EB_ZERO_ROW_BYTES, "a block of a row of zeros");

/* One bag. */
struct bag {
    const int64_t *rows; /* [count] */
    const ACC *weights;  /* parallel to rows; NULL: no weights */
    uint32_t count;
};

/* The source of a pass's values: the same for every bag. */
struct source {
    const uint8_t *columns; /* the pass's columns in row 0 */
    const uint8_t *scales;
    uint64_t row_stride_bytes;
    uint64_t scale_stride_bytes;
    unsigned rest; /* count of columns if they do not fill a vector */
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

/* The sums of a bag that is being pooled. */
struct sums {
    VEC acc[BLOCK_VECTORS];
    ACC bias; /* sum of the biases, if codes are summed */
};

static INLINE VEC start_fold(enum fold fold)
{
    /* MAX starts below all numbers, MIN above them, so that the first row replaces the start value,
     * or is equal to it. */
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
    bool has_one_more; /* whether there is one cache line more than count_lines returns */
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

/* Returns whether sum_lean can prefetch for the span, as for most spans: the far cursor prefetches
 * the first cache line of a row or nothing, and the near cursor prefetches as many cache lines as
 * count_lines returns, or one more. */
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
 * memory traffic a processor has in flight: with 80 more instructions per row, 128 columns of 4-bit
 * codes lose a fifth of their rate. */
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

/* Keeps a function out of the loops that call it, so that the function's variables take no
 * registers from those loops. */
#define COLD __attribute__((cold, noinline))

/* Returns the divisor of bag b's sum, computed in the reference's order. */
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

/* Turns accumulated sums into the bag's values: puts the columns in order, adds the bias of codes,
 * divides if the reduction is a mean or SQRTN, and makes all NaNs the same. Does not convert the
 * values to the output type. */
static INLINE void finish_sums(
    struct shape shape, const struct eb_bag_job *job, uint32_t b, struct sums *sums)
{
    unsigned vectors = shape.vectors > 0 ? shape.vectors : 1;
    bool divides = is_sum(shape) && shape.fold != FOLD_SINGLE && job->reduction != EB_REDUCTION_SUM;
    ACC divisor = divides ? find_divisor(job, b) : 1;
#pragma GCC unroll 16
    for (unsigned v = 0; v < vectors; v++) {
        VEC sum = vec_in_order(shape.storage, sums->acc[v]);
        if (is_code(shape) && is_sum(shape)) {
            sum = vec_add(sum, vec_set(sums->bias));
        }
        if (divides) {
            sum = divisor == 0 ? vec_set(0) : vec_divide(sum, vec_set(divisor));
        }
        sums->acc[v] = sum;
    }
    unsigned nans = 0;
#pragma GCC unroll 8
    for (unsigned v = 0; v < vectors; v += 2) {
        nans |= vec_nans(sums->acc[v], sums->acc[v + 1 < vectors ? v + 1 : v]);
    }
    if (__builtin_expect(nans != 0, 0)) {
#pragma GCC unroll 16
        for (unsigned v = 0; v < vectors; v++) {
            sums->acc[v] = vec_canonical(sums->acc[v]);
        }
    }
}

/* Converts columns to the output type. Few requests need this, so it is kept out of the code for
 * f32. */
static COLD void convert(enum eb_type type, const ACC *columns, unsigned count, uint8_t *out)
{
    size_t vector_bytes = LANES * eb_type_bytes(type);
    while (count > 0) {
        unsigned some = count < LANES ? count : LANES;
        VEC v = vec_load((enum eb_storage)ACC_TYPE, (const void *)columns, some);
        vec_store(type, v, out, some);
        columns += some;
        out += vector_bytes;
        count -= some;
    }
}

static INLINE void store_sums(
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

/* Bags of fewer rows are not compared with the bag before, because pooling them costs about as much
 * as comparing. */
#define COPY_ROWS_MIN 4

struct pass;

/* Pools the first columns of a pass, as many vectors as the function is compiled for. */
typedef void (*pool_columns_fn)(const struct pass *pass);

/* Functions by number of vectors. Entry 0 is for less than one vector. NULL: the function for the
 * next smaller number is used. */
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
    struct eb_bag_prefetch *prefetch; /* NULL: nothing is prefetched */
};

/* Pools columns [column, column_end) of the pass's bags. They are at most one block. */
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
        /* A row is one prefetch step, even if several functions pool the columns of its block. */
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

/* If the bag before pooled the same rows, copies these columns of its result. Returns whether the
 * rows were the same. */
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

/* Pools the columns of the shape. `prefetch` is the pass's, or the constant NULL if the pass has
 * none. */
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

/* Returns whether every bag of the range has one row. Has no branch per bag, so that compilers
 * vectorize the loop. */
static bool has_one_row_each(const struct eb_bag_range *range)
{
    if (eb_bag_range_rows(range) != range->bag_end - range->bag_first) {
        return false;
    }
    const uint32_t *starts = range->job->starts;
    uint32_t others = 0;
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        others |= starts[b + 1] - starts[b] - 1;
    }
    return others == 0;
}

static enum fold choose_float_fold(const struct eb_bag_range *range)
{
    switch (range->job->reduction) {
    case EB_REDUCTION_MAX: return FOLD_MAX;
    case EB_REDUCTION_MIN: return FOLD_MIN;
    case EB_REDUCTION_NONE: return FOLD_VALUE;
    case EB_REDUCTION_SUM:
        if (!range->job->weights && has_one_row_each(range)) {
            return FOLD_SINGLE;
        }
        break;
    default: break;
    }
    return range->job->weights ? FOLD_WEIGHTED : FOLD_SUM;
}

/* Pools group by group, block by block: the order of bag_prefetch.h. */
static void pool_float_groups(struct pass *pass, const struct eb_bag_range *range, enum fold fold)
{
    pass->bag_end = range->bag_first;
    while (pass->bag_end < range->bag_end) {
        pass->bag_first = pass->bag_end;
        pass->bag_end = eb_bag_group_end(range->job, pass->bag_first, range->bag_end);
        pass->column = range->element_first;
        while (pass->column < range->element_end) {
            uint32_t columns = range->element_end - pass->column;
            columns = columns < BLOCK_ELEMENTS ? columns : BLOCK_ELEMENTS;
            pass->column_end = pass->column + columns;
            pool_column_block(pass, fold);
            pass->column = pass->column_end;
        }
    }
}

static void pool_float_tile(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch,
    pool_functions functions[FOLD_COUNT])
{
    const struct eb_bag_job *job = range->job;
    uint32_t columns = range->element_end - range->element_first;
    assert(!prefetch || prefetch->block_elements[job->table->storage] == BLOCK_ELEMENTS);
    enum fold fold = choose_float_fold(range);
    struct pass pass = {
        .job = job,
        .part_first = range->bag_first,
        .bag_first = range->bag_first,
        .bag_end = range->bag_end,
        .column = range->element_first,
        .column_end = range->element_end,
        .out_element_bytes = (uint32_t)eb_type_bytes(job->output_type),
        .functions = functions,
        .prefetch = prefetch,
    };
    bool is_one_function = columns < LANES || (columns % LANES == 0 && columns <= BLOCK_ELEMENTS &&
                                                  functions[fold][columns / LANES]);
    if (is_one_function) {
        functions[fold][columns / LANES](&pass);
    } else {
        pool_float_groups(&pass, range, fold);
    }
}

#define DEFINE_COLUMNS(name, storage, fold, vectors)                                               \
    static void name##_##vectors(const struct pass *pass)                                          \
    {                                                                                              \
        struct shape shape = {storage, fold, vectors};                                             \
        if (!pass->prefetch && !is_rare(shape)) {                                                  \
            pool_columns(shape, pass, NULL);                                                       \
        } else {                                                                                   \
            pool_columns(shape, pass, pass->prefetch);                                             \
        }                                                                                          \
    }

/* For instruction sets whose registers hold more than eight vectors of sums: adds the functions
 * that pool a whole block. */
#if BLOCK_VECTORS == 16
#define DEFINE_BLOCK(name, storage, fold) DEFINE_COLUMNS(name, storage, fold, 16)
#define LIST_BLOCK(name) [16] = name##_16,
#else
#define DEFINE_BLOCK(name, storage, fold)
#define LIST_BLOCK(name)
#endif

/* Sums have functions for most numbers of vectors, rare folds for a few. */
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
    void function(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)              \
    {                                                                                              \
        pool_float_tile(range, prefetch, name##_functions);                                        \
    }
