/* Random tables between guard pages.
 * Thread: one only. Memory: a table is valid in its table_memory until the next one is drawn. */
#pragma once

#include "kernels/key_index.h"
#include "tests/variants/variant_draw.h"
#include "tests/variants/variant_memory.h"

#define TABLE_ROWS_MAX 24
#define TABLE_DIM_MAX 4099

struct table_memory {
    struct guarded rows;
    struct guarded far_rows; /* rows beyond the reach of 32 bits; zero if the system refuses it */
    struct guarded scales;
    struct guarded key_index;
    struct guarded vector;
    struct eb_key_index keys;
};

void table_memory_init(struct table_memory *memory);
void table_memory_deinit(struct table_memory *memory);

/* Draws a table with rows of `dim` elements, of any alignment and stride, with scales if the rows
 * are codes, and in half of all trials with a default vector. */
struct eb_table table_draw(
    const struct table_memory *memory, enum eb_storage storage, enum eb_type type, uint32_t dim);

/* Returns the key of row `row` in a keyed table. It fits in 32 bits if the row number does. */
int64_t table_key(int64_t row);

/* Turns the table into a keyed table, whose keys are those of table_key. */
void table_use_keys(struct table_memory *memory, struct eb_table *table);
