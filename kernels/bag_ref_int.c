#include "kernels/bag_ref.h"
#include "kernels/element.h"

#include <assert.h>

static uint64_t load_ref_int(const struct eb_bag_job *job, int64_t row, uint32_t element)
{
    const struct eb_table *table = job->table;
    if (row == EB_ROW_ZERO) {
        return 0;
    }
    const uint8_t *bytes = (const uint8_t *)table->rows + (uint64_t)row * table->row_stride_bytes;
    return eb_element_load_int(table->type, bytes + element * eb_type_bytes(table->type));
}

static uint64_t sum_ref_int(const struct eb_bag_ref_bag *bag, uint32_t element)
{
    const uint64_t *weights = bag->job->weights;
    uint64_t acc = 0;
    for (uint32_t i = bag->first; i < bag->end; i++) {
        uint64_t x = load_ref_int(bag->job, bag->job->rows[i], element);
        acc += weights ? weights[i] * x : x;
    }
    return acc;
}

/* Divides the sum. Sums of at most 2^24 values of 32 bits are exact here; sums of 64-bit values
 * have wrapped. */
static uint64_t mean(const struct eb_bag_ref_bag *bag, uint32_t element)
{
    uint64_t total = sum_ref_int(bag, element);
    uint32_t count = bag->end - bag->first;
    if (eb_type_is_signed(bag->job->table->type)) {
        return (uint64_t)((int64_t)total / count);
    }
    return total / count;
}

static uint64_t extreme_ref_int(const struct eb_bag_ref_bag *bag, uint32_t element)
{
    /* Flipping the sign bit turns the order of signed numbers into that of unsigned ones. */
    uint64_t sign = (uint64_t)eb_type_is_signed(bag->job->table->type) << 63;
    uint64_t acc = load_ref_int(bag->job, bag->job->rows[bag->first], element);
    for (uint32_t i = bag->first + 1; i < bag->end; i++) {
        uint64_t x = load_ref_int(bag->job, bag->job->rows[i], element);
        bool is_greater = (x ^ sign) > (acc ^ sign);
        bool is_less = (x ^ sign) < (acc ^ sign);
        if (bag->job->reduction == EB_REDUCTION_MAX ? is_greater : is_less) {
            acc = x;
        }
    }
    return acc;
}

static uint64_t pool_ref_int(const struct eb_bag_ref_bag *bag, uint32_t element)
{
    switch (bag->job->reduction) {
    case EB_REDUCTION_SUM:
    case EB_REDUCTION_NONE: return sum_ref_int(bag, element);
    case EB_REDUCTION_MEAN: return mean(bag, element);
    case EB_REDUCTION_MAX:
    case EB_REDUCTION_MIN: return extreme_ref_int(bag, element);
    case EB_REDUCTION_WEIGHTED_MEAN:
    case EB_REDUCTION_SQRTN:
    case EB_REDUCTION_UNSPECIFIED:
    case EB_REDUCTION_COUNT: break;
    }
    assert(false && "a reduction of integers");
    return 0;
}

void eb_bag_ref_row_int(const struct eb_bag_ref_bag *bag, uint8_t *out)
{
    enum eb_type type = bag->job->table->type;
    size_t element_bytes = eb_type_bytes(type);
    for (uint32_t element = bag->element_first; element < bag->element_end; element++) {
        eb_element_store_int(type, pool_ref_int(bag, element), out + element * element_bytes);
    }
}
