/* Loads the rows of a planned table from its files to their destination in memory, and converts
 * them if the model's description or a fused format requires it.
 * Thread: one at a time. Memory: some MiB of the heap while rows are converted. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/planned_table.h"
#include "server/tables/table_digest.h"

struct eb_row_load {
    const struct eb_table_plan *plan;
    const struct eb_planned_table *table;
    uint8_t *rows; /* zeroed memory for the rows, table->rows_bytes */
    struct eb_load_meter *meter;
    struct eb_table_digest *digest; /* digest to which all rows are added, in order */
};

/* Loads the rows. Returns false if that fails: *failure names the file and what is wrong with it,
 * or the row that cannot be converted to codes. */
bool eb_row_load(const struct eb_row_load *load, struct eb_failure *failure);
/* Reads and converts rows until one differs from those at `resident`. Sets *is_same to whether
 * all are equal. load->rows is not used. Returns false in the same cases as eb_row_load. */
bool eb_row_load_compare(const struct eb_row_load *load, const uint8_t *resident, bool *is_same,
    struct eb_failure *failure);
