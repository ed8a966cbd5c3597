/* Pools bags that contain EB_ROW_VECTOR, so that the functions of the instruction sets need not
 * know the table's default vector. Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

/* Pools a range of a job that has_vector_rows, and whose rows are not merely copied, with a variant
 * that is not the reference. `ahead` may be NULL. Bags without EB_ROW_VECTOR are pooled by the
 * variant's function. So are bags of at most 1024 rows of a table that is stored as T. The
 * reference pools all others, which takes some 40 times longer (eb_bag_ops_slowness). */
void eb_bag_vector_pool(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    const struct eb_bag_ahead *ahead);
