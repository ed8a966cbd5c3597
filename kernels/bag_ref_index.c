#include "kernels/bag_index_plain.h"
#include "kernels/key_index.h"

static uint64_t take_ref_rows(
    const struct eb_int_array *indices, uint64_t row_count, int64_t missing_row, int64_t *rows)
{
    return indices->width == 4 ? plain_take_rows(4, indices, row_count, missing_row, rows)
                               : plain_take_rows(8, indices, row_count, missing_row, rows);
}

static enum eb_bag_order take_bounds(
    const struct eb_int_array *bounds, int64_t last, uint32_t *starts)
{
    return bounds->width == 4 ? plain_take_bounds(4, bounds, last, starts)
                              : plain_take_bounds(8, bounds, last, starts);
}

static bool take_lengths(const struct eb_int_array *lengths, uint32_t index_count, uint32_t *starts)
{
    starts[0] = 0;
    return lengths->width == 4 ? plain_take_lengths(4, lengths, 0, index_count, starts)
                               : plain_take_lengths(8, lengths, 0, index_count, starts);
}

const struct eb_bag_index_fns eb_bag_ref_index = {
    .take_rows = take_ref_rows,
    .take_bounds = take_bounds,
    .take_lengths = take_lengths,
    .take_keys = eb_key_index_take_rows,
};
