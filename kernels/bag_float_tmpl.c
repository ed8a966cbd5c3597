/* Pools rows of floats and of codes, the same for every instruction set and both accumulators (f32
 * and f64). Each function is compiled for one storage, one fold, one number of vectors of columns
 * and one way of prefetching. If one function has all columns of a row, it pools the range bag by
 * bag; otherwise several functions pool one group of bags after another. Sums stay in registers: a
 * function of many vectors passes over a bag's rows several times. Vectors run across a row, never
 * across the rows of a bag, so every element gets the reference's operations in the reference's
 * order.
 *
 * A template: the including file first includes a header of vectors, which defines VEC, LANES,
 * PASS_VECTORS (how many sums stay in registers: 8 or 16), PASS_VECTORS_IN_PLACE (the same for sums
 * of rows that an instruction adds from memory), INLINE and the functions vec_set,
 * vec_load(storage, from, count), vec_add, vec_fma(a, b, c) = a * b + c rounded once, vec_divide,
 * vec_max(x, acc) = x > acc or x is NaN ? x : acc, vec_min, vec_in_order(storage, v), VEC_NANS and
 * vec_nans, vec_nans_or, vec_nans_any, vec_canonical and vec_store(type, v, out, count). It defines
 * ACC (a lane: float or double), ACC_TYPE, ACC_FMA, ACC_SQRT and ACC_ZERO_ROW_WEIGHT. Then
 * DEFINE_POOL(storage, name, function) or DEFINE_RARE_POOL defines the pool function of a storage;
 * the names of its components begin with `name`. */
#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The operation on the rows of a bag. */
enum fold {
    FOLD_SUM,    /* the sum itself, in the type of plain_type */
    FOLD_MEAN,   /* the sum, divided, or in another type, or both */
    FOLD_SINGLE, /* sum of bags of one row each */
    FOLD_WEIGHTED,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_VALUE, /* the row itself, times its weight */
    FOLD_COUNT
};

/* The way in which a function prefetches while it pools. */
enum form {
    FORM_NONE, /* prefetches nothing */
    FORM_L1,   /* the cache lines of a row ahead, into L1 */
    FORM_L2,   /* the cache lines of a row ahead, and the first of a row further ahead, into L2 */
    FORM_ANY,  /* follows any schedule, and pools any rows */
    FORM_COUNT
};

/* The constants of a compiled function. */
struct shape {
    enum eb_storage storage;
    enum fold fold;
    unsigned vectors; /* number of vectors of columns; 0: fewer columns than a vector has */
    enum form form;
};

static INLINE bool is_code(struct shape shape)
{
    return shape.storage == EB_STORAGE_INT8 || shape.storage == EB_STORAGE_INT4 ||
           shape.storage == EB_STORAGE_INT2;
}

/* Returns whether the function is specialised for a schedule. */
static INLINE bool is_ahead(struct shape shape)
{
    return shape.form != FORM_NONE && shape.form != FORM_ANY;
}

static INLINE bool is_sum(struct shape shape)
{
    return shape.fold == FOLD_SUM || shape.fold == FOLD_MEAN || shape.fold == FOLD_SINGLE ||
           shape.fold == FOLD_WEIGHTED;
}

/* Most vectors of columns that a function pools. The sums of pass_vectors of them stay in
 * registers, so a function that pools more passes over the rows of a bag several times. */
#define VECTORS_MAX 32

static_assert(PASS_VECTORS_IN_PLACE >= PASS_VECTORS, "all sums of a pass");
static_assert(PASS_VECTORS * sizeof(VEC) <= EB_ZERO_ROW_BYTES, "a block of a row of zeros");

/* One bag. */
struct bag {
    const eb_bag_row *rows; /* [count] */
    const ACC *weights;     /* parallel to rows; NULL: no weights */
    uint32_t count;
    uint32_t ahead_count;   /* the first rows, for which a row ahead is to be prefetched */
    const eb_bag_row *near; /* [ahead_count] that row */
};

