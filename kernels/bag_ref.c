#include "kernels/bag_ref.h"

#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <assert.h>

static void pool_row(const struct eb_bag_ref_bag *bag, uint8_t *out)
{
    const struct eb_bag_job *job = bag->job;
    if (!eb_type_is_float(job->table->type)) {
        eb_bag_ref_row_int(bag, out);
    } else if (job->table->type == EB_F64) {
        eb_bag_ref_row_f64(bag, out);
    } else {
        eb_bag_ref_row_f32(bag, out);
    }
}

/* Writes the result of an empty bag: its default row alone, without weight and reduction. A default
 * of -1 is the number of the zero row. */
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
    struct eb_bag_ref_bag bag = {&filled, 0, 1, range->element_first, range->element_end};
    pool_row(&bag, out);
}

static void pool_reference(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)
{
    const struct eb_bag_job *job = range->job;
    assert(!prefetch);
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        struct eb_bag_ref_bag bag = {
            .job = job,
            .first = job->starts ? job->starts[b] : b,
            .end = job->starts ? job->starts[b + 1] : b + 1,
            .element_first = range->element_first,
            .element_end = range->element_end,
        };
        uint8_t *out = job->out + b * job->out_stride_bytes;
        if (bag.first == bag.end) {
            fill_row(range, out);
        } else {
            pool_row(&bag, out);
        }
    }
}

const struct eb_bag_variant eb_bag_ref = {
    .name = "ref",
    .index = &eb_bag_ref_index,
    .pool =
        {
#define X(name, number, bytes, text) [number] = pool_reference,
            EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
        },
};
