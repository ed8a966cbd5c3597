#include "kernels/bag_take.h"

#include "kernels/bag_index_plain.h"
#include "kernels/key_index.h"

#include <assert.h>

/* Widens the indices of a slice to 64 bits. Returns their count. */
static uint64_t widen_indices(const struct eb_int_array *slice, int64_t *wide)
{
    uint64_t count = slice->bytes / slice->width;
    if (slice->width == sizeof wide[0]) {
        memcpy(wide, slice->data, slice->bytes);
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        wide[i] = plain_load(slice->data, sizeof(int32_t), i);
    }
    return count;
}

static bool is_mapped(const struct eb_bag_query *query)
{
    return query->id_map && query->id_map->kind != EB_ID_MAP_NONE;
}

uint64_t eb_bag_take_named(const struct eb_bag_index_fns *fns, const struct eb_bag_query *query,
    const struct eb_int_array *slice, int64_t missing_row, int64_t *rows)
{
    const struct eb_table *table = query->table;
    /* A table without rows has none to map to. */
    bool maps_ids = is_mapped(query) && table->row_count > 0;
    assert(!table->keys || !is_mapped(query));
    if (!table->keys && !maps_ids) {
        return fns->take_rows(slice, table->row_count, missing_row, rows);
    }
    uint64_t count = widen_indices(slice, rows);
    if (table->keys) {
        return fns->take_keys(table->keys, missing_row, rows, count);
    }
    eb_id_map_rows(query->id_map, table->row_count, rows, count);
    return 0;
}

bool eb_bag_take_default(const struct eb_bag_query *query, int64_t *row)
{
    const struct eb_table *table = query->table;
    if (table->keys) {
        *row = eb_key_index_find(table->keys, query->default_index);
        return *row >= 0;
    }
    *row = query->default_index;
    return *row == -1 || (*row >= 0 && (uint64_t)*row < table->row_count);
}