/* The source of a function's values: the same for every bag. */
struct source {
    const uint8_t *columns; /* the function's columns in row 0 */
    const uint8_t *scales;
    uint64_t row_stride_bytes;
    uint64_t scale_stride_bytes; /* FORM_ANY only; otherwise row_stride_bytes */
    uint32_t near_rows;          /* FORM_L1 and FORM_L2 only */
    uint32_t far_rows;           /* FORM_L2 only */
    const eb_bag_row *rows_last; /* FORM_L2 only: the last of the range */
    const struct eb_table *table;
    const struct eb_bag_ahead *ahead; /* NULL: nothing is prefetched */
    struct eb_bag_lines lines;        /* FORM_ANY with `ahead` only */
    unsigned rest;                    /* count of columns if they do not fill a vector */
};

/* A row of a bag: its columns and their factors. Factors are addresses, because making a vector of
 * equal values from memory is cheaper than from a register. */
struct row {
    const uint8_t *columns;
    const ACC *weight;
    const uint8_t *scale; /* codes only: an eb_row_scale at any alignment */
    uintptr_t ahead;      /* the columns of the row to prefetch meanwhile, if there is one */
};

static INLINE const ACC *find_weight(struct shape shape, const struct bag *bag, uint32_t i)
{
    bool is_weighted = shape.fold == FOLD_WEIGHTED || (shape.fold == FOLD_VALUE && bag->weights);
    return is_weighted ? &bag->weights[i] : &ACC_ZERO_ROW_WEIGHT;
}

/* Finds a row of any table. */
static INLINE struct row find_any_row(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i)
{
    int64_t number = bag->rows[i];
    struct row row = {
        .columns = eb_zero_row,
        .weight = &ACC_ZERO_ROW_WEIGHT,
        .scale = (const uint8_t *)&eb_zero_row_scale,
    };
    if (__builtin_expect(number < 0, 0)) {
        return row;
    }
    row.columns = source->columns + (uint64_t)number * source->row_stride_bytes;
    row.weight = find_weight(shape, bag, i);
    if (is_code(shape)) {
        row.scale = source->scales + (uint64_t)number * source->scale_stride_bytes;
    }
    return row;
}

/* Finds a row. Without FORM_ANY, it is no row of zeros, and its scale has the row's stride. */
static INLINE struct row find_float_row(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i)
{
    if (shape.form == FORM_ANY) {
        return find_any_row(shape, source, bag, i);
    }
    uint64_t offset = (uint64_t)bag->rows[i] * source->row_stride_bytes;
    return (struct row){
        .columns = source->columns + offset,
        .weight = find_weight(shape, bag, i),
        .scale = is_code(shape) ? source->scales + offset : NULL,
    };
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

/* Returns the most vectors that one pass over a bag's rows sums up. */
static INLINE unsigned pass_vectors(struct shape shape)
{
    bool is_unweighted = shape.fold == FOLD_SUM || shape.fold == FOLD_MEAN;
    return shape.storage == (enum eb_storage)ACC_TYPE && is_unweighted ? PASS_VECTORS_IN_PLACE
                                                                       : PASS_VECTORS;
}

/* The sums of a bag that is being pooled. */
struct sums {
    VEC acc[PASS_VECTORS_IN_PLACE];
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
    case FOLD_MEAN:
    case FOLD_SINGLE: return vec_add(acc, x);
    case FOLD_MAX: return vec_max(x, acc);
    case FOLD_MIN: return vec_min(x, acc);
    default: return vec_fma(vec_set(*row->weight), x, acc);
    }
}

/* Returns the number of vectors that pass `p` over a bag's rows sums up. */
static INLINE unsigned count_vectors(struct shape shape, unsigned p)
{
    unsigned left = shape.vectors - p * pass_vectors(shape);
    return left < pass_vectors(shape) ? left : pass_vectors(shape);
}

static INLINE size_t vector_bytes_of(struct shape shape)
{
    return LANES * eb_storage_bits(shape.storage) / 8;
}

/* Returns the number of cache lines that a row of the shape is taken to touch. The scale of a row
 * of codes lies before it, so the row begins anywhere in its first line. */
