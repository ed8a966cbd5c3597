/* The pool functions of AVX2, FMA and F16C, by storage.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

void eb_bag_avx2_f32(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_f64(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_f16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_bf16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_e4m3(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_e5m2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_int8(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_int4(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_int2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx2_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
