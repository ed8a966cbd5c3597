/* FBGEMM's fused rows: codes with their scale and bias in the row itself. Ours lie apart
 * (quantize.h); these functions lead from one to the other.
 *
 *   layout      bytes of a row, in order                            in FBGEMM
 *   F32_LAST    codes, f32 scale, f32 bias                          8-bit, "SBFloat"
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

/* Whether FBGEMM may have written the row whose codes are at `row`, with this finite scale and
 * bias. A row of the wrong layout hardly passes: its scale is made of codes or of padding.
 *  - A positive scale is what a row of different values has.
 *  - Scale 0 goes with codes that are all 0: a row of equal values, with f32 scale and bias.
 *  - A negative scale comes with f16 alone, where rounding has put the bias above all values of a
 *    row that are nearly equal: then all codes together span less than the rounding of the bias. */
bool eb_fused_row_is_plausible(
    const struct eb_fused_format *format, const void *row, const struct eb_row_scale *scale);

/* The inverse. true: exact, as F32_LAST always is (of numbers), and F16 where
 * eb_quantize_row_f16_scale made the row. false: scale, bias or both had to be rounded to f16, to
 * nearest, ties to even: with e the relative error of rounding the scale and d the error of the
 * bias, values are off by e s q + d; e is at most 2^-11 for a scale of 2^-14 to 65504. */
bool eb_fused_row_join(const struct eb_fused_format *format, const void *row,
    const struct eb_row_scale *scale, void *fused);
