/* How a job lies in the scratch memory that is lent to it: row numbers, weights, bag starts.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

struct eb_bag_scratch {
    uint64_t weights_offset; /* the row numbers come first, at 0 */
    uint64_t starts_offset;
    uint64_t bytes; /* a multiple of 64 */
};

bool eb_bag_scratch_has_weights(const struct eb_bag_query *query);

/* Where the pieces lie; extent's index_count and result_rows must be set. Cannot overflow within
 * EB_BAG_INDICES_MAX and EB_BAG_BAGS_MAX. */
struct eb_bag_scratch eb_bag_scratch_lay_out(
    const struct eb_bag_query *query, const struct eb_bag_extent *extent);
