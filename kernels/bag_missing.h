/* Finds the indices of a query that name no row.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Writes the positions of the first `count` checked indices that name no row of the table, each
 * plus `base`, in ascending order; `count` is at most the checked job's missing_count. */
void eb_bag_list_missing(
    const struct eb_bag_query *query, uint32_t base, uint64_t count, uint32_t *positions);
