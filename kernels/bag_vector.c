#include "kernels/bag_vector.h"

#include "kernels/bag_measure.h"
#include "kernels/element.h"
#include "kernels/float_row.h"

#include <math.h>
#include <string.h>

/* Most rows of a bag whose addresses are kept on the stack. */
#define ADDRESSED_ROWS_MAX 1024

/* Most values of a bag that are widened at a time: 32 KiB on the stack. The columns of a bag are
 * divided into blocks of a multiple of WIDENED_COLUMNS_MIN, so that no byte of codes is split. */
#define WIDENED_VALUES_MAX 8192
#define WIDENED_COLUMNS_MIN 16
#define WIDENED_COLUMNS_MAX 1024
#define WIDENED_ROWS_MAX (WIDENED_VALUES_MAX / WIDENED_COLUMNS_MIN)

/* A bag that contains EB_ROW_VECTOR. */
struct vector_bag {
    const struct eb_bag_variant *variant;
    const struct eb_bag_job *job;
    const eb_bag_row *rows; /* [count] */
    const void *weights;    /* parallel to rows; NULL: no weights */
    uint32_t count;
    uint8_t *out; /* the bag's row of the result */
};

static uint32_t find_first_row(const struct eb_bag_job *job, uint32_t bag)
{
    return job->starts ? job->starts[bag] : bag;
}

static bool has_vector(const struct eb_bag_job *job, uint32_t bag)
{
    const eb_bag_row *row = job->rows + find_first_row(job, bag);
    const eb_bag_row *end = job->rows + find_first_row(job, bag + 1);
    while (row < end && *row != EB_ROW_VECTOR) {
        row++;
    }
    return row < end;
}

static struct vector_bag find_vector_bag(
    const struct eb_bag_variant *variant, const struct eb_bag_job *job, uint32_t b)
{
    uint32_t first = find_first_row(job, b);
    struct vector_bag bag = {
        .variant = variant,
        .job = job,
        .rows = job->rows + first,
        .count = find_first_row(job, b + 1) - first,
        .out = job->out + b * job->out_stride_bytes,
    };
    if (job->weights) {
        size_t weight_bytes = eb_bag_weights_bytes(job->table->type);
        bag.weights = (const uint8_t *)job->weights + first * weight_bytes;
    }
    return bag;
}

/* Pools `rows` of `table` instead of the bag's rows, otherwise as the job `like` says. `rows` has
 * as many entries as the bag. Writes the elements of `columns` to their position in the row at
 * like->out. */
static void pool_in_place(const struct vector_bag *bag, const struct eb_table *table,
    const eb_bag_row *rows, const struct eb_bag_job *like, const struct eb_bag_range *columns)
{
    uint32_t starts[2] = {0, bag->count};
    struct eb_bag_job job = *like;
    job.table = table;
    job.rows = rows;
    job.starts = job.reduction == EB_REDUCTION_NONE ? NULL : starts;
    job.bag_count = 1;
    struct eb_bag_range range = *columns;
    range.job = &job;
    range.bag_first = 0;
    range.bag_end = 1;
    bag->variant->pool[table->storage](&range, NULL);
}

/* ---- tables stored as T ---- */

/* Pools a bag with the variant's function, on a table that covers both the rows and the vector. It
 * starts at the one that comes first in memory, and its rows are one byte apart. So the number of a
 * row is its distance in bytes from there. */
static void pool_by_address(const struct vector_bag *bag, const struct eb_bag_range *columns)
{
    struct eb_table table = *bag->job->table;
    uintptr_t rows = (uintptr_t)table.rows;
    uintptr_t vector = (uintptr_t)table.vector;
    uintptr_t base = rows < vector ? rows : vector;
    int64_t addressed[ADDRESSED_ROWS_MAX];
    for (uint32_t i = 0; i < bag->count; i++) {
        int64_t row = bag->rows[i];
        uintptr_t at =
            row == EB_ROW_VECTOR ? vector : rows + (uint64_t)row * table.row_stride_bytes;
        addressed[i] = (int64_t)(at - base);
    }
    table.rows = rows < vector ? table.rows : table.vector;
    table.row_stride_bytes = 1;
    struct eb_bag_job job = *bag->job;
    job.weights = bag->weights;
    job.out = bag->out;
    pool_in_place(bag, &table, addressed, &job, columns);
}

