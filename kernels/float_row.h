/* Rows of floats narrower than f32: from f32 values to a row and back, in loops over a row that
 * compilers vectorize. The bits are the same as those of the functions in element.h that do the
 * same conversion.
 * Thread: pure functions. Memory: none; rows lie at any alignment. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>

/* Stores `elements` values as a row of F16, BF16, F8_E4M3 or F8_E5M2, each rounded once, to
 * nearest, ties to even. Subnormals and the sign of zero are kept; every NaN becomes the positive
 * quiet one. Values that are too large become infinite in F16 and BF16, as in IEEE 754. In both fp8
 * formats such values, and infinities, become the largest finite value, 448 or 57344 (the OCP
 * specification calls this saturating). With x a finite value and x' its stored value,
 *
 *             |x' - x| <=     for |x| from   to       below that   beyond it
 *   F16       2^-11 |x|       2^-14          65504    2^-25        infinite from 65520
 *   BF16      2^-8 |x|        2^-126         2^128    2^-134       infinite from 2^128 - 2^119
 *   F8_E4M3   2^-4 |x|        2^-6           448      2^-10        448
 *   F8_E5M2   2^-3 |x|        2^-14          57344    2^-17        57344
 */
void eb_float_row_narrow(enum eb_storage to, const float *values, uint32_t elements, void *row);

/* Returns the values of a row of F16, BF16, F8_E4M3 or F8_E5M2, exactly. Every NaN becomes a quiet
 * one. */
void eb_float_row_widen(enum eb_storage from, const void *row, uint32_t elements, float *values);
