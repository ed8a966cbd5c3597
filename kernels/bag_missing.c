#include "kernels/bag_missing.h"

#include <string.h>

static int64_t read_integer(const struct eb_int_array *array, uint64_t i)
{
    int32_t narrow;
    int64_t wide;
    const uint8_t *at = (const uint8_t *)array->data + i * array->width;
    if (array->width == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

void eb_bag_list_missing(
    const struct eb_bag_query *query, uint32_t base, uint64_t count, uint32_t *positions)
{
    const bool has_offsets = query->layout == EB_LAYOUT_OFFSETS && query->bounds.bytes > 0 &&
                             query->reduction != EB_REDUCTION_NONE;
    uint64_t i = has_offsets ? (uint64_t)read_integer(&query->bounds, 0) : 0;
    for (uint64_t found = 0; found < count; i++) {
        int64_t row = read_integer(&query->indices, i);
        if (row < 0 || (uint64_t)row >= query->table->row_count) {
            positions[found++] = base + (uint32_t)i;
        }
    }
}
