#include "kernels/bag.h"
#include "kernels/bag_fault.h"
#include "kernels/bag_scratch.h"
#include "kernels/element.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* What becomes of a missing index under SKIP, until it is left out. */
#define ROW_SKIPPED (EB_ROW_ZERO - 1)

/* One run of the check pass: the query and the job as far as it is built. */
struct pass {
    const struct eb_bag_query *query;
    struct eb_bag_fault *fault;
    int64_t *rows;
    void *weights; /* NULL: none */
    uint32_t *starts;
    uint32_t index_count;
    uint32_t bag_count;
    bool is_unsorted; /* segment ids that are not ascending: starts says nothing yet */
    uint64_t missing_count;
    uint64_t zero_count; /* EB_ROW_ZERO in rows */
};

static int64_t load_entry(const struct eb_int_array *array, uint64_t position)
{
    const uint8_t *data = array->data;
    if (array->width == 4) {
        int32_t narrow;
        memcpy(&narrow, data + position * sizeof narrow, sizeof narrow);
        return narrow;
    }
    int64_t wide;
    memcpy(&wide, data + position * sizeof wide, sizeof wide);
    return wide;
}

/* Layouts: every function fills starts with positions in indices. */

static void start_evenly(struct pass *pass, uint64_t indices_per_bag)
{
    for (uint32_t bag = 0; bag <= pass->bag_count; bag++) {
        pass->starts[bag] = (uint32_t)(bag * indices_per_bag);
    }
}

static bool fail_offset(struct pass *pass, uint64_t position, int64_t offset, int64_t previous)
{
    if (offset < 0) {
        return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
            "offsets[%" PRIu64 "] = %" PRId64 " is negative", position, offset);
    }
    if (offset < previous) {
        return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
            "offsets[%" PRIu64 "] = %" PRId64 " is less than offsets[%" PRIu64 "] = %" PRId64,
            position, offset, position - 1, previous);
    }
    return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
        "offsets[%" PRIu64 "] = %" PRId64 " is past the %" PRIu32 " indices", position, offset,
        pass->index_count);
}

static bool start_at_offsets(struct pass *pass)
{
    const struct eb_int_array *offsets = &pass->query->bounds;
    uint64_t entries = (uint64_t)pass->bag_count + pass->query->include_last_offset;
    int64_t previous = 0;
    for (uint64_t i = 0; i < entries; i++) {
        int64_t offset = load_entry(offsets, i);
        if (offset < previous || offset > pass->index_count) {
            return fail_offset(pass, i, offset, previous);
        }
        pass->starts[i] = (uint32_t)offset;
        previous = offset;
    }
    if (!pass->query->include_last_offset) {
        pass->starts[entries] = pass->index_count;
    }
    return true;
}

static bool start_after_lengths(struct pass *pass)
{
    uint32_t end = 0;
    pass->starts[0] = 0;
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        int64_t length = load_entry(&pass->query->bounds, bag);
        if (length < 0) {
            return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
                "lengths[%" PRIu32 "] = %" PRId64 " is negative", bag, length);
        }
        if (length > pass->index_count - end) {
            return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
                "lengths[%" PRIu32 "] = %" PRId64 " takes the sum past the %" PRIu32 " indices",
                bag, length, pass->index_count);
        }
        end += (uint32_t)length;
        pass->starts[bag + 1] = end;
    }
    if (end != pass->index_count) {
        return eb_bag_fault_set(pass->fault, EB_FAULT_MALFORMED,
            "the sum of lengths is %" PRIu32 ", but there are %" PRIu32 " indices", end,
            pass->index_count);
    }
    return true;
}

/* Sorted ids say where bags start; the first that descends ends that. */
static bool start_by_segments(struct pass *pass)
{
    uint32_t started = 0;
    int64_t previous = 0;
    for (uint32_t i = 0; i < pass->index_count; i++) {
        int64_t id = load_entry(&pass->query->bounds, i);
        if (id < 0 || id >= pass->bag_count) {
            return eb_bag_fault_set(pass->fault, EB_FAULT_OUT_OF_RANGE,
                "segment_ids[%" PRIu32 "] = %" PRId64 " is outside the %" PRIu32 " segments", i, id,
                pass->bag_count);
        }
        pass->is_unsorted |= id < previous;
        previous = id;
        while (started <= id) {
            pass->starts[started++] = i;
        }
    }
    while (started <= pass->bag_count) {
        pass->starts[started++] = pass->index_count;
    }
    return true;
}

static bool find_starts(struct pass *pass)
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

/* Indices: from positions to row numbers, whatever is missing dealt with. */

static bool has_row(const struct eb_table *table, int64_t index)
{
    return (uint64_t)index < table->row_count;
}

