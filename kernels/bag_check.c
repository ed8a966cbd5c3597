#include "kernels/bag_index_plain.h"
#include "kernels/bag_measure.h"
#include "kernels/bag_ops.h"
#include "kernels/bag_variant.h"
#include "kernels/element.h"
#include "kernels/float_row.h"
#include "kernels/key_index.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In the row list, the row number of a skipped index until the index is removed. */
#define ROW_SKIPPED (EB_ROW_VECTOR - 1)
/* Number of indices that are turned into rows at a time, for unsorted segments and for lists of
 * missing indices. */
#define CHUNK 256

/* The state of one check: the query, and the parts of its job that are ready. */
struct pass {
    const struct eb_bag_query *query;
    const struct eb_bag_index_fns *index;
    struct eb_bag_error *error;
    int64_t *rows;              /* room for the row list */
    const eb_bag_row *row_list; /* the row list: `rows`, or the query's indices */
    void *weights;              /* NULL: no weights */
    uint32_t *starts;
    uint32_t index_count;
    uint32_t bag_count;
    bool is_unsorted; /* whether the segment ids are not in ascending order; `starts` is then filled
                         in later */
    int64_t missing_row; /* row number for an index that has no row */
    int64_t default_row; /* row number for empty bags, or EB_ROW_VECTOR; -1 means zeros */
    uint64_t missing_count;
};

static int64_t load_entry(const struct eb_int_array *array, uint64_t position)
{
    return array->width == 4 ? plain_load(array->data, 4, position)
                             : plain_load(array->data, 8, position);
}

/* ---- layouts: each function fills starts with positions in indices ---- */

/* Gives each bag the same number of indices. Not inlined, because compilers turn this loop into
 * vector code that slows eb_bag_check down for the other layouts: one bag of 20 indices takes 15.7
 * ns instead of 14.7. */
static __attribute__((noinline)) void start_evenly(struct pass *pass, uint64_t indices_per_bag)
{
    for (uint32_t bag = 0; bag <= pass->bag_count; bag++) {
        pass->starts[bag] = (uint32_t)(bag * indices_per_bag);
    }
}

/* Reports the first wrong offset. There must be one. */
static bool fail_offsets(struct pass *pass)
{
    uint64_t i = 0;
    int64_t previous = 0;
    int64_t offset = load_entry(&pass->query->bounds, 0);
    while (offset >= previous && offset <= pass->index_count) {
        previous = offset;
        offset = load_entry(&pass->query->bounds, ++i);
    }
    if (offset < 0) {
        return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
            "offsets[%" PRIu64 "] = %" PRId64 " is negative", i, offset);
    }
    if (offset < previous) {
        return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
            "offsets[%" PRIu64 "] = %" PRId64 " is less than offsets[%" PRIu64 "] = %" PRId64, i,
            offset, i - 1, previous);
    }
    return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
        "offsets[%" PRIu64 "] = %" PRId64 " is greater than the number of indices, %" PRIu32, i,
        offset, pass->index_count);
}

static bool start_at_offsets(struct pass *pass)
{
    const struct eb_int_array *offsets = &pass->query->bounds;
    if (pass->index->take_bounds(offsets, pass->index_count, pass->starts) !=
        EB_BAG_ORDER_ASCENDING) {
        return fail_offsets(pass);
    }
    if (!pass->query->include_last_offset) {
        pass->starts[pass->bag_count] = pass->index_count;
    }
    return true;
}

/* Reports the first wrong length or, if each length alone is possible, the wrong sum of lengths. */
static bool fail_lengths(struct pass *pass)
{
    int64_t left = pass->index_count;
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        int64_t length = load_entry(&pass->query->bounds, bag);
        if (length < 0) {
            return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
                "lengths[%" PRIu32 "] = %" PRId64 " is negative", bag, length);
        }
        if (length > left) {
            return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
                "lengths[%" PRIu32 "] = %" PRId64
                " makes the sum exceed the number of indices, %" PRIu32,
                bag, length, pass->index_count);
        }
        left -= length;
    }
    return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
        "the sum of lengths is %" PRId64 ", but the number of indices is %" PRIu32,
        pass->index_count - left, pass->index_count);
}

