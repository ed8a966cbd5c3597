#include "kernels/zero_row.h"

const uint8_t eb_zero_row[EB_ZERO_ROW_BYTES] = {0};
const struct eb_row_scale eb_zero_row_scale = {1, 0};
const float eb_zero_row_weight_f32 = 1;
const double eb_zero_row_weight_f64 = 1;
