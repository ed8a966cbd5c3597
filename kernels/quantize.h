/* Converts f32 values to a row as a table stores it, and back: codes with a scale and a bias per
 * row, fp8, f16, bf16.
 *
 * The codes of a row of values x, with L = 2^bits - 1 (255, 15 or 3), are:
 *
 *   b = the smallest x
 *   s = the smallest f32 with s * L >= the largest x - b; 0 if all are equal
 *   q = the integer nearest to (x - b) / s, ties up; 0 if s is 0
 *
 * Differences and quotients are computed in f64. The value read back is x' = fma(s, q, b), and
 *
 *   |s q + b - x| <= s (1/2 + 2^-42),  and x' is that s q + b rounded once to f32;
 *   s <= (largest - smallest) / L * (1 + 2^-23) + 2^-149;
 *   the smallest value, and every value of a row in which all are equal, comes back unchanged
 *   (-0 as +0), and no value comes back infinite.
 *
 * Codes fill each byte from its low bits on; the last byte's unused bits are 0.
 *
 * eb_quantize_rows has a variant for each instruction set. The other functions are plain C.
 *
 * Thread: pure functions; threads may work on different rows of a table. Memory: none. Rows lie at
 * any alignment (values at that of floats), and no byte past the end of a row is written or
 * read. */
#pragma once

#include "kernels/bag.h"

/* Largest difference between the values of a row that can become codes. With a larger difference,
 * rounding s up could take s * L + b out of the range of f32. */
#define EB_QUANTIZE_RANGE_MAX 0x1p126f

struct eb_bag_ops;

/* A conversion of a table's rows from one storage to another. */
struct eb_quantize_job {
    enum eb_storage from; /* any floating-point storage, except codes */
    enum eb_storage to;   /* as for eb_quantize_row */
    uint32_t elements;    /* values of a row, at least 1 */
    size_t from_stride_bytes;
    size_t to_stride_bytes;
    size_t to_offset_bytes; /* offset of the elements in a row that is written. If they are codes,
                               scale and bias are written before them, at offset 0 */
    float *values;          /* memory for the values of a row; may be NULL if `from` is F32 */
};

/* Converts `count` rows with the functions of `ops`. The result is bit for bit that of
 * eb_dequantize_row and eb_quantize_row. Rows of F32 must be aligned as floats are. Returns
 * `count`, or the position of the first row that cannot be converted, because
 * eb_quantize_find_excess finds a value in it that is too large, or because eb_quantize_row refuses
 * it. In `out`, that row and all later ones are then undefined. */
uint64_t eb_quantize_rows(const struct eb_bag_ops *ops, const struct eb_quantize_job *job,
    const uint8_t *rows, uint64_t count, uint8_t *out);

/* Stores `elements` values (at least 1) as one row of eb_storage_row_bytes. If `to` is
 * a storage of codes, this also sets *scale. Otherwise `to` is F32 (a copy), F16, BF16, F8_E4M3 or
 * F8_E5M2; values are rounded as float_row.h describes, and `scale` is ignored and may be NULL.
 * Fails only for codes: returns false if a value is not finite, or if the values span more than
 * EB_QUANTIZE_RANGE_MAX. The row and *scale are then unchanged, and eb_quantize_find_error returns
 * the position of the offending value. */
bool eb_quantize_row(enum eb_storage to, const float *values, uint32_t elements, void *row,
    struct eb_row_scale *scale);

/* Does the same as eb_quantize_row with a scale and a bias that f16 holds exactly, so that a fused
 * row of FBGEMM (fused_row.h) has exactly the same values. `to` must be a storage of codes.
 *
 *   b = the largest finite f16 that is not above any x
 *   s = the smallest f16 with s * L >= the largest x - b
 *
 * and q as above: |s q + b - x| <= s (1/2 + 2^-42) holds again, with s now up to
 * (largest - b) / L * (1 + 2^-10) + 2^-24. The smallest value comes back unchanged if f16 holds it.
 * Also returns false if there is no such b or s, because a value is below -65504, or more than
 * 65504 L above b. */
bool eb_quantize_row_f16_scale(enum eb_storage to, const float *values, uint32_t elements,
    void *row, struct eb_row_scale *scale);

/* Returns whether all values that codes of this storage can have with this scale and bias are
 * finite. */
bool eb_quantize_scale_is_sound(enum eb_storage storage, const struct eb_row_scale *scale);

/* Returns the position of the first value that keeps a row from becoming codes: a value that is not
 * finite, or that is more than EB_QUANTIZE_RANGE_MAX away from a value before it. Returns
 * `elements` if there is no such value. */
uint32_t eb_quantize_find_error(const float *values, uint32_t elements);

/* Returns the position of the first value that is too large for a storage other than codes. For F16
 * and BF16 that is a finite value that would become infinite. For fp8 it is a value more than half
 * a step above the largest, including infinity. eb_quantize_row stores such values all the same.
 * Returns `elements` if there is none. */
uint32_t eb_quantize_find_excess(enum eb_storage to, const float *values, uint32_t elements);

/* Returns the values of a row of any floating-point storage, or of codes, for which *scale is read.
 * Values are exact, except those of codes, which are fma(s, q, b) rounded once, and those of F64,
 * which are rounded to f32. */
void eb_dequantize_row(enum eb_storage from, const void *row, const struct eb_row_scale *scale,
    uint32_t elements, float *values);