static bool start_after_lengths(struct pass *pass)
{
    return pass->index->take_lengths(&pass->query->bounds, pass->index_count, pass->starts) ||
           fail_lengths(pass);
}

/* Reports the first segment id outside the segments. There must be one. */
static bool fail_segments(struct pass *pass)
{
    uint32_t i = 0;
    int64_t id = load_entry(&pass->query->bounds, 0);
    while (id >= 0 && id < pass->bag_count) {
        id = load_entry(&pass->query->bounds, ++i);
    }
    return eb_bag_error_set(pass->error, EB_BAG_ERROR_OUT_OF_RANGE,
        "segment_ids[%" PRIu32 "] = %" PRId64 " is outside the segments: num_segments is %" PRIu32,
        i, id, pass->bag_count);
}

/* Sets the end of each bag to the position after its last index. */
static inline __attribute__((always_inline)) void end_bags(
    unsigned width, const struct eb_int_array *ids, uint32_t *ends)
{
    const uint8_t *data = ids->data;
    uint64_t count = ids->bytes / width;
    for (uint64_t i = 0; i < count; i++) {
        ends[plain_load(data, width, i)] = (uint32_t)(i + 1);
    }
}

/* Finds the starts of bags from sorted ids. A bag starts where the bag before it ends. An empty bag
 * also ends there. */
static void start_in_order(const struct eb_int_array *ids, uint32_t bag_count, uint32_t *starts)
{
    if (ids->width == 4) {
        end_bags(4, ids, starts + 1);
    } else {
        end_bags(8, ids, starts + 1);
    }
    uint32_t end = 0;
    for (uint32_t bag = 1; bag <= bag_count; bag++) {
        end = starts[bag] > end ? starts[bag] : end;
        starts[bag] = end;
    }
}

static bool start_by_segments(struct pass *pass)
{
    const struct eb_int_array *ids = &pass->query->bounds;
    enum eb_bag_order order = pass->index->take_bounds(ids, (int64_t)pass->bag_count - 1, NULL);
    if (order == EB_BAG_ORDER_OUTSIDE) {
        return fail_segments(pass);
    }
    memset(pass->starts, 0, ((size_t)pass->bag_count + 1) * sizeof pass->starts[0]);
    pass->is_unsorted = order == EB_BAG_ORDER_DESCENDING;
    if (!pass->is_unsorted) {
        start_in_order(ids, pass->bag_count, pass->starts);
    }
    return true;
}

static bool find_checked_starts(struct pass *pass)
{
    const struct eb_bag_query *query = pass->query;
    switch (query->layout) {
    case EB_LAYOUT_OFFSETS:
    case EB_LAYOUT_LENGTHS:
        if (query->bounds.bytes == 0) {
            start_evenly(pass, 0);
            return true;
        }
        return query->layout == EB_LAYOUT_OFFSETS ? start_at_offsets(pass)
                                                  : start_after_lengths(pass);
    case EB_LAYOUT_SEGMENTS: return start_by_segments(pass);
    case EB_LAYOUT_PACKED: start_evenly(pass, query->indices_per_bag); return true;
    case EB_LAYOUT_UNSPECIFIED: start_evenly(pass, pass->index_count); return true;
    case EB_LAYOUT_COUNT: break;
    }
    assert(false && "a layout");
    return false;
}

/* Counts the indices of each bag in `starts`, which must be zeroed. This is only for unsorted
 * segment ids. */
static void count_unsorted(const struct pass *pass, uint32_t *starts)
{
    for (uint32_t i = 0; i < pass->index_count; i++) {
        starts[load_entry(&pass->query->bounds, i) + 1]++;
    }
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        starts[bag + 1] += starts[bag];
    }
}

