#include <math.h>

#define ACC double
#define ACC_FMA fma
#define ACC_SQRT sqrt
#define ROW_FUNCTION eb_bag_ref_row_f64
#include "kernels/bag_ref_float.h"
