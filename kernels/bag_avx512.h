/* The pool functions of AVX-512 F, BW, VL and DQ, by storage.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

void eb_bag_avx512_f32(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_f64(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_f16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_bf16(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_e4m3(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_e5m2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_int8(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_int4(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_int2(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
void eb_bag_avx512_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);
