#include "kernels/bag_scratch.h"

#define ALIGNMENT 64

/* Of a weight, and of a sum, of a table of this T. */
static uint64_t weight_bytes(enum eb_type type)
{
    return eb_type_is_float(type) && type != EB_F64 ? sizeof(float) : sizeof(uint64_t);
}

bool eb_bag_scratch_has_weights(const struct eb_bag_query *query)
{
    return query->weights || query->weights_bytes > 0;
}

struct eb_bag_scratch eb_bag_scratch_lay_out(
    const struct eb_bag_query *query, const struct eb_bag_extent *extent)
{
    struct eb_bag_scratch scratch = {0};
    scratch.weights_offset = extent->index_count * sizeof(int64_t);
    scratch.starts_offset = scratch.weights_offset;
    if (eb_bag_scratch_has_weights(query)) {
        scratch.starts_offset += extent->index_count * weight_bytes(query->table->type);
    }
    scratch.bytes = scratch.starts_offset;
    if (query->reduction != EB_REDUCTION_NONE) {
        scratch.bytes += (extent->result_rows + 1) * sizeof(uint32_t);
    }
    /* So that the scratch of the next query, laid behind it, is aligned too. */
    scratch.bytes = (scratch.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return scratch;
}
