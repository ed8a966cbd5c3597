#include "kernels/bag_missing.h"

#include "kernels/bag_index_plain.h"
#include "kernels/bag_take.h"

#define CHUNK 256
#define MISSING_ROW INT64_C(-1)

/* Returns the first index that lies in a bag. */
static uint64_t find_first(const struct eb_bag_query *query)
{
    const struct eb_int_array *bounds = &query->bounds;
    if (query->layout != EB_LAYOUT_OFFSETS || bounds->bytes == 0 ||
        query->reduction == EB_REDUCTION_NONE) {
        return 0;
    }
    return (uint64_t)(bounds->width == 4 ? plain_load(bounds->data, 4, 0)
                                         : plain_load(bounds->data, 8, 0));
}

void eb_bag_list_missing(
    const struct eb_bag_query *query, uint32_t base, uint64_t count, uint32_t *positions)
{
    uint64_t index_count = query->indices.bytes / query->indices.width;
    uint64_t found = 0;
    for (uint64_t first = find_first(query); found < count; first += CHUNK) {
        int64_t rows[CHUNK];
        uint64_t end = index_count - first < CHUNK ? index_count : first + CHUNK;
        struct eb_int_array slice = eb_bag_take_slice(query, first, end);
        eb_bag_take_rows(&eb_bag_ref_index, query, &slice, MISSING_ROW, rows);
        for (uint64_t i = first; i < end && found < count; i++) {
            if (rows[i - first] == MISSING_ROW) {
                positions[found++] = base + (uint32_t)i;
            }
        }
    }
}
