/* The pool functions of Advanced SIMD, by storage.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

void eb_bag_neon_f32(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_f64(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_f16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_bf16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_e4m3(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_e5m2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_int8(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_int4(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_int2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_neon_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
