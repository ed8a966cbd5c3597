/* f64 rows with AVX2. */
#include "kernels/x86/vec_f64_avx2.h"

#define ACC double
#define ACC_TYPE EB_F64
#define ACC_FMA fma
#define ACC_SQRT sqrt
#define ACC_ZERO_ROW_WEIGHT eb_zero_row_weight_f64
#include "kernels/bag_float_tmpl.c"

DEFINE_RARE_POOL(EB_STORAGE_F64, f64, eb_bag_avx2_f64)
