/* Turns a query's indices into rows of its table. An index of a dense table is a row number, or an
 * id that is mapped to one. An index of a keyed table is a key. For the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_index.h"

/* Returns indices first .. end - 1. */
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

/* Does the same as eb_bag_take_rows for a keyed table, or for ids that may be mapped. */
uint64_t eb_bag_take_named(const struct eb_bag_index_fns *fns, const struct eb_bag_query *query,
    const struct eb_int_array *slice, int64_t missing_row, int64_t *rows);

/* Writes the row of every index of a slice of the query's indices to rows, or `missing_row` if it
 * has none. The slice must not be empty. Returns how many indices have no row. */
static inline uint64_t eb_bag_take_rows(const struct eb_bag_index_fns *fns,
    const struct eb_bag_query *query, const struct eb_int_array *slice, int64_t missing_row,
    int64_t *rows)
{
    const struct eb_table *table = query->table;
    return table->keys || query->id_map
               ? eb_bag_take_named(fns, query, slice, missing_row, rows)
               : fns->take_rows(slice, table->row_count, missing_row, rows);
}

/* Finds the row of the query's default_index, which must be given. No id map changes it. The row is
 * -1 if the default_index of a dense table is -1. Returns false if it names nothing. */
bool eb_bag_take_default(const struct eb_bag_query *query, int64_t *row);
