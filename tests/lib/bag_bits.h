/* A model of the operation (kernels/bag.h) for tests: computes one bag step by step in the
 * accumulator's type, with fmaf, fma, sqrtf and sqrt of the C library. The table may be divided
 * among parts. Written for clarity, without a line of the kernels' pooling; only single elements
 * are loaded and stored by kernels/element.h.
 * Thread: one. Memory: none kept. */
#pragma once

#include "kernels/bag.h"

/* One row of a bag, in index order. Skipped indices are left out. */
struct bag_bits_row {
    int64_t row;      /* of the whole table, or EB_ROW_ZERO or EB_ROW_VECTOR */
    uint32_t part;    /* that it lies in; of EB_ROW_VECTOR the part after the last one, unless a
                         part's server put it in place of a key */
    double weight;    /* of a floating-point table; widened, so exact in the accumulator's type */
    uint64_t integer; /* the weight of an integer table */
};

struct bag_bits {
    const struct eb_table *table; /* the whole table */
    uint32_t parts;               /* 0: the table is not divided */
    enum eb_reduction reduction;
    enum eb_type output_type;
    bool has_weights;
    int64_t default_row; /* fills an empty bag: a row, EB_ROW_VECTOR, or -1 for zeros */
};

/* Computes the result of a bag: row_elements values of output_type. With NONE, `count` must be 1:
 * each index is a bag. */
void bag_bits_pool(
    const struct bag_bits *bits, const struct bag_bits_row *rows, size_t count, uint8_t *out);