/* ---- other tables, whose sums are f32: the bag's values or codes are read into rows of f32, which
 * the variant pools ---- */

/* A block of a bag's columns, as rows of f32. */
struct widened {
    uint32_t column;
    uint32_t columns;
    bool is_codes; /* the values are codes, without scale and bias */
    float values[WIDENED_VALUES_MAX];
};

static bool sums_codes(const struct eb_bag_job *job)
{
    return eb_storage_is_code(job->table->storage) && job->reduction != EB_REDUCTION_NONE &&
           job->reduction != EB_REDUCTION_MAX && job->reduction != EB_REDUCTION_MIN;
}

static void widen_vector(const struct eb_table *table, const struct widened *widened, float *values)
{
    const uint8_t *from =
        (const uint8_t *)table->vector + widened->column * eb_type_bytes(table->type);
    if (table->type == EB_F32) {
        memcpy(values, from, widened->columns * sizeof values[0]);
    } else {
        eb_float_row_widen((enum eb_storage)table->type, from, widened->columns, values);
    }
}

/* Reads the bag's rows as the variant does for NONE. If the codes
 * themselves are needed, the scale of each row is 1. */
static void widen_rows(const struct vector_bag *bag, struct widened *widened)
{
    struct eb_table table = *bag->job->table;
    unsigned bits = eb_storage_bits(table.storage);
    table.rows = (const uint8_t *)table.rows + (uint64_t)widened->column * bits / 8;
    table.row_elements = widened->columns;
    struct eb_bag_job job = *bag->job;
    if (widened->is_codes) {
        table.scales = &eb_zero_row_scale;
        table.scale_stride_bytes = 0;
        job.lines.has_scales_apart = true;
    }
    job.table = &table;
    job.rows = bag->rows;
    job.weights = NULL;
    job.starts = NULL;
    job.bag_count = bag->count;
    job.reduction = EB_REDUCTION_NONE;
    job.output_type = EB_F32;
    job.has_zero_rows = true; /* EB_ROW_VECTOR is read as zeros, and replaced below. */
    job.out = (uint8_t *)widened->values;
    job.out_stride_bytes = widened->columns * sizeof widened->values[0];
    struct eb_bag_range range = {&job, 0, bag->count, 0, widened->columns};
    bag->variant->pool[table.storage](&range, NULL);
    for (uint32_t i = 0; i < bag->count; i++) {
        if (bag->rows[i] == EB_ROW_VECTOR) {
            widen_vector(bag->job->table, widened, widened->values + (size_t)i * widened->columns);
        }
    }
}

/* What is the same for all columns of a sum of codes. */
struct code_sum {
    float weights[WIDENED_ROWS_MAX]; /* of the rows of codes */
    float bias;
    float divisor;
};

static void sum_up_scales(const struct vector_bag *bag, struct code_sum *sum)
{
    const float *weights = bag->weights;
    float weight_sum = 0;
    float square_sum = 0;
    sum->bias = -0.0F;
    for (uint32_t i = 0; i < bag->count; i++) {
        float weight = weights ? weights[i] : 1;
        weight_sum = weight_sum + weight;
        square_sum = fmaf(weight, weight, square_sum);
        sum->weights[i] = weight;
        if (bag->rows[i] != EB_ROW_VECTOR) {
            struct eb_row_scale of_row =
                eb_table_scale(bag->job->table, (uint64_t)(int64_t)bag->rows[i]);
            sum->weights[i] = weight * of_row.scale;
            sum->bias = fmaf(weight, of_row.bias, sum->bias);
        }
    }
    bool is_root = bag->job->reduction == EB_REDUCTION_SQRTN;
    sum->divisor = is_root ? sqrtf(square_sum) : weight_sum;
}

