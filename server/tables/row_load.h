/* The rows of a planned table, from its files to their place in memory, converted where the model's
 * description or a fused format wants it.
 * Thread: one at a time. Memory: some MiB of the heap while rows are converted. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/planned_table.h"
#include "server/tables/table_digest.h"

struct eb_row_load {
    const struct eb_table_plan *plan;
    const struct eb_planned_table *table;
    uint8_t *rows; /* room for table->rows_bytes, zeroed */
    struct eb_load_meter *meter;
    struct eb_table_digest *digest; /* is told of all rows, in order */
};

/* false: *failure names the file and what is wrong with it, or the row that cannot become codes. */
bool eb_row_load(const struct eb_row_load *load, struct eb_failure *failure);
/* Reads and converts as long as it comes to what is at `resident`; load->rows is not used. false:
 * as above. */
bool eb_row_load_compare(const struct eb_row_load *load, const uint8_t *resident, bool *is_same,
    struct eb_failure *failure);
