/* Copies the weights of a query into a job: parallel to the row list, in the type that sums are
 * kept in (f32, f64 or 64-bit integers).
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

static inline bool eb_bag_weights_are_given(const struct eb_bag_query *query)
{
    return query->weights || query->weights_bytes > 0;
}

/* Returns the size of a weight in a job for a table of this T: 4 or 8. */
uint64_t eb_bag_weights_bytes(enum eb_type type);

/* Copies the weights of indices first .. first + count - 1 to weights[0] .. weights[count - 1]. */
void eb_bag_weights_copy(
    const struct eb_bag_query *query, uint32_t first, uint32_t count, void *weights);
/* Copies the weight of one index. */
void eb_bag_weights_put(
    const struct eb_bag_query *query, uint32_t position, void *weights, uint32_t slot);