static bool check_default(struct pass *pass)
{
    const struct eb_bag_query *query = pass->query;
    if (!query->has_default || query->default_index == -1 ||
        has_row(query->table, query->default_index)) {
        return true;
    }
    return eb_bag_fault_set(pass->fault, EB_FAULT_OUT_OF_RANGE,
        "default_index = %" PRId64 " is outside the table's %" PRIu64 " rows", query->default_index,
        query->table->row_count);
}

/* The row that an index stands for, ROW_SKIPPED, or false where it must not be missing. */
static bool resolve(struct pass *pass, uint32_t position, int64_t *row)
{
    const struct eb_table *table = pass->query->table;
    *row = load_entry(&pass->query->indices, position);
    if (has_row(table, *row)) {
        return true;
    }
    pass->missing_count++;
    switch (pass->query->missing) {
    case EB_MISSING_SKIP: *row = ROW_SKIPPED; return true;
    case EB_MISSING_ZERO: *row = EB_ROW_ZERO; return true;
    case EB_MISSING_UNKNOWN_ROW: *row = table->unknown_row; return true;
    default:
        return eb_bag_fault_set(pass->fault, EB_FAULT_OUT_OF_RANGE,
            "indices[%" PRIu32 "] = %" PRId64 " is outside the table's %" PRIu64 " rows", position,
            *row, table->row_count);
    }
}

static void put_weight(struct pass *pass, uint32_t slot, uint32_t position)
{
    const struct eb_bag_query *query = pass->query;
    enum eb_type type = query->weights_type;
    const uint8_t *weight = (const uint8_t *)query->weights + position * eb_type_bytes(type);
    if (!eb_type_is_float(type)) {
        ((uint64_t *)pass->weights)[slot] = eb_element_load_int(type, weight);
        return;
    }
    double value = eb_element_load_float((enum eb_storage)type, weight);
    if (query->table->type == EB_F64) {
        ((double *)pass->weights)[slot] = value;
    } else {
        ((float *)pass->weights)[slot] = (float)value;
    }
}

static void put(struct pass *pass, uint32_t slot, uint32_t position, int64_t row)
{
    pass->rows[slot] = row;
    pass->zero_count += row == EB_ROW_ZERO;
    if (pass->weights) {
        put_weight(pass, slot, position);
    }
}

/* Copies indices [first, end) to the head of rows. false: one of them is missing. */
static bool copy_rows(struct pass *pass, uint32_t first, uint32_t end)
{
    const struct eb_int_array *indices = &pass->query->indices;
    const struct eb_table *table = pass->query->table;
    bool is_missing = false;
    if (indices->width == 4) {
        for (uint32_t i = first; i < end; i++) {
            int32_t row;
            memcpy(&row, (const uint8_t *)indices->data + i * sizeof row, sizeof row);
            pass->rows[i - first] = row;
            is_missing |= !has_row(table, row);
        }
    } else {
        size_t row_bytes = sizeof pass->rows[0];
        memcpy(pass->rows, (const uint8_t *)indices->data + first * row_bytes,
            (end - first) * row_bytes);
        for (uint32_t i = 0; i < end - first; i++) {
            is_missing |= !has_row(table, pass->rows[i]);
        }
    }
    return !is_missing;
}

static void copy_weights(struct pass *pass, uint32_t first, uint32_t end)
{
    const struct eb_bag_query *query = pass->query;
    size_t bytes = eb_type_bytes(query->weights_type);
    if (query->weights_type == query->table->type &&
        (bytes == 8 || query->weights_type == EB_F32)) {
        memcpy(
            pass->weights, (const uint8_t *)query->weights + first * bytes, (end - first) * bytes);
        return;
    }
    for (uint32_t i = first; i < end; i++) {
        put_weight(pass, i - first, i);
    }
}

/* The common case, no index missing and bags in order of their indices: a copy. */
static bool take_copies(struct pass *pass)
{
    uint32_t first = pass->starts ? pass->starts[0] : 0;
    uint32_t end = pass->starts ? pass->starts[pass->bag_count] : pass->index_count;
    if (first < end && !copy_rows(pass, first, end)) {
        return false;
    }
    if (first < end && pass->weights) {
        copy_weights(pass, first, end);
    }
    for (uint32_t bag = 0; pass->starts && bag <= pass->bag_count; bag++) {
        pass->starts[bag] -= first;
    }
    return true;
}

/* NONE: every index has its row of the result. */
static bool take_all(struct pass *pass)
{
    for (uint32_t i = 0; i < pass->index_count; i++) {
        int64_t row;
        if (!resolve(pass, i, &row)) {
            return false;
        }
        put(pass, i, i, row == ROW_SKIPPED ? EB_ROW_ZERO : row);
    }
    return true;
}

