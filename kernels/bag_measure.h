/* Measuring a query of which most is known already.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

#define EB_BAG_SCRATCH_ALIGNMENT 64

/* Lays out the scratch of a query whose counts and sizes the extent has: its row numbers, then
 * weights of so many bytes each (0: none), then, unless it is NONE, its bags' starts. No sum can
 * wrap within EB_BAG_INDICES_MAX and EB_BAG_BAGS_MAX. */
static inline void eb_bag_extent_lay_out(
    struct eb_bag_extent *extent, uint64_t weight_bytes, bool has_starts)
{
    uint64_t bytes = extent->index_count * sizeof(int64_t);
    /* 0 too where there are no indices. */
    extent->weights_offset = weight_bytes > 0 ? bytes : 0;
    bytes += extent->index_count * weight_bytes;
    extent->starts_offset = bytes;
    if (has_starts) {
        bytes += (extent->result_rows + 1) * sizeof(uint32_t);
    }
    /* So that the scratch of the next query, laid behind it, is aligned too. */
    extent->scratch_bytes = (bytes + EB_BAG_SCRATCH_ALIGNMENT - 1) / EB_BAG_SCRATCH_ALIGNMENT *
                            EB_BAG_SCRATCH_ALIGNMENT;
}

/* As eb_bag_measure of a query of LENGTHS whose num_bags lengths add up to its index_count indices.
 */
static inline bool eb_bag_measure_counted(const struct eb_bag_query *query, uint64_t index_count,
    struct eb_bag_extent *extent, struct eb_bag_fault *fault)
{
    const struct eb_bag_kind *kind = query->kind;
    if (!kind || query->weights || query->reduction == EB_REDUCTION_NONE ||
        index_count > EB_BAG_INDICES_MAX || query->num_bags > EB_BAG_BAGS_MAX) {
        return eb_bag_measure(query, extent, fault);
    }
    extent->index_count = index_count;
    extent->result_rows = query->num_bags;
    extent->result_row_bytes = kind->result_row_bytes;
    extent->output_type = kind->output_type;
    extent->gather_row_bytes = kind->gather_row_bytes;
    eb_bag_extent_lay_out(extent, 0, true);
    return true;
}