/* Checks that no bag has more indices than the query's max_ids, which must not be 0. */
static bool check_lengths(const struct pass *pass)
{
    uint32_t *starts = pass->starts;
    if (pass->is_unsorted) {
        count_unsorted(pass, starts);
    }
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        if (starts[bag + 1] - starts[bag] > pass->query->max_ids) {
            return eb_bag_error_set(pass->error, EB_BAG_ERROR_MALFORMED,
                "bag %" PRIu32 " has %" PRIu32 " indices, more than max_ids = %" PRIu64, bag,
                starts[bag + 1] - starts[bag], pass->query->max_ids);
        }
    }
    if (pass->is_unsorted) {
        memset(starts, 0, ((size_t)pass->bag_count + 1) * sizeof starts[0]);
    }
    return true;
}

/* ---- rows: an index of a dense table is a row number, or an id that is mapped to one; an index of
 * a keyed table is a key ---- */

/* Returns indices first .. end - 1. */
static inline struct eb_int_array slice_indices(
    const struct eb_bag_query *query, uint64_t first, uint64_t end)
{
    const struct eb_int_array *indices = &query->indices;
    return (struct eb_int_array){
        .data = (const uint8_t *)indices->data + first * indices->width,
        .bytes = (end - first) * indices->width,
        .width = indices->width,
    };
}

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

/* Does the same as take_rows for a keyed table, or for ids that may be mapped. Not inlined into the
 * functions for dense tables. */
static __attribute__((noinline)) uint64_t take_named_rows(const struct eb_bag_index_fns *fns,
    const struct eb_bag_query *query, const struct eb_int_array *slice, int64_t missing_row,
    int64_t *rows)
{
    const struct eb_table *table = query->table;
    /* In a table without rows there is no row to which an id could be mapped. */
    bool maps_ids = is_mapped(query) && table->row_count > 0;
    assert(!table->keys || !is_mapped(query));
    if (!table->keys && !maps_ids) {
        return fns->take_rows(slice, table->row_count, missing_row, rows);
    }
    uint64_t count = widen_indices(slice, rows);
    if (table->keys == &eb_key_index_remote) {
        return 0;
    }
    if (table->keys) {
        return fns->take_keys(table->keys, missing_row, rows, count);
    }
    eb_id_map_rows(query->id_map, table->row_count, rows, count);
    return 0;
}

/* Writes the row of every index of a slice of the query's indices to rows, or `missing_row` for an
 * index that has no row. The slice must not be empty. Returns how many indices have no row. */
static inline uint64_t take_rows(const struct eb_bag_index_fns *fns,
    const struct eb_bag_query *query, const struct eb_int_array *slice, int64_t missing_row,
    int64_t *rows)
{
    const struct eb_table *table = query->table;
    return table->keys || query->id_map
               ? take_named_rows(fns, query, slice, missing_row, rows)
               : fns->take_rows(slice, table->row_count, missing_row, rows);
}

/* Most indices that are checked by code that every processor can run, since a call of the
 * instruction set's function would cost more. */
#define FEW_INDICES 32

typedef uint64_t row_pair __attribute__((vector_size(16)));

/* Returns whether `count` indices are row numbers. As in bag_index_tmpl.c, it only gathers signs.
 */
static inline bool are_few_rows(const eb_bag_row *indices, uint64_t count, uint64_t row_count)
{
    uint64_t last = row_count - 1;
    row_pair outside = {0, 0};
    uint64_t i = 0;
    for (; i + 2 <= count; i += 2) {
        row_pair index;
        memcpy(&index, indices + i, sizeof index);
        outside |= index | (last - index);
    }
    uint64_t left = i < count ? (uint64_t)indices[i] : 0;
    uint64_t rest = i < count ? left | (last - left) : 0;
    return (int64_t)(outside[0] | outside[1] | rest) >= 0;
}

