/* Rows that are put out as they are stored: NaNs keep their bits.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_prefetch.h"

/* Whether a single row without weight is put out as it is stored. */
bool eb_bag_is_copied(const struct eb_bag_job *job);

/* `count` columns from `column` on of a row, or zeros of the output type where `row` is negative,
 * to their place in the result row at `out`. */
void eb_bag_copy_columns(
    const struct eb_bag_job *job, int64_t row, uint32_t column, uint32_t count, uint8_t *out);

/* Pools a part of an unweighted NONE job that is copied. `prefetch` may be NULL. */
void eb_bag_copy_range(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
