/* The index pass, one integer at a time. The reference uses it for all arrays, the other variants
 * for arrays that are too short for vectors. `width` is the width of the array's integers, and is a
 * constant in every use.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_index.h"

#include <string.h>

#define PLAIN static inline __attribute__((always_inline))

PLAIN int64_t plain_load(const uint8_t *data, const unsigned width, uint64_t i)
{
    const uint8_t *from = data + i * width;
    int32_t narrow;
    int64_t wide;
    if (width == sizeof narrow) {
        memcpy(&narrow, from, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, from, sizeof wide);
    return wide;
}

PLAIN uint64_t plain_take_rows(const unsigned width, const struct eb_int_array *indices,
    uint64_t row_count, int64_t missing_row, int64_t *rows)
{
    const uint8_t *data = indices->data;
    uint64_t count = indices->bytes / width;
    uint64_t missing_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t index = plain_load(data, width, i);
        bool is_missing = index < 0 || (uint64_t)index >= row_count;
        missing_count += is_missing;
        rows[i] = is_missing ? missing_row : index;
    }
    return missing_count;
}

PLAIN bool plain_are_rows(const struct eb_int_array *indices, uint64_t row_count)
{
    uint64_t count = indices->bytes / sizeof(int64_t);
    for (uint64_t i = 0; i < count; i++) {
        int64_t index = plain_load(indices->data, sizeof(int64_t), i);
        if (index < 0 || (uint64_t)index >= row_count) {
            return false;
        }
    }
    return true;
}

PLAIN enum eb_bag_order plain_take_bounds(
    unsigned width, const struct eb_int_array *bounds, int64_t last, uint32_t *starts)
{
    const uint8_t *data = bounds->data;
    uint64_t count = bounds->bytes / width;
    bool descends = false;
    int64_t previous = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t bound = plain_load(data, width, i);
        if (bound < 0 || bound > last) {
            return EB_BAG_ORDER_OUTSIDE;
        }
        descends |= bound < previous;
        previous = bound;
        if (starts) {
            starts[i] = (uint32_t)bound;
        }
    }
    return descends ? EB_BAG_ORDER_DESCENDING : EB_BAG_ORDER_ASCENDING;
}

/* Adds up lengths first .. count - 1; starts[first] is the sum before them. Returns false if a
 * length is outside 0 .. index_count, or if the sum of all lengths is not index_count. */
PLAIN bool plain_take_lengths(const unsigned width, const struct eb_int_array *lengths,
    uint64_t first, uint32_t index_count, uint32_t *starts)
{
    const uint8_t *data = lengths->data;
    uint64_t count = lengths->bytes / width;
    uint64_t sum = starts[first];
    for (uint64_t i = first; i < count; i++) {
        int64_t length = plain_load(data, width, i);
        if (length < 0 || length > index_count) {
            return false;
        }
        sum += (uint64_t)length;
        starts[i + 1] = (uint32_t)sum;
    }
    return sum == index_count;
}