/* Returns whether a query's indices, if they name rows, are the numbers of these rows as they
 * stand: 64 bits wide, and neither keys nor ids to be mapped. Then they need not be copied. */
static inline bool are_row_numbers(const struct eb_bag_query *query)
{
    const struct eb_table *table = query->table;
    return query->indices.width == sizeof(int64_t) && !table->keys && !query->id_map &&
           table->row_count <= INT64_MAX;
}

/* Returns whether `count` row numbers, at least one, are those of rows of the table. */
static inline bool are_all_rows(const struct eb_bag_index_fns *index, const eb_bag_row *rows,
    uint64_t count, uint64_t row_count)
{
    struct eb_int_array array = {rows, count * sizeof rows[0], sizeof rows[0]};
    return count <= FEW_INDICES ? are_few_rows(rows, count, row_count)
                                : index->are_rows(&array, row_count);
}

/* Finds the row of the query's default_index, which must be given. No id map changes it. The row is
 * -1 if the default_index of a dense table is -1, and 0 if it is a key that is looked up elsewhere.
 * Returns false if default_index names no row. Not
 * inlined into eb_bag_check, because most queries have no default. */
static __attribute__((noinline)) bool find_default_row(
    const struct eb_bag_query *query, int64_t *row)
{
    const struct eb_table *table = query->table;
    if (table->keys == &eb_key_index_remote) {
        *row = 0;
        return true;
    }
    if (table->keys) {
        *row = eb_key_index_find(table->keys, query->default_index);
        return *row >= 0;
    }
    *row = query->default_index;
    return *row == -1 || (*row >= 0 && (uint64_t)*row < table->row_count);
}

/* ---- weights: they are copied into the job, parallel to its rows, in the type that sums are kept
 * in (f32, f64 or 64-bit integers) ---- */

/* Copies the weight of the index at `position` to weights[slot]. */
static void put_weight(
    const struct eb_bag_query *query, uint32_t position, void *weights, uint32_t slot)
{
    enum eb_type type = query->weights_type;
    const uint8_t *weight = (const uint8_t *)query->weights + position * eb_type_bytes(type);
    if (!eb_type_is_float(type)) {
        ((uint64_t *)weights)[slot] = eb_element_load_int(type, weight);
        return;
    }
    double value = eb_element_load_float((enum eb_storage)type, weight);
    if (query->table->type == EB_F64) {
        ((double *)weights)[slot] = value;
    } else {
        ((float *)weights)[slot] = (float)value;
    }
}

/* Copies the weights of indices first .. first + count - 1 to weights[0] .. weights[count - 1]. Not
 * inlined into the functions for queries without weights. */
static __attribute__((noinline)) void copy_weights(
    const struct eb_bag_query *query, uint32_t first, uint32_t count, void *weights)
{
    enum eb_type type = query->weights_type;
    size_t bytes = eb_type_bytes(type);
    const uint8_t *from = (const uint8_t *)query->weights + first * bytes;
    if (bytes == eb_bag_weights_bytes(query->table->type)) {
        memcpy(weights, from, count * bytes);
        return;
    }
    if (type == EB_F16 || type == EB_BF16) {
        eb_float_row_widen((enum eb_storage)type, from, count, weights);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        put_weight(query, first + i, weights, i);
    }
}

/* ---- indices: from positions to row numbers; missing rows are handled ---- */

/* Reports an index that names no row. */
static bool fail_unnamed(struct pass *pass, const char *name, int64_t index)
{
    const struct eb_table *table = pass->query->table;
    if (table->keys) {
        return eb_bag_error_set(pass->error, EB_BAG_ERROR_OUT_OF_RANGE,
            "%s = %" PRId64 " is not one of the table's %" PRIu64 " key%s", name, index,
            table->row_count, table->row_count == 1 ? "" : "s");
    }
    return eb_bag_error_set(pass->error, EB_BAG_ERROR_OUT_OF_RANGE,
        "%s = %" PRId64 " is outside the table's %" PRIu64 " row%s", name, index, table->row_count,
        table->row_count == 1 ? "" : "s");
}