/* Bags in order of their indices, of which some are missing. */
static bool take_bags(struct pass *pass)
{
    uint32_t taken = 0;
    uint32_t i = pass->starts[0];
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        uint32_t end = pass->starts[bag + 1];
        pass->starts[bag] = taken;
        for (; i < end; i++) {
            int64_t row;
            if (!resolve(pass, i, &row)) {
                return false;
            }
            if (row != ROW_SKIPPED) {
                put(pass, taken++, i, row);
            }
        }
    }
    pass->starts[pass->bag_count] = taken;
    return true;
}

/* Segment ids in any order: a stable counting sort, so indices are read twice. */
static bool take_unsorted(struct pass *pass)
{
    uint32_t *starts = pass->starts;
    memset(starts, 0, ((size_t)pass->bag_count + 1) * sizeof starts[0]);
    for (uint32_t i = 0; i < pass->index_count; i++) {
        int64_t row;
        if (!resolve(pass, i, &row)) {
            return false;
        }
        starts[load_entry(&pass->query->bounds, i) + 1] += row != ROW_SKIPPED;
    }
    for (uint32_t bag = 0; bag < pass->bag_count; bag++) {
        starts[bag + 1] += starts[bag];
    }
    uint64_t missing_count = pass->missing_count;
    for (uint32_t i = 0; i < pass->index_count; i++) {
        int64_t row = ROW_SKIPPED;
        if (resolve(pass, i, &row) && row != ROW_SKIPPED) {
            put(pass, starts[load_entry(&pass->query->bounds, i)]++, i, row);
        }
    }
    pass->missing_count = missing_count;
    /* Every start has moved to its bag's end, which is the next one's start. */
    memmove(starts + 1, starts, pass->bag_count * sizeof starts[0]);
    starts[0] = 0;
    return true;
}

static bool take_rows(struct pass *pass)
{
    if (pass->is_unsorted) {
        return take_unsorted(pass);
    }
    if (take_copies(pass)) {
        return true;
    }
    return pass->starts ? take_bags(pass) : take_all(pass);
}

/* Rows of the table that pooling will read, default rows included. */
static uint64_t count_gathered(const struct pass *pass, int64_t default_row)
{
    if (!pass->starts) {
        return pass->index_count - pass->zero_count;
    }
    uint64_t count = pass->starts[pass->bag_count] - pass->zero_count;
    for (uint32_t bag = 0; default_row >= 0 && bag < pass->bag_count; bag++) {
        count += pass->starts[bag] == pass->starts[bag + 1];
    }
    return count;
}

static void fill_job(
    const struct pass *pass, const struct eb_bag_extent *extent, struct eb_bag_job *job)
{
    const struct eb_bag_query *query = pass->query;
    const struct eb_table *table = query->table;
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements) +
                         (table->scales ? sizeof(struct eb_row_scale) : 0);
    int64_t default_row = query->has_default ? query->default_index : -1;
    *job = (struct eb_bag_job){
        .scratch = pass->rows,
        .table = table,
        .rows = pass->rows,
        .weights = pass->weights,
        .starts = pass->starts,
        .bag_count = pass->bag_count,
        .reduction = query->reduction,
        .output_type = extent->output_type,
        .default_row = default_row,
        .missing_count = pass->missing_count,
        .gather_bytes = count_gathered(pass, default_row) * row_bytes,
    };
}

bool eb_bag_check(const struct eb_bag_ops *ops, const struct eb_bag_query *query,
    const struct eb_bag_extent *extent, struct eb_bag_job *job, struct eb_bag_fault *fault)
{
    void *scratch = job->scratch;
    (void)ops;
    assert((uintptr_t)scratch % 64 == 0 && (scratch || extent->scratch_bytes == 0));
    struct eb_bag_scratch layout = eb_bag_scratch_lay_out(query, extent);
    struct pass pass = {
        .query = query,
        .fault = fault,
        .rows = scratch,
        .index_count = (uint32_t)extent->index_count,
        .bag_count = (uint32_t)extent->result_rows,
    };
    if (eb_bag_scratch_has_weights(query) && pass.index_count > 0) {
        pass.weights = (uint8_t *)scratch + layout.weights_offset;
    }
    if (query->reduction != EB_REDUCTION_NONE) {
        pass.starts = (uint32_t *)(void *)((uint8_t *)scratch + layout.starts_offset);
        if (!find_starts(&pass)) {
            return false;
        }
    }
    if (!check_default(&pass) || !take_rows(&pass)) {
        return false;
    }
    fill_job(&pass, extent, job);
    return true;
}
