/* Rows of codes with AVX-512. */
#include "kernels/bag_avx512.h"

#include "kernels/vec_avx512.h"

#define ACC float
#define ACC_TYPE EB_F32
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define ACC_ZERO_ROW_WEIGHT eb_zero_row_weight_f32
#include "kernels/bag_pool.h"

DEFINE_POOL(EB_STORAGE_INT8, int8, eb_bag_avx512_int8)
DEFINE_POOL(EB_STORAGE_INT4, int4, eb_bag_avx512_int4)
DEFINE_POOL(EB_STORAGE_INT2, int2, eb_bag_avx512_int2)
