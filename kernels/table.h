/* A table as the kernels see it.
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

struct eb_table {
    const struct eb_key_index *keys; /* NULL: indices are row numbers */
    const void *rows;          /* row r starts at rows + r * row_stride_bytes; any alignment */
    uint64_t row_count;        /* 0 is legal: every index is missing */
    uint64_t row_stride_bytes; /* at least eb_storage_row_bytes */
    /* For codes only, else NULL: the eb_row_scale of row r is at scales + r * scale_stride_bytes,
     * at any alignment. Scales have an array of their own, or lie next to their rows: then one page
     * holds both. */
    const void *scales;
    uint64_t scale_stride_bytes;
    uint32_t row_elements; /* product of the trailing dims, at least 1 */
    enum eb_storage storage;
    /* T: the storage's type. Rows of F16 and BF16 can also have F32; fp8 and codes can also have
     * F16 or BF16. */
    enum eb_type type;
    int64_t unknown_row; /* row for unknown ids; -1: the table has none */
};

/* Returns whether the members are consistent. The maker of a table asserts this. Its readers only
 * check what keeps them within the rows. */
bool eb_table_is_sound(const struct eb_table *table);

/* Returns the scale of a row of a table of codes. */
static inline struct eb_row_scale eb_table_scale(const struct eb_table *table, uint64_t row)
{
    struct eb_row_scale scale;
    memcpy(&scale, (const uint8_t *)table->scales + row * table->scale_stride_bytes, sizeof scale);
    return scale;
}
