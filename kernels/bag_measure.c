#include "kernels/bag_measure.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void eb_bag_error_format(
    struct eb_bag_error *error, enum eb_bag_error_class class, const char *format, ...)
{
    error->class = class;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
}

uint64_t eb_bag_weights_bytes(enum eb_type type)
{
    return eb_type_is_float(type) && type != EB_F64 ? sizeof(float) : sizeof(uint64_t);
}

const char *eb_reduction_name(enum eb_reduction reduction)
{
    static const char *const names[EB_REDUCTION_COUNT] = {
        [EB_REDUCTION_UNSPECIFIED] = "unspecified",
#define X(name, number, text) [number] = (text),
        EB_REDUCTION_LIST(X)
#undef X
    };
    assert(reduction >= 0 && reduction < EB_REDUCTION_COUNT);
    return names[reduction];
}

static const char *bounds_name(enum eb_layout layout)
{
    static const char *const names[EB_LAYOUT_COUNT] = {
        "bounds", "offsets", "lengths", "indices_per_bag", "segment_ids"};
    return names[layout];
}

/* Counts the integers in an array. */
static inline bool count_entries(
    const struct eb_int_array *array, const char *name, uint64_t *count, struct eb_bag_error *error)
{
    assert(array->width == 8 || array->width == 4 || array->bytes == 0);
    *count = array->bytes / 4 >> (array->width == 8);
    if ((array->bytes & (array->width - 1)) != 0) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "%s has %" PRIu64 " bytes, which is not a multiple of %" PRIu32, name, array->bytes,
            array->width);
    }
    return true;
}

static bool count_measured_indices(
    const struct eb_bag_query *query, uint64_t *index_count, struct eb_bag_error *error)
{
    if (!count_entries(&query->indices, "indices", index_count, error)) {
        return false;
    }
    if (*index_count > EB_BAG_INDICES_MAX) {
        return eb_bag_error_set(error, EB_BAG_ERROR_TOO_LARGE,
            "%" PRIu64 " indices, at most %" PRIu64 " are allowed", *index_count,
            EB_BAG_INDICES_MAX);
    }
    return true;
}

static bool is_weights_type_allowed(const struct eb_bag_query *query)
{
    enum eb_type type = query->table->type;
    return query->weights_type == type || (query->weights_type == EB_F32 && eb_type_is_float(type));
}

/* Checks weights, which must be given. */
static bool check_measured_weights(
    const struct eb_bag_query *query, uint64_t index_count, struct eb_bag_error *error)
{
    enum eb_reduction reduction = query->reduction;
    assert(query->weights || query->weights_bytes == 0);
    if (reduction == EB_REDUCTION_MEAN || reduction == EB_REDUCTION_MAX ||
        reduction == EB_REDUCTION_MIN) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED, "weights are not allowed with %s",
            eb_reduction_name(reduction));
    }
    if (!is_weights_type_allowed(query)) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "weights_type %s cannot be used with a table of %s", eb_type_name(query->weights_type),
            eb_type_name(query->table->type));
    }
    uint64_t bytes = index_count * eb_type_bytes(query->weights_type);
    if (query->weights_bytes != bytes) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "weights has %" PRIu64 " bytes; expected %" PRIu64 ", one weight for each index",
            query->weights_bytes, bytes);
    }
    return true;
}

static bool check_reduction(const struct eb_bag_query *query, struct eb_bag_error *error)
{
    enum eb_type type = query->table->type;
    bool divides_by_weights =
        query->reduction == EB_REDUCTION_WEIGHTED_MEAN || query->reduction == EB_REDUCTION_SQRTN;
    if (divides_by_weights && !eb_type_is_float(type)) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "%s needs a floating-point table, but this one is %s",
            eb_reduction_name(query->reduction), eb_type_name(type));
    }
    if (query->missing == EB_MISSING_UNKNOWN_ROW && query->table->unknown_row == -1) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "missing is UNKNOWN_ROW, but the table has no row for unknown ids");
    }
    return true;
}

static bool choose_output_type(
    const struct eb_bag_query *query, enum eb_type *output_type, struct eb_bag_error *error)
{
    enum eb_type type = query->table->type;
    enum eb_type wanted = query->output_type;
    if (wanted == EB_TYPE_UNSPECIFIED || wanted == type) {
        *output_type = type;
        return true;
    }
    if (!eb_type_is_float(type) || !eb_type_is_float(wanted) || wanted == EB_F64) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "output_type %s cannot be used with a table of %s", eb_type_name(wanted),
            eb_type_name(type));
    }
    *output_type = wanted;
    return true;
}

/* Sets *bag_count to `bags`, the count that the layout's fields give. Returns false if the query's
 * num_bags is given and differs. */
static bool agree_on_bags(const struct eb_bag_query *query, uint64_t bags, uint64_t *bag_count,
    struct eb_bag_error *error)
{
    if (query->num_bags != 0 && query->num_bags != bags) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "num_bags is %" PRIu64 ", but %s gives %" PRIu64, query->num_bags,
            query->layout == EB_LAYOUT_SEGMENTS ? "num_segments" : bounds_name(query->layout),
            bags);
    }
    *bag_count = bags;
    return true;
}

static bool count_without_layout(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *bag_count, struct eb_bag_error *error)
{
    if (index_count > 0 && query->num_bags != 1) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "indices need a layout (offsets, lengths, segment_ids or "
            "indices_per_bag), or num_bags = 1");
    }
    *bag_count = query->num_bags;
    return true;
}

