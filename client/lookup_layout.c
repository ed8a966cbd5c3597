#include "client/lookup_layout.h"

#include "client/embag.h"

#include <assert.h>

/* The values of the protocol's enum BagLayout. */
enum {
    LAYOUT_UNSPECIFIED = 0,
    LAYOUT_OFFSETS = 1,
    LAYOUT_LENGTHS = 2,
    LAYOUT_PACKED = 3,
    LAYOUT_SEGMENTS = 4
};

int32_t eb_lookup_layout_find(const struct embag_query *query)
{
    if (query->offsets.width != 0) {
        return LAYOUT_OFFSETS;
    }
    if (query->lengths.width != 0) {
        return LAYOUT_LENGTHS;
    }
    if (query->segment_ids.width != 0 || query->num_segments != 0) {
        return LAYOUT_SEGMENTS;
    }
    return query->indices_per_bag != 0 ? LAYOUT_PACKED : LAYOUT_UNSPECIFIED;
}

/* Returns the number of bags of offsets or lengths. If the array is empty, num_bags is the number
 * of empty bags. */
static uint64_t count_listed_bags(
    const struct eb_wire_query *query, const struct eb_wire_array *array)
{
    uint64_t entries = eb_wire_array_count(array);
    return entries > 0 ? entries - query->include_last_offset : query->num_bags;
}

uint64_t eb_lookup_layout_count_bags(const struct eb_wire_query *query)
{
    switch (query->layout) {
    case LAYOUT_OFFSETS: return count_listed_bags(query, &query->offsets);
    case LAYOUT_LENGTHS: return count_listed_bags(query, &query->lengths);
    case LAYOUT_SEGMENTS: return query->num_segments;
    case LAYOUT_PACKED:
        assert(query->indices_per_bag > 0);
        return eb_wire_array_count(&query->indices) / query->indices_per_bag;
    default: return query->num_bags;
    }
}
