/* From f32 values to a row as a table stores it, and back: codes with a scale and a bias of their
 * own per row, fp8, f16, bf16.
 *
 * Codes of a row of values x, with L = 2^bits - 1, that is 255, 15 or 3:
 *
 *   b = the smallest x
 *   s = the smallest f32 with s * L >= the largest x - b; 0 where all are equal
 *   q = the integer nearest to (x - b) / s, ties up; 0 where s is 0
 *
 * Differences and quotients are taken in f64. What is read back is x' = fma(s, q, b), and
 *
 *   |s q + b - x| <= s (1/2 + 2^-42),  and x' is that s q + b rounded once to f32;
 *   s <= (largest - smallest) / L * (1 + 2^-23) + 2^-149;
 *   the smallest value, and every value of a row in which all are equal, comes back as it was
 *   (-0 as +0), and no value comes back infinite.
 *
 * Codes lie low bits first; the last byte's unused bits are 0.
 *
 * Thread: pure functions; threads may work on different rows of a table. Memory: none;
 * rows lie at any alignment (values as floats do) and are written and read to their last byte, no
 * further. */
#pragma once

#include "kernels/bag.h"

/* The largest difference between the values of a row that can become codes. Past it, what s was
 * rounded up by could take s * L + b out of f32. */
#define EB_QUANTIZE_RANGE_MAX 0x1p126f

/* Stores `elements` values (at least 1) as one row of eb_storage_row_bytes. `to` is a storage of
 * codes, which also sets *scale, or F32 (a copy), F16, BF16, F8_E4M3 or F8_E5M2, rounded as
 * float_row.h says, which leaves `scale` alone (it may be NULL). false, of codes only: a value is
 * not finite or the range is above EB_QUANTIZE_RANGE_MAX; row and *scale are as they were, and
 * eb_quantize_find_error says which value it is. */
bool eb_quantize_row(enum eb_storage to, const float *values, uint32_t elements, void *row,
    struct eb_row_scale *scale);

/* The same with a scale and a bias that f16 holds exactly, so that a fused row of FBGEMM
 * (fused_row.h) says the very same values. `to` is a storage of codes.
 *
 *   b = the largest finite f16 that is not above any x
 *   s = the smallest f16 with s * L >= the largest x - b
 *
 * and q as above: |s q + b - x| <= s (1/2 + 2^-42) holds again, with s now up to
 * (largest - b) / L * (1 + 2^-10) + 2^-24; the smallest value comes back as it was where f16 holds
 * it. false too where there is no such b or s: a value is below -65504, or more than 65504 L above
 * b. */
bool eb_quantize_row_f16_scale(enum eb_storage to, const float *values, uint32_t elements,
    void *row, struct eb_row_scale *scale);

/* Whether every value that codes of this storage can have with this scale and bias is finite. */
bool eb_quantize_scale_is_sound(enum eb_storage storage, const struct eb_row_scale *scale);

/* The position of the first value that keeps a row from becoming codes: one that is not finite, or
 * is more than EB_QUANTIZE_RANGE_MAX away from one before it. `elements` if there is none. */
uint32_t eb_quantize_find_error(const float *values, uint32_t elements);

/* The position of the first value that is too large for a storage that is not of codes: a finite
 * one that F16 or BF16 would make infinite, and for fp8 one more than half a step above the
 * largest, an infinite one too. eb_quantize_row takes it all the same. `elements` if there is none.
 */
uint32_t eb_quantize_find_excess(enum eb_storage to, const float *values, uint32_t elements);

/* The values of a row of any floating-point storage or of codes, whose *scale is read: exactly,
 * but for codes, fma(s, q, b) rounded once, and F64, rounded to f32. The way from one storage to
 * another leads through this and eb_quantize_row. */
void eb_dequantize_row(enum eb_storage from, const void *row, const struct eb_row_scale *scale,
    uint32_t elements, float *values);
