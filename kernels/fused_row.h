/* FBGEMM's fused rows: codes with their scale and bias in the row itself. Ours lie apart
 * (quantize.h); these functions lead from one to the other.
 *
 *   layout      bytes of a row, in order                            in FBGEMM
 *   F32_LAST    codes, f32 scale, f32 bias                          8-bit, "SBFloat"
 *   F32_ALIGNED the same, codes filled up to 4 bytes with zeros     8-bit, on GPUs
 *   F16_LAST    codes, f16 scale, f16 bias                          4- and 2-bit, "SBHalf"
 *   F16_FIRST   f16 scale, f16 bias, codes                          table-batched, all widths
 *
 * Codes are ours to the bit: unsigned, low bits first, the last byte filled up. FBGEMM reads a
 * value as fma(s, q, b), as we do, or on processors without AVX2 by way of f64, which may give a
 * neighbouring f32. Rows follow each other without gaps, or at a stride that the file's reader
 * knows (table-batched rows are padded to 16 bytes on some devices); within a row nothing is
 * aligned.
 *
 * Thread: pure functions. Memory: none; exactly a row's bytes are read and written, and fused and
 * own row do not overlap. */
#pragma once

#include "kernels/bag.h"

#include <stdbool.h>
#include <stdint.h>

enum eb_fused_layout {
    EB_FUSED_F32_LAST,
    EB_FUSED_F32_ALIGNED,
    EB_FUSED_F16_LAST,
    EB_FUSED_F16_FIRST,
    EB_FUSED_LAYOUT_COUNT
};

/* How a fused table's rows lie; any storage of codes goes with any layout. */
struct eb_fused_format {
    enum eb_storage storage; /* INT8, INT4 or INT2 */
    enum eb_fused_layout layout;
    uint32_t elements; /* of a row, at least 1 */
};

/* Bytes of a fused row, padding between rows not counted. */
uint64_t eb_fused_row_bytes(const struct eb_fused_format *format);

/* Takes a fused row apart: its codes into `row` (eb_storage_row_bytes), scale and bias, widened
 * exactly, into *scale. They are what the row says: a file may say infinities and NaNs. */
void eb_fused_row_split(
    const struct eb_fused_format *format, const void *fused, void *row, struct eb_row_scale *scale);

/* Tells from a row's scale whether the layout fits. A scale that is read from the wrong place
 * consists of codes, which make it negative in every other row, or of padding, which makes it 0. */
enum eb_fused_sign {
    EB_FUSED_UNCODED,  /* nothing: all codes are 0, and any scale goes with them */
    EB_FUSED_POSITIVE, /* the scale is above 0, or below it by no more than FBGEMM's rounding: f16
                          may put the bias above all values of a row that are nearly equal. Then
                          all codes together span less than the rounding of the bias */
    EB_FUSED_ZERO,     /* the scale is 0. FBGEMM writes such rows: it makes 8-bit codes with an f32
                          scale, which becomes 0 as f16 where a row spans less than 7.6e-6 */
    EB_FUSED_NEGATIVE  /* the scale is below 0 by more than that. FBGEMM writes no such row */
};

/* Returns this of the row whose codes are at `row`, with this finite scale and bias. */
enum eb_fused_sign eb_fused_row_sign(
    const struct eb_fused_format *format, const void *row, const struct eb_row_scale *scale);

/* The signs of a table's rows together, zeroed at first. */
struct eb_fused_counters {
    uint64_t coded; /* rows whose codes are not all 0 */
    uint64_t zero;  /* of these, by sign */
    uint64_t negative;
};

/* Counts a row. */
void eb_fused_counters_add(struct eb_fused_counters *counters, enum eb_fused_sign sign);
/* Returns whether a table may have these rows. It may not if more than a quarter of the coded rows
 * are negative, or if there are coded rows and all of them are negative or zero. */
bool eb_fused_counters_is_plausible(const struct eb_fused_counters *counters);

/* The inverse. true: exact, as F32_LAST always is (of numbers), and F16 where
 * eb_quantize_row_f16_scale made the row. false: scale, bias or both had to be rounded to f16, to
 * nearest, ties to even: with e the relative error of rounding the scale and d the error of the
 * bias, values are off by e s q + d; e is at most 2^-11 for a scale of 2^-14 to 65504. */
bool eb_fused_row_join(const struct eb_fused_format *format, const void *row,
    const struct eb_row_scale *scale, void *fused);