static bool check_checked_default(struct pass *pass)
{
    return !pass->query->has_default || find_default_row(pass->query, &pass->default_row) ||
           fail_unnamed(pass, "default_index", pass->query->default_index);
}

/* Reports the first index from `position` on that has no row. There must be one. `rows` are the
 * rows from that position on. */
static bool fail_index(struct pass *pass, uint32_t position, const int64_t *rows)
{
    char name[32];
    while (*rows != EB_ROW_ZERO) {
        rows++;
        position++;
    }
    snprintf(name, sizeof name, "indices[%" PRIu32 "]", position);
    return fail_unnamed(pass, name, load_entry(&pass->query->indices, position));
}

static int64_t choose_missing_row(const struct eb_bag_query *query)
{
    switch (query->missing) {
    case EB_MISSING_SKIP: return query->reduction == EB_REDUCTION_NONE ? EB_ROW_ZERO : ROW_SKIPPED;
    case EB_MISSING_UNKNOWN_ROW: return query->table->unknown_row;
    default: return EB_ROW_ZERO;
    }
}

/* Closes the gaps of skipped indices in the weights, which are parallel to `rows`. */
static void close_up_weights(const struct pass *pass, uint32_t count)
{
    uint32_t *narrow = pass->weights;
    uint64_t *wide = pass->weights;
    bool is_narrow = eb_bag_weights_bytes(pass->query->table->type) == sizeof narrow[0];
    const int64_t *rows = pass->rows;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (is_narrow) {
            narrow[taken] = narrow[i];
        } else {
            wide[taken] = wide[i];
        }
        taken += rows[i] != ROW_SKIPPED;
    }
}

/* Closes the gaps of skipped indices in the row list. */
static void close_up_rows(const struct pass *pass)
{
    uint32_t *starts = pass->starts;
    int64_t *rows = pass->rows;
    uint32_t taken = 0;
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        uint32_t end = starts[bag + 1];
        starts[bag] = taken;
        for (; i < end; i++) {
            int64_t row = rows[i];
            rows[taken] = row;
            taken += row != ROW_SKIPPED;
        }
    }
    starts[pass->bag_count] = taken;
}

/* Writes the rows of indices first .. end - 1, and counts the missing ones. Returns false if one is
 * missing and that is an error. */
static inline bool find_checked_rows(struct pass *pass, uint32_t first, uint32_t end, int64_t *rows)
{
    const struct eb_bag_query *query = pass->query;
    struct eb_int_array slice = slice_indices(query, first, end);
    uint64_t missing_count = take_rows(pass->index, query, &slice, pass->missing_row, rows);
    pass->missing_count += missing_count;
    return missing_count == 0 || query->missing != EB_MISSING_ERROR ||
           fail_index(pass, first, rows);
}

/* Makes the rows of indices first .. end - 1 the row list, and copies their weights. Returns false
 * if one is missing and that is an error. */
static bool take_checked_rows(struct pass *pass, uint32_t first, uint32_t end)
{
    const struct eb_bag_query *query = pass->query;
    const eb_bag_row *indices = query->indices.data;
    if (are_row_numbers(query) &&
        are_all_rows(pass->index, indices + first, end - first, query->table->row_count)) {
        pass->row_list = indices + first;
    } else if (!find_checked_rows(pass, first, end, pass->rows)) {
        return false;
    }
    if (pass->weights) {
        copy_weights(pass->query, first, end - first, pass->weights);
    }
    return true;
}

/* If the array of offsets is empty, the indices belong to no bag. Checks and counts them like
 * indices in a bag. If the array of offsets is not empty, indices outside all bags are neither
 * checked nor counted. */
