#include <math.h>

#define ACC float
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define ROW_FUNCTION eb_bag_ref_row_f32
#include "kernels/bag_ref_float.h"
