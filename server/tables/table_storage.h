/* How the rows of a table will lie in memory: as its files have them, or as the model's description
 * wants them.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "server/tables/planned_table.h"

/* Sets type, storage, row sizes and is_fused of a table whose name, config and tensor are there and
 * whose first piece is `piece`; of a fused one also the tensor's storage and shape, which become
 * those of its values. false: *failure says why it cannot be stored so. */
bool eb_table_storage_choose(
    struct eb_planned_table *table, const struct eb_piece *piece, struct eb_failure *failure);

/* How the fused rows in a tensor lie that are of a format, one with fused rows, and have `dim`
 * values, or as many as their codes fill where that is 0. TorchRec's formats need it: their rows
 * may be longer than that needs, and those of FBGEMM_INT8 may have up to 3 bytes between codes and
 * scale. false: *failure says why they cannot be such, without saying where. */
bool eb_table_storage_find_fused(enum eb_model_format name, uint32_t dim,
    const struct eb_tensor *tensor, struct eb_fused_format *format, struct eb_failure *failure);

/* A check of a table's fused rows, zeroed at first. */
struct eb_table_storage_check {
    struct eb_fused_counters counters;
    uint64_t row; /* number of the first one whose scale is zero or negative */
    struct eb_row_scale scale;
};

/* Adds row `number`, which has been taken apart, its codes at `codes`. false: scale or bias is not
 * finite; *failure names them, and the formats that may have been meant, but not the row. */
bool eb_table_storage_check_row(struct eb_table_storage_check *check,
    const struct eb_fused_format *format, uint64_t number, const void *codes,
    const struct eb_row_scale *scale, struct eb_failure *failure);
/* Judges all rows together. false: the table has another format; *failure says what is wrong with
 * row check->row, without its number, and how many rows are like it. */
bool eb_table_storage_check_end(const struct eb_table_storage_check *check,
    const struct eb_fused_format *format, struct eb_failure *failure);
