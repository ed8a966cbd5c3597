/* The index pass: arrays of integers off the wire, of either width and any alignment, brought to
 * the internal form by each instruction set in its own way and with one outcome. What exactly is
 * wrong with an array, bag_check.c finds out. Only it and the files that define a variant include
 * this.
 * Thread: the tables are const, the functions pure. Memory: none; what is read and what is written
 * do not overlap. */
#pragma once

#include "kernels/bag.h"

/* How the numbers of an array follow each other. */
enum eb_bag_order {
    EB_BAG_ORDER_ASCENDING,  /* none is less than the one before it */
    EB_BAG_ORDER_DESCENDING, /* one is */
    EB_BAG_ORDER_OUTSIDE     /* one is outside the range that is allowed */
};

struct eb_bag_index_fns {
    /* Writes the row of every index to rows: itself where 0 <= index < row_count, else
     * `missing_row`. Returns how many have none. */
    uint64_t (*take_rows)(
        const struct eb_int_array *indices, uint64_t row_count, int64_t missing_row, int64_t *rows);
    /* Writes offsets, or segment ids, to starts (NULL: nowhere), unless one of them is outside
     * 0 .. last; starts then holds nothing of use. `last` is at least -1 and fits 32 bits. */
    enum eb_bag_order (*take_bounds)(
        const struct eb_int_array *bounds, int64_t last, uint32_t *starts);
    /* Writes the sum of the lengths before each bag, and of all, to starts [count + 1]. false: a
     * length is negative or the last sum is not index_count; starts then holds nothing of use. */
    bool (*take_lengths)(
        const struct eb_int_array *lengths, uint32_t index_count, uint32_t *starts);
    /* eb_key_index_take_rows. */
    uint64_t (*take_keys)(
        const struct eb_key_index *index, int64_t missing_row, int64_t *keys, uint64_t count);
};

extern const struct eb_bag_index_fns eb_bag_ref_index;
/* In builds for x86-64 only. */
extern const struct eb_bag_index_fns eb_bag_avx2_index;
extern const struct eb_bag_index_fns eb_bag_avx512_index;
/* In builds for aarch64 only. */
extern const struct eb_bag_index_fns eb_bag_neon_index;
