/* From what a query's indices say to rows of its table: an index of a dense table is a row number,
 * or an id that is mapped to one; of a keyed table it is a key. For the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_index.h"

/* Indices first .. end - 1. */
static inline struct eb_int_array eb_bag_take_slice(
    const struct eb_bag_query *query, uint64_t first, uint64_t end)
{
    const struct eb_int_array *indices = &query->indices;
    return (struct eb_int_array){
        .data = (const uint8_t *)indices->data + first * indices->width,
        .bytes = (end - first) * indices->width,
        .width = indices->width,
    };
}

/* As eb_bag_take_rows, of a keyed table, or of ids that are mapped. */
uint64_t eb_bag_take_named(const struct eb_bag_index_fns *fns, const struct eb_bag_query *query,
    const struct eb_int_array *slice, int64_t missing_row, int64_t *rows);

/* Writes the row of every index of a slice of the query's, which is not empty, to rows,
 * `missing_row` where it has none. Returns how many have none. */
static inline uint64_t eb_bag_take_rows(const struct eb_bag_index_fns *fns,
    const struct eb_bag_query *query, const struct eb_int_array *slice, int64_t missing_row,
    int64_t *rows)
{
    const struct eb_table *table = query->table;
    return table->keys || query->id_map
               ? eb_bag_take_named(fns, query, slice, missing_row, rows)
               : fns->take_rows(slice, table->row_count, missing_row, rows);
}

/* The row of the query's default_index, which is given and no id map changes: -1 where it is the -1
 * of a dense table. false: it names nothing. */
bool eb_bag_take_default(const struct eb_bag_query *query, int64_t *row);