static __attribute__((noinline)) bool check_bagless(struct pass *pass)
{
    const struct eb_bag_query *query = pass->query;
    if (query->layout != EB_LAYOUT_OFFSETS || query->bounds.bytes > 0 || pass->index_count == 0) {
        return true;
    }
    if (!find_checked_rows(pass, 0, pass->index_count, pass->rows)) {
        return false;
    }
    pass->missing_row = ROW_SKIPPED; /* No index outside all bags is pooled, not even as zeros. */
    return true;
}

/* Turns indices into rows if the bags are in the order of their indices. */
static bool take_sorted(struct pass *pass)
{
    uint32_t first = pass->starts[0];
    uint32_t end = pass->starts[pass->bag_count];
    if (first < end ? !take_checked_rows(pass, first, end) : !check_bagless(pass)) {
        return false;
    }
    for (uint32_t bag = 0; first > 0 && bag <= pass->bag_count; bag++) {
        pass->starts[bag] -= first;
    }
    if (pass->missing_count > 0 && pass->missing_row == ROW_SKIPPED) {
        if (pass->weights) {
            close_up_weights(pass, end - first);
        }
        close_up_rows(pass);
    }
    return true;
}

static uint32_t chunk_end(const struct pass *pass, uint32_t first)
{
    return pass->index_count - first < CHUNK ? pass->index_count : first + CHUNK;
}

/* Returns whether a row stands for a skipped index. Keys that are looked up elsewhere may have the
 * same number, but none of them is missing. */
static bool is_skipped(const struct pass *pass, int64_t row)
{
    return row == ROW_SKIPPED && pass->missing_count > 0;
}

/* Finds the rows of indices first .. end - 1, and counts each bag's rows in starts[bag + 1]. */
static bool count_chunk(struct pass *pass, uint32_t first, uint32_t end, int64_t *rows)
{
    if (!find_checked_rows(pass, first, end, rows)) {
        return false;
    }
    for (uint32_t i = first; i < end; i++) {
        int64_t bag = load_entry(&pass->query->bounds, i);
        pass->starts[bag + 1] += !is_skipped(pass, rows[i - first]);
    }
    return true;
}

/* Writes rows and their weights to the next positions of their bags. */
static void sort_chunk(struct pass *pass, uint32_t first, uint32_t end, const int64_t *rows)
{
    for (uint32_t i = first; i < end; i++) {
        if (is_skipped(pass, rows[i - first])) {
            continue;
        }
        uint32_t slot = pass->starts[load_entry(&pass->query->bounds, i)]++;
        pass->rows[slot] = rows[i - first];
        if (pass->weights) {
            put_weight(pass->query, i, pass->weights, slot);
        }
    }
}

/* Sorts indices by their segment ids, which may be in any order, with a stable counting sort. Finds
 * the row of each index twice: first to check and count it, then to place it. */
static bool take_unsorted(struct pass *pass)
{
    uint32_t *starts = pass->starts;
    int64_t rows[CHUNK];
    for (uint32_t first = 0; first < pass->index_count; first += CHUNK) {
        if (!count_chunk(pass, first, chunk_end(pass, first), rows)) {
            return false;
        }
    }
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        starts[bag + 1] += starts[bag];
    }
    uint64_t missing_count = pass->missing_count;
    for (uint32_t first = 0; first < pass->index_count; first += CHUNK) {
        uint32_t end = chunk_end(pass, first);
        find_checked_rows(pass, first, end, rows);
        sort_chunk(pass, first, end, rows);
    }
    pass->missing_count = missing_count;
    /* Every start is now at its bag's end, which is the next bag's start. */
    memmove(starts + 1, starts, pass->bag_count * sizeof starts[0]);
    starts[0] = 0;
    return true;
}