/* Counts the bags of an empty array of offsets or lengths. Without indices, num_bags is the count.
 * With indices, empty offsets mean that there are no bags (the indices belong to none), and empty
 * lengths are an error. */
static bool count_unlisted(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *bag_count, struct eb_bag_error *error)
{
    if (query->include_last_offset) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "offsets is empty, but include_last_offset needs an entry");
    }
    if (index_count > 0 && query->layout == EB_LAYOUT_OFFSETS) {
        return agree_on_bags(query, 0, bag_count, error);
    }
    if (index_count > 0) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "lengths is empty, but the number of indices is %" PRIu64, index_count);
    }
    *bag_count = query->num_bags;
    return true;
}

/* Counts the bags of offsets or lengths, whose array has an entry for each bag. */
static inline bool count_listed(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *bag_count, struct eb_bag_error *error)
{
    uint64_t entries = 0;
    if (!count_entries(&query->bounds, bounds_name(query->layout), &entries, error)) {
        return false;
    }
    if (entries == 0) {
        return count_unlisted(query, index_count, bag_count, error);
    }
    return agree_on_bags(query, entries - query->include_last_offset, bag_count, error);
}

static bool count_packed(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *bag_count, struct eb_bag_error *error)
{
    uint64_t per_bag = query->indices_per_bag;
    if (per_bag == 0 && index_count == 0) {
        *bag_count = query->num_bags;
        return true;
    }
    if (per_bag == 0 || index_count % per_bag != 0) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "the number of indices, %" PRIu64 ", is not a multiple of indices_per_bag = %" PRIu64,
            index_count, per_bag);
    }
    return agree_on_bags(query, index_count / per_bag, bag_count, error);
}

static bool count_segments(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *bag_count, struct eb_bag_error *error)
{
    uint64_t entries = 0;
    if (!count_entries(&query->bounds, "segment_ids", &entries, error)) {
        return false;
    }
    if (entries != index_count) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "the number of segment_ids is %" PRIu64 ", but the number of indices is %" PRIu64,
            entries, index_count);
    }
    return agree_on_bags(query, query->num_segments, bag_count, error);
}

static bool count_bags(const struct eb_bag_query *query, uint64_t index_count, uint64_t *bag_count,
    struct eb_bag_error *error)
{
    if (query->layout == EB_LAYOUT_OFFSETS) {
        return count_listed(query, index_count, bag_count, error);
    }
    if (query->include_last_offset) {
        return eb_bag_error_set(
            error, EB_BAG_ERROR_MALFORMED, "include_last_offset is set without offsets");
    }
    switch (query->layout) {
    case EB_LAYOUT_UNSPECIFIED: return count_without_layout(query, index_count, bag_count, error);
    case EB_LAYOUT_LENGTHS: return count_listed(query, index_count, bag_count, error);
    case EB_LAYOUT_PACKED: return count_packed(query, index_count, bag_count, error);
    case EB_LAYOUT_SEGMENTS: return count_segments(query, index_count, bag_count, error);
    case EB_LAYOUT_OFFSETS:
    case EB_LAYOUT_COUNT: break;
    }
    assert(false && "a layout");
    return false;
}

static inline bool count_result_rows(const struct eb_bag_query *query, uint64_t index_count,
    uint64_t *result_rows, struct eb_bag_error *error)
{
    if (query->reduction == EB_REDUCTION_NONE) {
        *result_rows = index_count;
        return true;
    }
    if (!count_bags(query, index_count, result_rows, error)) {
        return false;
    }
    if (*result_rows > EB_BAG_BAGS_MAX) {
        return eb_bag_error_set(error, EB_BAG_ERROR_TOO_LARGE,
            "%" PRIu64 " bags, at most %" PRIu64 " are allowed", *result_rows, EB_BAG_BAGS_MAX);
    }
    return true;
}

bool eb_bag_kind_find(
    const struct eb_bag_query *query, struct eb_bag_kind *kind, struct eb_bag_error *error)
{
    const struct eb_table *table = query->table;
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    assert(table->row_elements > 0 && table->row_stride_bytes >= row_bytes);
    assert(query->reduction > EB_REDUCTION_UNSPECIFIED && query->reduction < EB_REDUCTION_COUNT);
    assert(query->missing > EB_MISSING_UNSPECIFIED && query->missing < EB_MISSING_COUNT);
    enum eb_type output_type;
    if (!check_reduction(query, error) || !choose_output_type(query, &output_type, error)) {
        return false;
    }
    *kind = (struct eb_bag_kind){
        .result_row_bytes = table->row_elements * eb_type_bytes(output_type),
        .gather_row_bytes = row_bytes + (table->scales ? sizeof(struct eb_row_scale) : 0),
        .lines = eb_bag_lines_find(table, 0, table->row_elements),
        .output_type = output_type,
    };
    return true;
}

bool eb_bag_measure(
    const struct eb_bag_query *query, struct eb_bag_extent *extent, struct eb_bag_error *error)
{
    const struct eb_bag_kind *kind = query->kind;
    struct eb_bag_kind found;
    uint64_t index_count;
    uint64_t result_rows;
    if (!count_measured_indices(query, &index_count, error) ||
        (eb_bag_weights_are_given(query) && !check_measured_weights(query, index_count, error)) ||
        (!kind && !eb_bag_kind_find(query, &found, error)) ||
        !count_result_rows(query, index_count, &result_rows, error)) {
        return false;
    }
    kind = kind ? kind : &found;
    assert(kind->result_row_bytes == query->table->row_elements * eb_type_bytes(kind->output_type));
    eb_bag_extent_fill(query, kind, index_count, result_rows, extent);
    return true;
}