/* Writes the results of the columns. `totals` are the sums without biases. */
static void finish_codes(const struct vector_bag *bag, const struct code_sum *sum,
    const struct widened *widened, const float *totals)
{
    enum eb_type type = bag->job->output_type;
    size_t element_bytes = eb_type_bytes(type);
    uint8_t *out = bag->out + widened->column * element_bytes;
    bool divides = bag->job->reduction != EB_REDUCTION_SUM;
    for (uint32_t i = 0; i < widened->columns; i++) {
        float value = totals[i] + sum->bias;
        if (divides) {
            value = sum->divisor == 0 ? 0 : value / sum->divisor;
        }
        eb_element_store_float(type, value, out + i * element_bytes);
    }
}

static void pool_widened(
    const struct vector_bag *bag, const struct widened *widened, const struct code_sum *sum)
{
    struct eb_table table = {
        .rows = widened->values,
        .row_count = bag->count,
        .row_stride_bytes = widened->columns * sizeof widened->values[0],
        .row_elements = widened->columns,
        .storage = EB_STORAGE_F32,
        .type = EB_F32,
        .unknown_row = -1,
    };
    int64_t rows[WIDENED_ROWS_MAX];
    for (uint32_t i = 0; i < bag->count; i++) {
        rows[i] = i;
    }
    float totals[WIDENED_COLUMNS_MAX];
    struct eb_bag_job job = *bag->job;
    job.lines.has_scales_apart = false;
    job.weights = bag->weights;
    job.out = bag->out + widened->column * eb_type_bytes(job.output_type);
    if (widened->is_codes) {
        job.reduction = EB_REDUCTION_SUM;
        job.output_type = EB_F32;
        job.weights = sum->weights;
        job.out = (uint8_t *)totals;
    }
    struct eb_bag_range columns = {.element_end = widened->columns};
    pool_in_place(bag, &table, rows, &job, &columns);
    if (widened->is_codes) {
        finish_codes(bag, sum, widened, totals);
    }
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void pool_by_widening(const struct vector_bag *bag, const struct eb_bag_range *columns)
{
    uint32_t block = WIDENED_VALUES_MAX / bag->count / WIDENED_COLUMNS_MIN * WIDENED_COLUMNS_MIN;
    block = smaller(block, WIDENED_COLUMNS_MAX);
    struct code_sum sum;
    struct widened widened;
    widened.is_codes = sums_codes(bag->job);
    if (widened.is_codes) {
        sum_up_scales(bag, &sum);
    }
    widened.column = columns->element_first;
    while (widened.column < columns->element_end) {
        widened.columns = smaller(columns->element_end - widened.column, block);
        widen_rows(bag, &widened);
        pool_widened(bag, &widened, &sum);
        widened.column += widened.columns;
    }
}

/* ---- any table ---- */

/* Pools a range of one bag, which contains EB_ROW_VECTOR. */
static void pool_vector_bag(const struct eb_bag_variant *variant, const struct eb_bag_range *range)
{
    const struct eb_table *table = range->job->table;
    struct vector_bag bag = find_vector_bag(variant, range->job, range->bag_first);
    bool is_stored_as_type = (int)table->storage == (int)table->type;
    if (is_stored_as_type && bag.count <= ADDRESSED_ROWS_MAX) {
        pool_by_address(&bag, range);
    } else if (!is_stored_as_type && bag.count <= WIDENED_ROWS_MAX) {
        pool_by_widening(&bag, range);
    } else {
        eb_bag_ref.pool[table->storage](range, NULL);
    }
}

void eb_bag_vector_pool(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    const struct eb_bag_ahead *ahead)
{
    eb_bag_pool_fn pool = variant->pool[range->job->table->storage];
    struct eb_bag_range run = *range; /* bags without EB_ROW_VECTOR */
    struct eb_bag_range bag = *range;
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        if (!has_vector(range->job, b)) {
            continue;
        }
        run.bag_end = b;
        if (run.bag_first < run.bag_end) {
            pool(&run, ahead);
        }
        run.bag_first = b + 1;
        bag.bag_first = b;
        bag.bag_end = b + 1;
        pool_vector_bag(variant, &bag);
    }
    run.bag_end = range->bag_end;
    if (run.bag_first < run.bag_end) {
        pool(&run, ahead);
    }
}