/* Returns how many rows of the table pooling will read, default rows included. */
static uint64_t count_gathered(const struct pass *pass)
{
    uint64_t zero_count = pass->missing_row == EB_ROW_ZERO ? pass->missing_count : 0;
    if (!pass->starts) {
        return pass->index_count - zero_count;
    }
    uint64_t count = pass->starts[pass->bag_count] - zero_count;
    for (uint32_t bag = 0; pass->default_row >= 0 && bag < pass->bag_count; bag++) {
        count += pass->starts[bag] == pass->starts[bag + 1];
    }
    return count;
}

static void fill_job(
    const struct pass *pass, const struct eb_bag_extent *extent, struct eb_bag_job *job)
{
    const struct eb_bag_query *query = pass->query;
    *job = (struct eb_bag_job){
        .scratch = pass->rows,
        .table = query->table,
        .lines = extent->lines,
        .rows = pass->row_list,
        .weights = pass->weights,
        .starts = pass->starts,
        .bag_count = pass->bag_count,
        .reduction = query->reduction,
        .output_type = extent->output_type,
        .has_zero_rows = pass->missing_count > 0 && pass->missing_row == EB_ROW_ZERO,
        .has_vector_rows = pass->missing_count > 0 && pass->missing_row == EB_ROW_VECTOR,
        .default_row = pass->default_row,
        .missing_count = pass->missing_count,
        .gather_bytes = count_gathered(pass) * extent->gather_row_bytes,
        /* The caller sets these two later. They are named here so that compilers need not clear the
         * struct first. */
        .out = NULL,
        .out_stride_bytes = 0,
    };
}

/* Turns the query's indices into the row list, in the way that suits the layout. */
static bool take_indices(struct pass *pass)
{
    if (!pass->starts) {
        return pass->index_count == 0 || take_checked_rows(pass, 0, pass->index_count);
    }
    return pass->is_unsorted ? take_unsorted(pass) : take_sorted(pass);
}

/* Finds the bounds of the one bag of a query, as positions of its indices. Returns false if there
 * is an error, or if the layout is not one of those that most queries have. */
static inline bool find_only_bag(
    const struct eb_bag_query *query, uint64_t index_count, uint64_t *first, uint64_t *end)
{
    bool is_listed = query->bounds.bytes > 0;
    *first = 0;
    *end = index_count;
    switch (query->layout) {
    case EB_LAYOUT_OFFSETS:
        if (is_listed) {
            *first = (uint64_t)load_entry(&query->bounds, 0);
            *end = query->include_last_offset ? (uint64_t)load_entry(&query->bounds, 1) : *end;
        }
        return is_listed && *first <= *end && *end <= index_count;
    case EB_LAYOUT_LENGTHS:
        return is_listed && (uint64_t)load_entry(&query->bounds, 0) == index_count;
    case EB_LAYOUT_UNSPECIFIED:
    case EB_LAYOUT_PACKED: return true;
    default: return false;
    }
}

/* Checks a query of the simplest kind: one bag of row numbers of 64 bits, without weights and
 * without errors. Most lookups of one user or item are of this kind, and take half as long without
 * the general steps. Returns false, having changed nothing but the scratch, if the query is not of
 * this kind; then the general steps find out why. */
