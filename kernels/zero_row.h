/* What vector code reads in place of a row that is EB_ROW_ZERO: zeros, which are added, not
 * weighted, and 1 * 0 + acc is acc + 0. The values stand in a file of their own because a compiler
 * that sees them makes a second way through each loop for them, and then no longer reads other rows
 * within the instructions that compute: 36 instead of 24 cycles for 256 codes of 4 bits.
 * Thread: constants. Memory: static. */
#pragma once

#include "kernels/table.h"

/* Columns that are pooled in one pass take at most so many. */
#define EB_ZERO_ROW_BYTES 1024

extern const uint8_t eb_zero_row[EB_ZERO_ROW_BYTES];
extern const struct eb_row_scale eb_zero_row_scale;
extern const float eb_zero_row_weight_f32;
extern const double eb_zero_row_weight_f64;
