/* The reference: the operation as bag.h specifies it, an element at a time, and the reference's
 * index pass. */
#include "kernels/bag_copy.h"
#include "kernels/bag_index_plain.h"
#include "kernels/bag_variant.h"
#include "kernels/element.h"
#include "kernels/key_index.h"

#include <assert.h>
#include <math.h>

/* A bag of at least one row: job->rows[first .. end). */
struct reference_bag {
    const struct eb_bag_job *job;
    uint32_t first;
    uint32_t end;
    uint32_t element_first; /* first of the columns to compute */
    uint32_t element_end;
    uint32_t number; /* of the bag */
};

static const uint8_t *row_at(const struct eb_table *table, int64_t row)
{
    return (const uint8_t *)table->rows + (uint64_t)row * table->row_stride_bytes;
}

/* ---- floating-point tables: sums are f32 for f32, f16, bf16, fp8 and codes, and f64 for f64. The
 * template defines pool_ref_columns_f32 and pool_ref_columns_f64 ---- */

#define ACC float
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define OF_ACC(name) name##_f32
#include "kernels/bag_ref_tmpl.c"

#define ACC double
#define ACC_FMA fma
#define ACC_SQRT sqrt
#define OF_ACC(name) name##_f64
#include "kernels/bag_ref_tmpl.c"

/* ---- integer tables: sums are 64-bit integers. pool_ref_columns_int pools them ---- */

static uint64_t load_value_int(const struct eb_bag_job *job, int64_t row, uint32_t element)
{
    const struct eb_table *table = job->table;
    if (row == EB_ROW_ZERO) {
        return 0;
    }
    const uint8_t *bytes = row == EB_ROW_VECTOR ? table->vector : row_at(table, row);
    return eb_element_load_int(table->type, bytes + element * eb_type_bytes(table->type));
}

static uint64_t sum_int(const struct reference_bag *bag, uint32_t element)
{
    const uint64_t *weights = bag->job->weights;
    uint64_t acc = 0;
    for (uint32_t i = bag->first; i < bag->end; i++) {
        uint64_t x = load_value_int(bag->job, bag->job->rows[i], element);
        acc += weights ? weights[i] * x : x;
    }
    return acc;
}

/* Returns the mean of a column of a bag. A sum of at most 2^24 values of 32 bits is exact in 64
 * bits; a sum of 64-bit values may have wrapped. */
static uint64_t mean_int(const struct reference_bag *bag, uint32_t element)
{
    uint64_t total = sum_int(bag, element);
    uint32_t count = bag->end - bag->first;
    if (eb_type_is_signed(bag->job->table->type)) {
        return (uint64_t)((int64_t)total / count);
    }
    return total / count;
}

static uint64_t extreme_int(const struct reference_bag *bag, uint32_t element)
{
    /* Flipping the sign bit turns the order of signed numbers into that of unsigned ones. */
    uint64_t sign = (uint64_t)eb_type_is_signed(bag->job->table->type) << 63;
    uint64_t acc = load_value_int(bag->job, bag->job->rows[bag->first], element);
    for (uint32_t i = bag->first + 1; i < bag->end; i++) {
        uint64_t x = load_value_int(bag->job, bag->job->rows[i], element);
        bool is_greater = (x ^ sign) > (acc ^ sign);
        bool is_less = (x ^ sign) < (acc ^ sign);
        if (bag->job->reduction == EB_REDUCTION_MAX ? is_greater : is_less) {
            acc = x;
        }
    }
    return acc;
}

static uint64_t pool_element_int(const struct reference_bag *bag, uint32_t element)
{
    switch (bag->job->reduction) {
    case EB_REDUCTION_SUM:
    case EB_REDUCTION_NONE: return sum_int(bag, element);
    case EB_REDUCTION_MEAN: return mean_int(bag, element);
    case EB_REDUCTION_MAX:
    case EB_REDUCTION_MIN: return extreme_int(bag, element);
    case EB_REDUCTION_WEIGHTED_MEAN:
    case EB_REDUCTION_SQRTN:
    case EB_REDUCTION_UNSPECIFIED:
    case EB_REDUCTION_COUNT: break;
    }
    assert(false && "a reduction of integers");
    return 0;
}

