/* A table as the kernels see it, the layout of rows in the tables that we make ourselves, and the
 * zeros that stand for a missing row.
 * Thread: pure functions. Memory: borrowed; rows must not move while jobs use them. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>
#include <string.h>

/* The scale and bias of a row of codes. */
struct eb_row_scale {
    float scale;
    float bias;
};

struct eb_key_index;

/* A row number that names a table's default vector. */
#define EB_ROW_VECTOR INT64_C(-2)

struct eb_table {
    const struct eb_key_index *keys; /* index of the keys; NULL if indices are row numbers */
    const void *rows;          /* row r starts at rows + r * row_stride_bytes; any alignment */
    uint64_t row_count;        /* 0 is legal: every index is missing */
    uint64_t row_stride_bytes; /* at least eb_storage_row_bytes */
    /* NULL unless rows are codes. The eb_row_scale of row r is at scales + r * scale_stride_bytes,
     * at any alignment. Scales are in an array of their own, or next to their rows, so that one
     * page holds row and scale. */
    const void *scales;
    uint64_t scale_stride_bytes;
    uint32_t row_elements; /* product of the trailing dims, at least 1 */
    enum eb_storage storage;
    /* T: the storage's type. Rows of F16 and BF16 can also have F32; fp8 and codes can also have
     * F16 or BF16. */
    enum eb_type type;
    /* Row for unknown ids, or EB_ROW_VECTOR for the default vector; -1 if the table has none */
    int64_t unknown_row;
    /* The default vector, which fills empty bags unless a query names a row: row_elements values of
     * T, whatever the storage, at any alignment. NULL if the table has none */
    const void *vector;
};

/* Returns whether the members are consistent. The code that makes a table asserts this. Code that
 * reads a table checks only what keeps its reads within the rows. */
bool eb_table_is_sound(const struct eb_table *table);

/* Returns the scale of a row of a table of codes. */
static inline struct eb_row_scale eb_table_scale(const struct eb_table *table, uint64_t row)
{
    struct eb_row_scale scale;
    memcpy(&scale, (const uint8_t *)table->scales + row * table->scale_stride_bytes, sizeof scale);
    return scale;
}

/* The layout of rows in our own tables: the distance from one row to the next.
 *
 * The cost of reading a row from DRAM is that of the cache lines that it touches. A row of n bytes
 * touches at least ceil(n / 64) of them, and one more if it starts too far into its first one. With
 * a table base aligned to 64 and a stride S, rows start at all multiples of g = gcd(S, 64) within a
 * cache line, at most at 64 - g. No row touches one cache line more than it must if the r bytes of
 * its last cache line (1 to 64) fit after that offset, that is, if r <= g. The smallest such S is n
 * rounded up to a multiple of the smallest power of two that is at least r:
 *
 *   row bytes   r    rounded up to   stride
 *         400   16   16              400: full as it is
 *         272   16   16              272
 *         192   64   64              192
 *         104   40   64              128: at 104 every second row would touch 3 cache lines
 *         100   36   64              100: 128 would cost more than a quarter
 *          48   48   64               48: 64 would cost more than a quarter
 *          13   13   16               16
 *           8    8    8                8
 *
 * Padding makes a table larger, so that less of it is cached and more pages are needed. If it would
 * add more than a quarter, it is not worth it, and rows follow each other without gaps. If the row
 * bytes are a multiple of the element bytes (a power of two), so is the stride, and elements are as
 * aligned as the base. */

/* Least alignment of a table's base for which eb_row_stride keeps its promise. */
#define EB_ROW_LINE_BYTES 64

/* Returns the distance in bytes between rows of `row_bytes` (at least 1, at most 2^62). It is the
 * smallest stride with which no row touches more than ceil(row_bytes / 64) cache lines, if that is
 * at most row_bytes * 5 / 4; otherwise it is row_bytes. */
uint64_t eb_row_stride(uint64_t row_bytes);

/* The layout of a storage's rows in our own tables. Rows of codes are preceded by their scale and
 * bias. In a table of gigabytes the processor must look up each page that a row touches, and a
 * separate array of scales would add a second page. Measured with 2 GB of int8 rows of 128 columns:
 * 18 ns per row in this layout, 24 ns with a separate array. A separate array makes rows eight
 * bytes shorter, which is better if that array is cached. */
struct eb_row_format {
    uint64_t row_offset_bytes; /* offset of row 0's elements; its scale and bias are at 0 */
    uint64_t stride_bytes;     /* a multiple of 4 if there are scales */
    uint64_t bytes_max;        /* row r ends at or before r * stride_bytes + bytes_max */
};

struct eb_row_format eb_row_format_of(enum eb_storage storage, uint32_t elements);

/* The row that vector code reads in place of EB_ROW_ZERO (bag.h): zeros. The zeros are added with
 * weight 1 instead of the bag's weight, and 1 * 0 + acc is acc + 0. The values are in table.c, a
 * file without loops over rows. A compiler that sees the values while it compiles such a loop makes
 * a second path through the loop for them. The loop then no longer reads other rows as operands of
 * the instructions that compute, and is slower (36 instead of 24 cycles for 256 codes of 4 bits).
 * For the same reason the symbols are hidden: their addresses are then constants even in
 * position-independent code, and are not read from memory. */
#define EB_ZERO_ROW_BYTES 1024 /* most bytes of a row that one pass over its columns reads */

#pragma GCC visibility push(hidden)
extern const uint8_t eb_zero_row[EB_ZERO_ROW_BYTES];
extern const struct eb_row_scale eb_zero_row_scale;
extern const float eb_zero_row_weight_f32;
extern const double eb_zero_row_weight_f64;
#pragma GCC visibility pop