static inline bool check_only_bag(const struct eb_bag_ops *ops, const struct eb_bag_query *query,
    const struct eb_bag_extent *extent, struct eb_bag_job *job)
{
    const struct eb_table *table = query->table;
    uint64_t first;
    uint64_t end;
    bool is_simple = extent->result_rows == 1 && extent->weights_offset == 0 &&
                     query->reduction != EB_REDUCTION_NONE && query->max_ids == 0 &&
                     !query->has_default && are_row_numbers(query);
    if (!is_simple || !find_only_bag(query, extent->index_count, &first, &end)) {
        return false;
    }
    if (first == end) {
        return false;
    }
    const struct eb_bag_index_fns *index = eb_bag_ops_variant(ops)->index;
    const eb_bag_row *rows = (const eb_bag_row *)query->indices.data + first;
    if (!are_all_rows(index, rows, end - first, table->row_count)) {
        return false;
    }
    uint8_t *scratch = job->scratch;
    uint32_t *starts = (uint32_t *)(void *)(scratch + extent->starts_offset);
    starts[0] = 0;
    starts[1] = (uint32_t)(end - first);
    *job = (struct eb_bag_job){
        .scratch = scratch,
        .table = table,
        .lines = extent->lines,
        .rows = rows,
        .starts = starts,
        .bag_count = 1,
        .reduction = query->reduction,
        .output_type = extent->output_type,
        .default_row = -1,
        .gather_bytes = starts[1] * extent->gather_row_bytes,
    };
    return true;
}

/* Checks a query of any kind. */
static __attribute__((noinline)) bool check_any(const struct eb_bag_ops *ops,
    const struct eb_bag_query *query, const struct eb_bag_extent *extent, struct eb_bag_job *job,
    struct eb_bag_error *error)
{
    void *scratch = job->scratch;
    uint8_t *bytes = scratch;
    struct pass pass = {
        .query = query,
        .index = eb_bag_ops_variant(ops)->index,
        .error = error,
        .rows = scratch,
        .row_list = scratch,
        .weights = extent->weights_offset > 0 ? bytes + extent->weights_offset : NULL,
        .starts = NULL,
        .index_count = (uint32_t)extent->index_count,
        .bag_count = (uint32_t)extent->result_rows,
        .is_unsorted = false,
        .missing_row = choose_missing_row(query),
        .default_row = query->table->vector ? EB_ROW_VECTOR : -1,
        .missing_count = 0,
    };
    if (query->reduction != EB_REDUCTION_NONE) {
        pass.starts = (uint32_t *)(void *)(bytes + extent->starts_offset);
        if (!find_checked_starts(&pass) || (query->max_ids > 0 && !check_lengths(&pass))) {
            return false;
        }
    }
    if (!check_checked_default(&pass) || !take_indices(&pass)) {
        return false;
    }
    fill_job(&pass, extent, job);
    return true;
}

bool eb_bag_check(const struct eb_bag_ops *ops, const struct eb_bag_query *query,
    const struct eb_bag_extent *extent, struct eb_bag_job *job, struct eb_bag_error *error)
{
    void *scratch = job->scratch;
    assert((uintptr_t)scratch % 64 == 0 && (scratch || extent->scratch_bytes == 0));
    return check_only_bag(ops, query, extent, job) || check_any(ops, query, extent, job, error);
}

/* ---- the list of missing indices ---- */

/* Returns the first index that lies in a bag. */
static uint64_t first_bagged_index(const struct eb_bag_query *query)
{
    const struct eb_int_array *bounds = &query->bounds;
    if (query->layout != EB_LAYOUT_OFFSETS || bounds->bytes == 0 ||
        query->reduction == EB_REDUCTION_NONE) {
        return 0;
    }
    return (uint64_t)load_entry(bounds, 0);
}

void eb_bag_list_missing(
    const struct eb_bag_query *query, uint32_t base, uint64_t count, uint32_t *positions)
{
    uint64_t index_count = query->indices.bytes / query->indices.width;
    uint64_t found = 0;
    for (uint64_t first = first_bagged_index(query); found < count; first += CHUNK) {
        int64_t rows[CHUNK];
        uint64_t end = index_count - first < CHUNK ? index_count : first + CHUNK;
        struct eb_int_array slice = slice_indices(query, first, end);
        take_rows(&eb_bag_ref_index, query, &slice, EB_ROW_ZERO, rows);
        for (uint64_t i = first; i < end && found < count; i++) {
            if (rows[i - first] == EB_ROW_ZERO) {
                positions[found++] = base + (uint32_t)i;
            }
        }
    }
}
