/* FBGEMM's fused rows: codes with their scale and bias in the row itself. In our rows, scale and
 * bias are separate from the codes (quantize.h). These functions convert from one format to the
 * other.
 *
 *   layout      bytes of a row, in order                            in FBGEMM
 *   F32_LAST    codes, f32 scale, f32 bias                          8-bit, "SBFloat"
 *   F32_ALIGNED the same, codes padded to 4 bytes with zeros        8-bit, on GPUs
 *   F16_LAST    codes, f16 scale, f16 bias                          4- and 2-bit, "SBHalf"
 *   F16_FIRST   f16 scale, f16 bias, codes                          table-batched, all widths
 *
 * The codes are the same as ours, to the bit: unsigned, low bits first, the last byte padded.
 * FBGEMM reads a value as fma(s, q, b), as we do. On processors without AVX2 it computes in f64,
 * which may give a neighbouring f32. Rows follow each other without gaps, or at a stride that the
 * file's reader knows (table-batched rows are padded to 16 bytes on some devices). Within a row
 * nothing is aligned.
 *
 * Thread: pure functions. Memory: none. Exactly a row's bytes are read and written. The fused row
 * and our row must not overlap. */
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

/* The format of a fused table's rows. Every storage of codes can be combined with every layout. */
struct eb_fused_format {
    enum eb_storage storage; /* INT8, INT4 or INT2 */
    enum eb_fused_layout layout;
    uint32_t elements; /* count of a row's elements, at least 1 */
};

/* Returns the size of a fused row, without padding between rows. */
uint64_t eb_fused_row_bytes(const struct eb_fused_format *format);

/* Splits a fused row: writes its codes to `row` (eb_storage_row_bytes), and its scale and bias,
 * widened exactly, to *scale. Scale and bias are not checked: a file may contain infinities and
 * NaNs. */
void eb_fused_row_split(
    const struct eb_fused_format *format, const void *fused, void *row, struct eb_row_scale *scale);

/* What a row's scale indicates about whether the layout is the right one. A scale that is read from
 * the wrong offset consists of codes, which make it negative in every other row, or of padding,
 * which makes it 0. */
enum eb_fused_sign {
    EB_FUSED_UNCODED,  /* nothing: all codes are 0, which is compatible with any scale */
    EB_FUSED_POSITIVE, /* the scale is above 0, or below 0 by no more than FBGEMM's rounding
                          explains: if all values of a row are nearly equal, rounding to f16 may
                          move the bias above them. All codes together then span less than the
                          rounding error of the bias */
    EB_FUSED_ZERO,     /* the scale is 0. FBGEMM writes such rows: it makes 8-bit codes with an f32
                          scale, which becomes 0 as f16 if a row spans less than 7.6e-6 */
    EB_FUSED_NEGATIVE  /* the scale is below 0 by more than rounding explains. FBGEMM writes no such
                          row */
};

/* Returns the sign of the row whose codes are at `row`, with this finite scale and bias. */
enum eb_fused_sign eb_fused_row_sign(
    const struct eb_fused_format *format, const void *row, const struct eb_row_scale *scale);

/* Counts of the signs of a table's rows; zeroed before the first row is counted. */
struct eb_fused_counters {
    uint64_t coded;    /* rows whose codes are not all 0 */
    uint64_t zero;     /* coded rows with EB_FUSED_ZERO */
    uint64_t negative; /* coded rows with EB_FUSED_NEGATIVE */
};

/* Counts a row. */
void eb_fused_counters_add(struct eb_fused_counters *counters, enum eb_fused_sign sign);
/* Returns whether a table may have rows like these. It may not if more than a quarter of the coded
 * rows are negative, or if there are coded rows and all of them are negative or zero. */
bool eb_fused_counters_is_plausible(const struct eb_fused_counters *counters);

/* Joins codes, scale and bias into a fused row. Returns true if that is exact: always with F32_LAST
 * (unless scale or bias is a NaN), and with F16 if eb_quantize_row_f16_scale made the row. Returns
 * false if scale, bias or both had to be rounded to f16, to nearest, ties to even. With e the
 * relative error of rounding the scale and d the error of the bias, values are then off by e s q +
 * d; e is at most 2^-11 for a scale of 2^-14 to 65504. */
bool eb_fused_row_join(const struct eb_fused_format *format, const void *row,
    const struct eb_row_scale *scale, void *fused);
