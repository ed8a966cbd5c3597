/* Random tables between guard pages.
 * Thread: one only. Memory: a table lies in its table_memory until the next one is drawn. */
#pragma once

#include "kernels/key_build.h"
#include "tests/variants/variant_draw.h"
#include "tests/variants/variant_memory.h"

#define TABLE_ROWS_MAX 24
#define TABLE_DIM_MAX 4099

struct table_memory {
    struct guarded rows;
    struct guarded far_rows; /* past what 32 bits address; zero where the system refuses it */
    struct guarded scales;
    struct guarded key_index;
    struct eb_key_index keys;
};

void table_memory_init(struct table_memory *memory);
void table_memory_deinit(struct table_memory *memory);

/* Draws rows of `dim` elements, at any alignment and distance, and scales where rows are codes. */
struct eb_table table_draw(
    const struct table_memory *memory, enum eb_storage storage, enum eb_type type, uint32_t dim);

/* The key that row `row` has in a table with keys; of 32 bits where the row is. */
int64_t table_key(int64_t row);

/* Gives every row of the table its key. */
void table_use_keys(struct table_memory *memory, struct eb_table *table);
