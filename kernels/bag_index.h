/* The index pass: converts arrays of integers as they were received, of either width and at any
 * alignment, to the internal form. Each instruction set has its own functions, all with the same
 * outcome. They do not find out which entry of an array is wrong; bag_check.c does. Only
 * bag_check.c and the files that define a variant include this.
 * Thread: the tables are const, the functions pure. Memory: none. Inputs and outputs must not
 * overlap. */
#pragma once

#include "kernels/bag.h"

/* The order of the numbers of an array. */
enum eb_bag_order {
    EB_BAG_ORDER_ASCENDING,  /* no number is less than the one before it */
    EB_BAG_ORDER_DESCENDING, /* at least one number is less than the one before it */
    EB_BAG_ORDER_OUTSIDE     /* at least one number is outside the allowed range */
};

struct eb_bag_index_fns {
    /* Writes the row of every index to `rows`: the index itself if 0 <= index < row_count,
     * otherwise `missing_row`. Returns how many indices have no row. */
    uint64_t (*take_rows)(
        const struct eb_int_array *indices, uint64_t row_count, int64_t missing_row, int64_t *rows);
    /* Returns whether every index is a row number: 0 <= index < row_count, which is at most
     * INT64_MAX. Only for indices of 64 bits. */
    bool (*are_rows)(const struct eb_int_array *indices, uint64_t row_count);
    /* Finds the order of offsets or segment ids, and writes them to `starts` unless `starts` is
     * NULL. If one of them is outside 0 .. last, the contents of `starts` are meaningless. `last`
     * is at least -1 and fits 32 bits. */
    enum eb_bag_order (*take_bounds)(
        const struct eb_int_array *bounds, int64_t last, uint32_t *starts);
    /* Writes to starts [count + 1] the sum of the lengths before each bag and, at the end, the sum
     * of all lengths. Returns false if a length is negative or the last sum is not index_count. The
     * contents of starts are then meaningless. */
    bool (*take_lengths)(
        const struct eb_int_array *lengths, uint32_t index_count, uint32_t *starts);
    /* Does the same as eb_key_index_take_rows. */
    uint64_t (*take_keys)(
        const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);
};

extern const struct eb_bag_index_fns eb_bag_ref_index;
