#include "kernels/bag_ref.h"
#include "kernels/bag_variant.h"

#include <string.h>

/* Values that are handed on in T as they are stored: NaNs keep their bits. */
static bool is_copy(const struct eb_bag_job *job)
{
    return job->reduction == EB_REDUCTION_NONE && !job->weights &&
           job->output_type == job->table->type &&
           (int)job->table->storage == (int)job->table->type;
}

static void copy_row(const struct eb_bag_job *job, int64_t row, uint8_t *out)
{
    const struct eb_table *table = job->table;
    size_t bytes = table->row_elements * eb_type_bytes(table->type);
    if (row == EB_ROW_ZERO) {
        memset(out, 0, bytes);
    } else {
        memcpy(out, (const uint8_t *)table->rows + (uint64_t)row * table->row_stride_bytes, bytes);
    }
}

static void pool_row(const struct eb_bag_ref_bag *bag, uint8_t *out)
{
    const struct eb_bag_job *job = bag->job;
    if (is_copy(job)) {
        copy_row(job, job->rows[bag->first], out);
    } else if (!eb_type_is_float(job->table->type)) {
        eb_bag_ref_row_int(bag, out);
    } else if (job->table->type == EB_F64) {
        eb_bag_ref_row_f64(bag, out);
    } else {
        eb_bag_ref_row_f32(bag, out);
    }
}

/* An empty bag is its default row alone, without weight and reduction; a default of -1 is the
 * number of the zero row. */
static void fill_row(const struct eb_bag_job *job, uint8_t *out)
{
    struct eb_bag_job filled = *job;
    filled.reduction = EB_REDUCTION_NONE;
    filled.rows = &job->default_row;
    filled.weights = NULL;
    const struct eb_bag_ref_bag bag = {.job = &filled, .first = 0, .end = 1};
    pool_row(&bag, out);
}

static void pool(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end)
{
    for (uint32_t b = bag_first; b < bag_end; b++) {
        const struct eb_bag_ref_bag bag = {
            .job = job,
            .first = job->starts ? job->starts[b] : b,
            .end = job->starts ? job->starts[b + 1] : b + 1,
        };
        uint8_t *out = job->out + b * job->out_stride_bytes;
        if (bag.first == bag.end) {
            fill_row(job, out);
        } else {
            pool_row(&bag, out);
        }
    }
}

const struct eb_bag_variant eb_bag_ref = {
    .name = "ref",
    .pool =
        {
#define X(name, number, bytes, text) [number] = pool,
            EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
        },
};
