/* Where rows of our own tables lie: the distance from one row to the next.
 *
 * A row read from DRAM costs what the cache lines it touches cost. A row of n bytes touches at
 * least ceil(n / 64) of them, and one more where it starts too far into its first line. With a
 * table base aligned to 64 and a stride S, rows start at all multiples of g = gcd(S, 64) within a
 * line, the furthest at 64 - g; none straddles more than it must if the last line's r bytes
 * (1 to 64) fit behind that, that is if r <= g. The smallest such S is n rounded up to the smallest
 * power of two that is at least r:
 *
 *   row bytes   r    rounded up to   stride
 *         400   16   16              400: full as it is
 *         272   16   16              272
 *         192   64   64              192
 *         104   40   64              128: at 104 every second row would touch three lines
 *         100   36   64              100: 128 would cost more than a quarter
 *          48   48   64               48: likewise
 *          13   13   16               16
 *           8    8    8                8
 *
 * Padding makes a table larger, and what is cached or lies in few pages rarer; past a quarter more
 * it is not worth it, and rows then lie one right after the other. Where row bytes are a multiple
 * of an element's (a power of two), so is the stride: elements stay as aligned as the base is.
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/table.h"

/* What a table's base is aligned to, at least, for the stride's promise to hold. */
#define EB_ROW_LINE_BYTES 64

/* Bytes from one row of `row_bytes` (at least 1, at most 2^62) to the next: the smallest stride
 * with which no row touches more than ceil(row_bytes / 64) cache lines if that is at most
 * row_bytes * 5 / 4, otherwise row_bytes. */
uint64_t eb_row_stride(uint64_t row_bytes);

/* How rows of a storage lie in our own tables. Codes have their scale and bias in front of them:
 * in a table of gigabytes each page that a row touches has to be looked up, and a second array
 * would be a second page. Measured with 2 GB of int8, 128 columns: 18 ns a row so, 24 apart. In an
 * array apart rows are shorter by eight bytes, which is worth more where that array is cached. */
struct eb_row_format {
    uint64_t row_offset_bytes; /* of the elements of row 0; its scale and bias lie at 0 */
    uint64_t stride_bytes;     /* a multiple of 4 where there are scales */
    uint64_t bytes_max;        /* row r occupies no byte from r * stride_bytes + this on */
};

struct eb_row_format eb_row_format_of(enum eb_storage storage, uint32_t elements);
