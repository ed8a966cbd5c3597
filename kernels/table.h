/* A table as the arithmetic sees it.
 * Thread: pure functions. Memory: borrowed; rows stay where they are while jobs use them. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>
#include <string.h>

/* Of a row of codes. */
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
    /* Codes only, else NULL: an eb_row_scale of row r at scales + r * scale_stride_bytes, any
     * alignment. In an array of their own, or with each row: then one page holds both. */
    const void *scales;
    uint64_t scale_stride_bytes;
    uint32_t row_elements; /* flattened trailing dims, at least 1 */
    enum eb_storage storage;
    /* T: the storage's; of F16 and BF16 rows F32 too, of fp8 and codes F16 and BF16 too. */
    enum eb_type type;
    int64_t unknown_row; /* row for unknown ids, -1: the table has none */
};

/* Whether its members go together: what whoever makes a table asserts, for those that read it only
 * look at what keeps them within its rows. */
bool eb_table_is_sound(const struct eb_table *table);

/* Of a row of a table of codes. */
static inline struct eb_row_scale eb_table_scale(const struct eb_table *table, uint64_t row)
{
    struct eb_row_scale scale;
    memcpy(&scale, (const uint8_t *)table->scales + row * table->scale_stride_bytes, sizeof scale);
    return scale;
}