static INLINE uint32_t count_lines(struct shape shape)
{
    size_t bytes = shape.vectors * vector_bytes_of(shape);
    return (uint32_t)((bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES) + is_code(shape);
}

/* Returns the offset in a row of the byte by which its n-th cache line is prefetched. */
static INLINE ptrdiff_t line_offset(struct shape shape, uint32_t n)
{
    if (n + 1 == count_lines(shape)) {
        return (ptrdiff_t)(shape.vectors * vector_bytes_of(shape)) - 1;
    }
    ptrdiff_t scale_bytes = is_code(shape) ? sizeof(struct eb_row_scale) : 0;
    return (ptrdiff_t)n * EB_LINE_BYTES - scale_bytes;
}

/* Prefetches those of a row's cache lines that belong to vector v of the shape. Between the
 * vectors, prefetches cost least: all lines at a row's first vector take some 3 % longer for 512
 * bytes from L2 (Zen 3). */
static INLINE void prefetch_lines(struct shape shape, uintptr_t row, unsigned v)
{
    uint32_t line = v * count_lines(shape) / shape.vectors;
    uint32_t line_end = (v + 1) * count_lines(shape) / shape.vectors;
#pragma GCC unroll 4
    for (; line < line_end; line++) {
        eb_bag_prefetch_line(row + (uintptr_t)line_offset(shape, line), shape.form == FORM_L1);
    }
}

/* Folds the vectors of pass `p`. Biases are summed up by the first pass. Prefetches the row `ahead`
 * if `has_ahead`. */
static INLINE void fold_row(struct shape shape, const struct row *row, unsigned rest, unsigned p,
    struct sums *sums, const bool has_ahead)
{
    if (shape.vectors == 0) {
        VEC x = vec_load(shape.storage, row->columns, rest);
        sums->acc[0] = fold_vector(shape, row, sums->acc[0], x);
    }
    const uint8_t *columns = row->columns + p * pass_vectors(shape) * vector_bytes_of(shape);
#pragma GCC unroll 16
    for (unsigned v = 0; v < count_vectors(shape, p); v++) {
        if (has_ahead) {
            prefetch_lines(shape, row->ahead, p * pass_vectors(shape) + v);
        }
        VEC x = vec_load(shape.storage, columns + v * vector_bytes_of(shape), LANES);
        sums->acc[v] = fold_vector(shape, row, sums->acc[v], x);
    }
    if (p > 0) {
        return;
    }
    if (is_code(shape) && shape.fold == FOLD_WEIGHTED) {
        sums->bias = ACC_FMA(*row->weight, load_bias(row), sums->bias);
    } else if (is_code(shape) && is_sum(shape)) {
        sums->bias = sums->bias + load_bias(row);
    }
}

/* Makes the compiler hold a value in a register for the next loop, rather than read it again from
 * its source. */
#define KEEP_AT_HAND(value) __asm__("" : "+r"(value))

static INLINE unsigned count_passes(struct shape shape)
{
    return shape.vectors == 0 ? 1 : (shape.vectors + pass_vectors(shape) - 1) / pass_vectors(shape);
}

/* Returns the row to prefetch while row i of a bag is pooled. In the first pass over a bag, also
 * prefetches the first cache line of the row at the far distance. */
static INLINE uintptr_t find_ahead(
    struct shape shape, const struct source *source, const struct bag *bag, uint32_t i, unsigned p)
{
    if (shape.form == FORM_L2 && p == 0) {
        const eb_bag_row *far = bag->rows + i + source->far_rows;
        far = far < source->rows_last ? far : source->rows_last;
        uintptr_t row = (uintptr_t)source->columns + (uint64_t)*far * source->row_stride_bytes;
        eb_bag_prefetch_line(row + (uintptr_t)line_offset(shape, 0), false);
    }
    return (uintptr_t)source->columns + (uint64_t)bag->near[i] * source->row_stride_bytes;
}

/* Sums up columns of a bag of at least one row, those of pass `p`. */
static INLINE void sum_rows(struct shape shape, const struct source *of_function,
    const struct bag *of_job, unsigned p, struct sums *sums)
{
    struct source source = *of_function;
    struct bag bag = *of_job;
    KEEP_AT_HAND(source.columns);
    KEEP_AT_HAND(source.row_stride_bytes);
#pragma GCC unroll 16
    for (unsigned v = 0; v < pass_vectors(shape); v++) {
        sums->acc[v] = start_fold(shape.fold);
    }
    uint32_t i = 0;
    if (is_ahead(shape)) {
        for (; i < bag.ahead_count; i++) {
            struct row row = find_float_row(shape, &source, &bag, i);
            row.ahead = find_ahead(shape, &source, &bag, i, p);
            fold_row(shape, &row, source.rest, p, sums, true);
        }
    }
    if (shape.form == FORM_ANY && source.ahead) {
        for (; i < bag.count; i++) {
            eb_bag_ahead_step(source.ahead, source.table, &source.lines, bag.rows + i);
            struct row row = find_float_row(shape, &source, &bag, i);
            fold_row(shape, &row, source.rest, p, sums, false);
        }
    }
    for (; i < bag.count; i++) {
        struct row row = find_float_row(shape, &source, &bag, i);
        fold_row(shape, &row, source.rest, p, sums, false);
    }
}

/* Keeps a function out of the loops that call it, so that the function's variables take no
 * registers from those loops. */
#define COLD __attribute__((cold, noinline))

/* Returns the divisor of bag b's sum: the job's, or the one computed in the reference's order. */
static COLD ACC find_divisor(const struct eb_bag_job *job, uint32_t b)
{
    if (job->divisors) {
        return ((const ACC *)job->divisors)[b];
    }
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

/* Turns accumulated sums of pass `p` into the bag's values: puts the columns in order, adds the
 * bias of codes, divides if the reduction is a mean or SQRTN, and makes all NaNs the same. Does not
 * convert the values to the output type. */
static INLINE void finish_sums(
    struct shape shape, const struct eb_bag_job *job, uint32_t b, unsigned p, struct sums *sums)
{
    unsigned vectors = shape.vectors > 0 ? count_vectors(shape, p) : 1;
    bool may_divide = shape.fold == FOLD_MEAN || shape.fold == FOLD_WEIGHTED;
    bool divides = may_divide && job->reduction != EB_REDUCTION_SUM;
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
    VEC_NANS nans = vec_nans(sums->acc[0], sums->acc[1 < vectors ? 1 : 0]);
#pragma GCC unroll 16
    for (unsigned v = 2; v < vectors; v += 2) {
        VEC_NANS more = vec_nans(sums->acc[v], sums->acc[v + 1 < vectors ? v + 1 : v]);
        nans = vec_nans_or(nans, more);
    }
    if (__builtin_expect(vec_nans_any(nans), 0)) {
#pragma GCC unroll 16
        for (unsigned v = 0; v < vectors; v++) {
            sums->acc[v] = vec_canonical(sums->acc[v]);
        }
    }
}

/* Returns the type in which FOLD_SUM writes its results: the storage's own type if it is f16 or
 * bf16, otherwise the accumulator's. */
static INLINE enum eb_type plain_type(struct shape shape)
{
    bool is_half = shape.storage == EB_STORAGE_F16 || shape.storage == EB_STORAGE_BF16;
    return is_half ? (enum eb_type)shape.storage : ACC_TYPE;
}

static INLINE void store_vectors(struct shape shape, enum eb_type type, unsigned rest, unsigned p,
    const struct sums *sums, uint8_t *out)
{
    size_t vector_bytes = LANES * eb_type_bytes(type);
    uint8_t *to = out + p * pass_vectors(shape) * vector_bytes;
    if (shape.vectors == 0) {
        vec_store(type, sums->acc[0], to, rest);
        return;
    }
#pragma GCC unroll 16
    for (unsigned v = 0; v < count_vectors(shape, p); v++) {
        vec_store(type, sums->acc[v], to + v * vector_bytes, LANES);
    }
}

/* Stores the sums of pass `p`, converted to the output type, which is constant in FOLD_SUM. */
static INLINE void store_sums(struct shape shape, enum eb_type type, unsigned rest, unsigned p,
    const struct sums *sums, uint8_t *out)
{
    if (type == ACC_TYPE) {
        store_vectors(shape, ACC_TYPE, rest, p, sums, out);
    } else if (type == EB_F32) {
        store_vectors(shape, EB_F32, rest, p, sums, out);
    } else if (type == EB_F16) {
        store_vectors(shape, EB_F16, rest, p, sums, out);
    } else {
        store_vectors(shape, EB_BF16, rest, p, sums, out);
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
typedef const pool_columns_fn pool_functions[VECTORS_MAX + 1];

struct functions;

/* A range of bags, and columns of them. */
struct pass {
    const struct eb_bag_job *job;
    uint32_t part_first; /* the range's first bag: no bag before it has been pooled here */
    uint32_t bag_first;
    uint32_t bag_end;
    uint32_t column;
    uint32_t column_end; /* end of the columns that are pooled before other bags are */
    const struct functions *functions; /* those of the storage */
    const struct eb_bag_ahead *ahead;  /* NULL: nothing is prefetched */
};

/* The functions of a storage. */
struct functions {
    pool_functions of_form[FORM_COUNT][FOLD_COUNT];
};

/* Pools columns [column, column_end) of the pass's bags, by as few functions as possible. */
static void pool_column_block(const struct pass *block, enum form form, enum fold fold)
{
    struct pass pass = *block;
    pool_functions *functions = &block->functions->of_form[form][fold];
    while (pass.column < pass.column_end) {
        uint32_t columns = pass.column_end - pass.column;
        uint32_t vectors = columns / LANES < VECTORS_MAX ? columns / LANES : VECTORS_MAX;
        while (!(*functions)[vectors]) {
            if (vectors == 0) {
                functions = &block->functions->of_form[FORM_ANY][fold];
                vectors = columns / LANES < VECTORS_MAX ? columns / LANES : VECTORS_MAX;
            } else {
                vectors--;
            }
        }
        (*functions)[vectors](&pass);
        pass.column += vectors > 0 ? vectors * LANES : columns;
    }
}

/* Writes the result of an empty bag: the values of its default row or default vector, or zeros. */
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
    values.ahead = NULL;
    pool_column_block(&values, FORM_ANY, FOLD_VALUE);
}

/* Returns where the pass's columns of bag b are written. */
static INLINE uint8_t *find_out(const struct pass *pass, uint32_t b)
{
    const struct eb_bag_job *job = pass->job;
    uint8_t *out = job->out + b * job->out_stride_bytes;
    return pass->column == 0 ? out : out + pass->column * eb_type_bytes(job->output_type);
}

/* If the bag before pooled the same rows, copies these columns of its result. Returns whether the
 * rows were the same. Bags with divisors of their own are not compared. */
static COLD bool repeat_column(const struct pass *pass, uint32_t b, uint32_t columns)
{
    const struct eb_bag_job *job = pass->job;
    size_t count = job->starts[b + 1] - job->starts[b];
    const eb_bag_row *rows = job->rows + job->starts[b];
    const ACC *weights = job->weights ? (const ACC *)job->weights + job->starts[b] : NULL;
    if (job->divisors || memcmp(rows, rows - count, count * sizeof rows[0]) != 0 ||
        (weights && memcmp(weights, weights - count, count * sizeof weights[0]) != 0)) {
        return false;
    }
    uint8_t *out = find_out(pass, b);
    memcpy(out, out - job->out_stride_bytes, columns * eb_type_bytes(job->output_type));
    return true;
}

static INLINE struct source find_column_source(struct shape shape, const struct pass *pass)
{
    const struct eb_table *table = pass->job->table;
    struct source source = {
        .columns = (const uint8_t *)table->rows +
                   (uint64_t)pass->column * eb_storage_bits(shape.storage) / 8,
        .scales = table->scales,
        .row_stride_bytes = table->row_stride_bytes,
        .scale_stride_bytes = table->scale_stride_bytes,
        .table = table,
        .ahead = pass->ahead,
        .rest = pass->column_end - pass->column,
    };
    if (is_ahead(shape)) {
        source.near_rows = pass->ahead->schedule->near_rows;
        /* Without a far distance, a line of the near row is prefetched twice, which costs less than
         * a test. */
        uint32_t far_rows = pass->ahead->schedule->far_rows;
        source.far_rows = far_rows > 0 ? far_rows : source.near_rows;
        source.rows_last = pass->ahead->rows_end - 1;
    }
    if (shape.form == FORM_ANY && pass->ahead) {
        uint32_t columns = shape.vectors > 0 ? shape.vectors * LANES : source.rest;
        source.lines = eb_bag_lines_find(table, pass->column, pass->column + columns);
    }
    return source;
}

static INLINE bool has_single_rows(struct shape shape)
{
    return shape.fold == FOLD_VALUE || shape.fold == FOLD_SINGLE;
}

/* Returns whether a bag is worth comparing with the one before: both have the same number of rows
 * and the same first row. */
static INLINE bool may_repeat(const struct bag *bag, uint32_t count_before)
{
    return __builtin_expect(bag->count == count_before && bag->count >= COPY_ROWS_MIN, 1) &&
           __builtin_expect(bag->rows[0] == bag->rows[-(int64_t)bag->count], 0);
}

/* Sets how many of a bag's rows have a row to prefetch at the near distance. Only rows of the range
 * are prefetched, so the last rows of the range have none. `left` is the number of rows that have
 * one, counted from the bag's first row. It is zero or negative if none has. */
static INLINE void look_ahead(
    struct shape shape, const struct source *source, int64_t left, struct bag *bag)
{
    if (is_ahead(shape)) {
        bag->near = bag->rows + source->near_rows;
        bag->ahead_count = bag->count;
        if (__builtin_expect(left < bag->count, 0)) {
            bag->ahead_count = left > 0 ? (uint32_t)left : 0;
        }
    }
}

/* Pools the columns of the shape. Only FOLD_VALUE jobs have no starts. FOLD_WEIGHTED jobs have
 * weights. */
static INLINE void pool_columns(struct shape shape, const struct pass *pass)
{
    const struct eb_bag_job *job = pass->job;
    struct source source = find_column_source(shape, pass);
    uint32_t columns = shape.vectors > 0 ? shape.vectors * LANES : source.rest;
    enum eb_type output_type = shape.fold == FOLD_SUM ? plain_type(shape) : job->output_type;
    const uint32_t *starts = job->starts;
    uint32_t b = pass->bag_first;
    uint32_t first = shape.fold == FOLD_VALUE ? b : starts[b];
    uint8_t *out = find_out(pass, b);
    struct bag bag = {.rows = job->rows + first, .count = 1};
    if (shape.fold == FOLD_WEIGHTED || (shape.fold == FOLD_VALUE && job->weights)) {
        bag.weights = (const ACC *)job->weights + first;
    }
    int64_t left = is_ahead(shape) ? source.ahead->rows_end - bag.rows - source.near_rows : 0;
    uint32_t count_before =
        !has_single_rows(shape) && b > pass->part_first ? first - starts[b - 1] : 0;
    for (; b < pass->bag_end; b++) {
        if (!has_single_rows(shape)) {
            bag.count = starts[b + 1] - starts[b];
        }
        look_ahead(shape, &source, left, &bag);
        if (!has_single_rows(shape) && __builtin_expect(bag.count == 0, 0)) {
            fill_columns(pass, b, columns);
        } else if (has_single_rows(shape) || !may_repeat(&bag, count_before) ||
                   !repeat_column(pass, b, columns)) {
            struct sums sums = {.bias = (ACC)-0.0};
#pragma GCC unroll 8
            for (unsigned p = 0; p < count_passes(shape); p++) {
                sum_rows(shape, &source, &bag, p, &sums);
                finish_sums(shape, job, b, p, &sums);
                store_sums(shape, output_type, source.rest, p, &sums, out);
            }
        }
        count_before = bag.count;
        bag.rows += bag.count;
        bag.weights = bag.weights ? bag.weights + bag.count : NULL;
        left -= bag.count;
        out += job->out_stride_bytes;
    }
}

/* Returns whether every bag of the range has one row. Has no branch per bag, so that compilers
 * vectorize the loop. */
static bool has_one_row_each(const struct eb_bag_range *range)
{
    uint32_t bag_count = range->bag_end - range->bag_first;
    if (eb_bag_range_rows(range) != bag_count || bag_count == 1) {
        return bag_count == 1 && eb_bag_range_rows(range) == 1;
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
    const struct eb_bag_job *job = range->job;
    enum eb_type plain = plain_type((struct shape){.storage = job->table->storage});
    bool is_plain = job->reduction == EB_REDUCTION_SUM && job->output_type == plain;
    return job->weights ? FOLD_WEIGHTED : is_plain ? FOLD_SUM : FOLD_MEAN;
}

/* Returns the form of the functions that pool a range. */
static enum form choose_form(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)
{
    const struct eb_bag_job *job = range->job;
    if (job->has_zero_rows || job->lines.has_scales_apart) {
        return FORM_ANY;
    }
    if (!ahead) {
        return FORM_NONE;
    }
    const struct eb_bag_schedule *schedule = ahead->schedule;
    bool is_far_special =
        schedule->far_rows > 0 && (schedule->far_is_whole || schedule->near_is_l1);
    if (schedule->near_rows == 0 || is_far_special || !job->lines.is_compact) {
        return FORM_ANY;
    }
    return schedule->near_is_l1 ? FORM_L1 : FORM_L2;
}

/* Returns whether several functions, which each take their columns to begin with a cache line,
 * prefetch all lines of a row. For codes they prefetch one line more. */
static bool has_aligned_columns(const struct eb_table *table)
{
    return eb_storage_is_code(table->storage) ||
           ((uintptr_t)table->rows | table->row_stride_bytes) % EB_LINE_BYTES == 0;
}

/* Pools a range whose columns need several functions: a group of bags at a time, so that the rows
 * of the group are still cached for the next function. */
static void pool_float_groups(
    struct pass *pass, const struct eb_bag_range *range, enum form form, enum fold fold)
{
    pass->bag_end = range->bag_first;
    while (pass->bag_end < range->bag_end) {
        pass->bag_first = pass->bag_end;
        pass->bag_end = eb_bag_group_end(range->job, pass->bag_first, range->bag_end);
        pool_column_block(pass, form, fold);
    }
}

static void pool_float_tile(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead,
    const struct functions *functions)
{
    const struct eb_bag_job *job = range->job;
    uint32_t columns = range->element_end - range->element_first;
    enum fold fold = choose_float_fold(range);
    enum form form = choose_form(range, ahead);
    if (!functions->of_form[form][fold][1]) {
        form = FORM_ANY;
    }
    struct pass pass = {
        .job = job,
        .part_first = range->bag_first,
        .bag_first = range->bag_first,
        .bag_end = range->bag_end,
        .column = range->element_first,
        .column_end = range->element_end,
        .functions = functions,
        .ahead = ahead,
    };
    uint32_t vectors = columns / LANES;
    bool is_whole = vectors <= VECTORS_MAX && vectors * LANES == columns;
    pool_columns_fn whole = is_whole ? functions->of_form[form][fold][vectors] : NULL;
    bool is_piece = columns < job->table->row_elements;
    if (ahead && (!whole || is_piece) && !has_aligned_columns(job->table)) {
        form = FORM_ANY;
        whole = is_whole ? functions->of_form[form][fold][vectors] : NULL;
    }
    if (whole) {
        whole(&pass);
    } else {
        pool_float_groups(&pass, range, form, fold);
    }
}

#define DEFINE_COLUMNS(name, storage, fold, vectors, form)                                         \
    static void name##_##vectors(const struct pass *pass)                                          \
    {                                                                                              \
        struct shape shape = {storage, fold, vectors, form};                                       \
        pool_columns(shape, pass);                                                                 \
    }

/* For instruction sets whose registers hold more than eight vectors of sums: adds the functions
 * that pool a whole block. */
#if PASS_VECTORS == 16
#define DEFINE_BLOCK(name, storage, fold, form) DEFINE_COLUMNS(name, storage, fold, 16, form)
#define LIST_BLOCK(name) [16] = name##_16,
#else
#define DEFINE_BLOCK(name, storage, fold, form)
#define LIST_BLOCK(name)
#endif

/* FORM_ANY has a function for each number of vectors from which any other can be made up. The other
 * forms have functions for more vectors, but not for less than one. */
#define DEFINE_FEW(name, storage, fold)                                                            \
    DEFINE_COLUMNS(name, storage, fold, 0, FORM_ANY)                                               \
    DEFINE_COLUMNS(name, storage, fold, 1, FORM_ANY)                                               \
    DEFINE_COLUMNS(name, storage, fold, 2, FORM_ANY)                                               \
    DEFINE_COLUMNS(name, storage, fold, 4, FORM_ANY)                                               \
    DEFINE_COLUMNS(name, storage, fold, 8, FORM_ANY)                                               \
    DEFINE_BLOCK(name, storage, fold, FORM_ANY)
#define DEFINE_SOME(name, storage, fold, form)                                                     \
    DEFINE_COLUMNS(name, storage, fold, 1, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 2, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 3, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 4, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 6, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 8, form)                                                   \
    DEFINE_COLUMNS(name, storage, fold, 16, form)
#define DEFINE_MOST(name, storage, fold, form)                                                     \
    DEFINE_SOME(name, storage, fold, form)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 32, form)
#define LIST_FEW(name)                                                                             \
    LIST_BLOCK(name)                                                                               \
    [0] = name##_0, [1] = name##_1, [2] = name##_2, [4] = name##_4, [8] = name##_8
#define LIST_SOME(name)                                                                            \
    [1] = name##_1, [2] = name##_2, [3] = name##_3, [4] = name##_4, [6] = name##_6,                \
    [8] = name##_8, [16] = name##_16
#define LIST_MOST(name) LIST_SOME(name), [32] = name##_32

#define DEFINE_FORM(name, storage, form)                                                           \
    DEFINE_MOST(name##_sum, storage, FOLD_SUM, form)                                               \
    DEFINE_SOME(name##_mean, storage, FOLD_MEAN, form)                                             \
    DEFINE_SOME(name##_single, storage, FOLD_SINGLE, form)                                         \
    DEFINE_SOME(name##_weighted, storage, FOLD_WEIGHTED, form)
#define LIST_FORM(name)                                                                            \
    {                                                                                              \
        [FOLD_SUM] = {LIST_MOST(name##_sum)}, [FOLD_MEAN] = {LIST_SOME(name##_mean)},              \
        [FOLD_SINGLE] = {LIST_SOME(name##_single)},                                                \
        [FOLD_WEIGHTED] = {LIST_SOME(name##_weighted)},                                            \
    }

/* Defines the functions that are specialised for a schedule. With EMBAG_FEW_FORMS, only plain sums
 * have them, since sanitizers make compiling them slow. */
#ifdef EMBAG_FEW_FORMS
#define DEFINE_AHEAD(storage, name)                                                                \
    DEFINE_MOST(name##_l1_sum, storage, FOLD_SUM, FORM_L1)                                         \
    DEFINE_MOST(name##_l2_sum, storage, FOLD_SUM, FORM_L2)
#define LIST_AHEAD(name)                                                                           \
    [FORM_L1] = {[FOLD_SUM] = {LIST_MOST(name##_l1_sum)}},                                         \
    [FORM_L2] = {[FOLD_SUM] = {LIST_MOST(name##_l2_sum)}},
#else
#define DEFINE_AHEAD(storage, name)                                                                \
    DEFINE_FORM(name##_l1, storage, FORM_L1)                                                       \
    DEFINE_FORM(name##_l2, storage, FORM_L2)
#define LIST_AHEAD(name) [FORM_L1] = LIST_FORM(name##_l1), [FORM_L2] = LIST_FORM(name##_l2),
#endif
#define LIST_NOTHING(name)

/* The storages of most tables have functions of all forms. The others have FORM_NONE, for tables in
 * the caches, and FORM_ANY, which works for all rows. */
#define DEFINE_POOL(storage, name, function)                                                       \
    DEFINE_AHEAD(storage, name)                                                                    \
    DEFINE_FORMS(storage, name, LIST_AHEAD, function)
#define DEFINE_RARE_POOL(storage, name, function)                                                  \
    DEFINE_FORMS(storage, name, LIST_NOTHING, function)

#define DEFINE_FORMS(storage, name, LIST_MORE, function)                                           \
    DEFINE_FORM(name##_none, storage, FORM_NONE)                                                   \
    DEFINE_FEW(name##_mean, storage, FOLD_MEAN)                                                    \
    DEFINE_FEW(name##_single, storage, FOLD_SINGLE)                                                \
    DEFINE_FEW(name##_weighted, storage, FOLD_WEIGHTED)                                            \
    DEFINE_FEW(name##_max, storage, FOLD_MAX)                                                      \
    DEFINE_FEW(name##_min, storage, FOLD_MIN)                                                      \
    DEFINE_FEW(name##_value, storage, FOLD_VALUE)                                                  \
    static const struct functions name##_functions = {                                             \
        {                                                                                          \
            LIST_MORE(name)[FORM_NONE] = LIST_FORM(name##_none),                                   \
            [FORM_ANY] =                                                                           \
                {                                                                                  \
                    [FOLD_SUM] = {LIST_FEW(name##_mean)},                                          \
                    [FOLD_MEAN] = {LIST_FEW(name##_mean)},                                         \
                    [FOLD_SINGLE] = {LIST_FEW(name##_single)},                                     \
                    [FOLD_WEIGHTED] = {LIST_FEW(name##_weighted)},                                 \
                    [FOLD_MAX] = {LIST_FEW(name##_max)},                                           \
                    [FOLD_MIN] = {LIST_FEW(name##_min)},                                           \
                    [FOLD_VALUE] = {LIST_FEW(name##_value)},                                       \
                },                                                                                 \
        },                                                                                         \
    };                                                                                             \
    void function(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)              \
    {                                                                                              \
        pool_float_tile(range, ahead, &name##_functions);                                          \
    }
