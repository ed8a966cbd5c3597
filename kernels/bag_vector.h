/* Pools bags that contain EB_ROW_VECTOR, so that the functions of the instruction sets need not
 * know the table's default vector. Thread: pure. Memory: up to 48 KiB of the stack, no heap. */
#pragma once

#include "kernels/bag_variant.h"

/* Pools a range of a job that has_vector_rows, and whose rows are not merely copied, with a variant
 * that is not the reference. `ahead` may be NULL. Bags without EB_ROW_VECTOR take no longer than in
 * other jobs, and neither do bags of at most 1024 rows if the table is stored in its own type. In
 * other tables, bags of at most 512 rows are first read into rows of f32. The reference pools all
 * other bags.
 * Measured with AVX-512 and bags of 20 int8 rows of 128 elements in L2: 90 ns without
 * EB_ROW_VECTOR, 530 ns with it, 10 us by the reference. */
void eb_bag_vector_pool(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    const struct eb_bag_ahead *ahead);