/* Writes the columns of a bag to its row of the result, which begins at `out`. */
static void pool_ref_columns_int(const struct reference_bag *bag, uint8_t *out)
{
    enum eb_type type = bag->job->table->type;
    size_t element_bytes = eb_type_bytes(type);
    for (uint32_t element = bag->element_first; element < bag->element_end; element++) {
        eb_element_store_int(type, pool_element_int(bag, element), out + element * element_bytes);
    }
}

/* ---- a range of bags ---- */

static void pool_row(const struct reference_bag *bag, uint8_t *out)
{
    const struct eb_bag_job *job = bag->job;
    if (!eb_type_is_float(job->table->type)) {
        pool_ref_columns_int(bag, out);
    } else if (job->table->type == EB_F64) {
        pool_ref_columns_f64(bag, out);
    } else {
        pool_ref_columns_f32(bag, out);
    }
}

/* Writes the result of an empty bag: its default row alone, without weight and reduction. A default
 * row of -1 has the number of the zero row (EB_ROW_ZERO). */
static void fill_row(const struct eb_bag_range *range, uint8_t *out)
{
    struct eb_bag_job filled = *range->job;
    uint32_t columns = range->element_end - range->element_first;
    if (filled.default_row < 0 || eb_bag_is_copied(&filled)) {
        eb_bag_copy_columns(&filled, filled.default_row, range->element_first, columns, out);
        return;
    }
    filled.reduction = EB_REDUCTION_NONE;
    filled.rows = &range->job->default_row;
    filled.weights = NULL;
    struct reference_bag bag = {&filled, 0, 1, range->element_first, range->element_end, 0};
    pool_row(&bag, out);
}

static void pool_reference(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)
{
    const struct eb_bag_job *job = range->job;
    assert(!ahead);
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        struct reference_bag bag = {
            .job = job,
            .first = job->starts ? job->starts[b] : b,
            .end = job->starts ? job->starts[b + 1] : b + 1,
            .element_first = range->element_first,
            .element_end = range->element_end,
            .number = b,
        };
        uint8_t *out = job->out + b * job->out_stride_bytes;
        if (bag.first == bag.end) {
            fill_row(range, out);
        } else {
            pool_row(&bag, out);
        }
    }
}

/* ---- the index pass, and the variant ---- */

static uint64_t take_ref_rows(
    const struct eb_int_array *indices, uint64_t row_count, int64_t missing_row, int64_t *rows)
{
    return indices->width == 4 ? plain_take_rows(4, indices, row_count, missing_row, rows)
                               : plain_take_rows(8, indices, row_count, missing_row, rows);
}

static bool are_rows(const struct eb_int_array *indices, uint64_t row_count)
{
    return plain_are_rows(indices, row_count);
}

static enum eb_bag_order take_bounds(
    const struct eb_int_array *bounds, int64_t last, uint32_t *starts)
{
    return bounds->width == 4 ? plain_take_bounds(4, bounds, last, starts)
                              : plain_take_bounds(8, bounds, last, starts);
}

static bool take_lengths(const struct eb_int_array *lengths, uint32_t index_count, uint32_t *starts)
{
    starts[0] = 0;
    return lengths->width == 4 ? plain_take_lengths(4, lengths, 0, index_count, starts)
                               : plain_take_lengths(8, lengths, 0, index_count, starts);
}

const struct eb_bag_index_fns eb_bag_ref_index = {
    .take_rows = take_ref_rows,
    .are_rows = are_rows,
    .take_bounds = take_bounds,
    .take_lengths = take_lengths,
    .take_keys = eb_key_index_take_rows,
};

const struct eb_bag_variant eb_bag_ref = {
    .name = "ref",
    .index = &eb_bag_ref_index,
    .quantize_rows = eb_quantize_ref_rows,
    .pool =
        {
#define X(name, number, bytes, text) [number] = pool_reference,
            EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
        },
};
