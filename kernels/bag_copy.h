/* Copies rows that are returned as they are stored. NaNs keep their bits.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_prefetch.h"

/* Returns whether the result of a single row without weight is a copy of the stored bytes. */
bool eb_bag_is_copied(const struct eb_bag_job *job);

/* Copies `count` columns of a row, from `column` on, to their position in the result row at `out`.
 * If the row is EB_ROW_VECTOR, copies the table's default vector, converted if the output type is
 * not T. If it is EB_ROW_ZERO, writes zeros. */
void eb_bag_copy_columns(
    const struct eb_bag_job *job, int64_t row, uint32_t column, uint32_t count, uint8_t *out);

/* Pools a range of an unweighted NONE job whose rows are copied. `ahead` may be NULL. */
void eb_bag_copy_range(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead);
