/* Rows whose sums are f32 with 256-bit vectors of AVX-512VL: f32, f16, bf16, fp8 and codes. The
 * vectors are those of AVX2; the compiler has 32 registers for them instead of 16. */
#include "kernels/x86/vec_avx2.h"

#define ACC float
#define ACC_TYPE EB_F32
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define ACC_ZERO_ROW_WEIGHT eb_zero_row_weight_f32
#include "kernels/bag_float_tmpl.c"

DEFINE_POOL(EB_STORAGE_F32, f32, eb_bag_avx512vl_f32)
DEFINE_POOL(EB_STORAGE_F16, f16, eb_bag_avx512vl_f16)
DEFINE_POOL(EB_STORAGE_BF16, bf16, eb_bag_avx512vl_bf16)
DEFINE_RARE_POOL(EB_STORAGE_F8_E4M3, e4m3, eb_bag_avx512vl_e4m3)
DEFINE_RARE_POOL(EB_STORAGE_F8_E5M2, e5m2, eb_bag_avx512vl_e5m2)
DEFINE_POOL(EB_STORAGE_INT8, int8, eb_bag_avx512vl_int8)
DEFINE_POOL(EB_STORAGE_INT4, int4, eb_bag_avx512vl_int4)
DEFINE_RARE_POOL(EB_STORAGE_INT2, int2, eb_bag_avx512vl_int2)
