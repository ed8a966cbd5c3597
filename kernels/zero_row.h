/* The row that vector code reads in place of EB_ROW_ZERO: zeros. They are added with weight 1
 * instead of the bag's, and 1 * 0 + acc is acc + 0. The values have a file of their own: a compiler
 * that sees them makes a second path through each loop for them, and then no longer reads other
 * rows within the instructions that compute (36 instead of 24 cycles for 256 codes of 4 bits).
 * Thread: constants. Memory: static. */
#pragma once

#include "kernels/table.h"

/* Most bytes that the columns of one pass take. */
#define EB_ZERO_ROW_BYTES 1024

extern const uint8_t eb_zero_row[EB_ZERO_ROW_BYTES];
extern const struct eb_row_scale eb_zero_row_scale;
extern const float eb_zero_row_weight_f32;
extern const double eb_zero_row_weight_f64;
