/* Decides how the rows of a table are stored in memory: as in its files, or as the model's
 * description requires.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "server/tables/planned_table.h"

/* Sets type, storage, row sizes and is_fused of a table. Its name, config and tensor must be set;
 * `piece` is its first piece. For a fused table also sets the tensor's storage and shape to those
 * of its values. Returns false, with the reason in *failure, if the table cannot be stored as
 * required. */
bool eb_table_storage_choose(
    struct eb_planned_table *table, const struct eb_piece *piece, struct eb_failure *failure);

/* Finds the layout of the fused rows in a tensor. The format must be one with fused rows. `dim` is
 * the number of values in a row, or 0 if there are as many as its codes can fill. TorchRec's
 * formats need `dim`, because their rows may be longer than the values need. Rows of FBGEMM_INT8
 * may have up to 3 bytes between codes and scale. Returns false, with the reason but no path in
 * *failure, if the tensor cannot hold such rows. */
bool eb_table_storage_find_fused(enum eb_model_format name, uint32_t dim,
    const struct eb_tensor *tensor, struct eb_fused_format *format, struct eb_failure *failure);

/* Finds the storage and the number of values of rows that hold only codes. The format must be one
 * of those. `dim` is as above, but rows have no padding. Sets *format, except its layout. Returns
 * false, with the reason but no path in *failure, if the tensor cannot hold such rows. */
bool eb_table_storage_find_codes(enum eb_model_format name, uint32_t dim,
    const struct eb_tensor *tensor, struct eb_fused_format *format, struct eb_failure *failure);
/* Returns the layout with which scales of this storage, F32 or F16, are checked: it tells how far
 * they may have been rounded. */
enum eb_fused_layout eb_table_storage_scales_layout(enum eb_storage scales);

/* A check of the scales of a table that is read from codes, zeroed at first. */
struct eb_table_storage_check {
    bool has_scales; /* scales and biases are in separate tensors; this changes only error texts */
    struct eb_fused_counters counters;
    uint64_t row; /* number of the first row whose scale is zero or negative */
    struct eb_row_scale scale;
};

/* Adds row `number`, whose codes are at `codes`. Returns false if its values are not finite:
 * *failure names scale, bias and the formats that may have been meant, but not the row. */
bool eb_table_storage_check_row(struct eb_table_storage_check *check,
    const struct eb_fused_format *format, uint64_t number, const void *codes,
    const struct eb_row_scale *scale, struct eb_failure *failure);
/* Adds the results for the rows of `part` to *check. Parts may be added in any order. */
void eb_table_storage_check_join(
    struct eb_table_storage_check *check, const struct eb_table_storage_check *part);
/* Checks all rows together. Returns false if the table has another format: *failure describes the
 * problem of row check->row, without its number, and how many rows have the same problem. */
bool eb_table_storage_check_end(const struct eb_table_storage_check *check,
    const struct eb_fused_format *format, struct eb_failure *failure);
