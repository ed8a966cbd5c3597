#include "server/rpc/bag_query.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* The kernels' enums have the numbers of the wire format, so that a checked value is translated by
 * a cast. */
#define X(name, number, bytes, text)                                                               \
    static_assert((int)EB_##name == (int)EMBAG__V1__DATA_TYPE__DATA_TYPE_##name, "DataType"        \
                                                                                 " " text);
EB_TYPE_LIST(X)
#undef X
static_assert((int)EB_REDUCTION_NONE == (int)EMBAG__V1__REDUCTION__REDUCTION_NONE, "Reduction");
static_assert(
    (int)EB_MISSING_UNKNOWN_ROW == (int)EMBAG__V1__MISSING__MISSING_UNKNOWN_ROW, "Missing");
static_assert((int)EB_LAYOUT_SEGMENTS == (int)EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, "Layout");

static inline const struct eb_wire_array *find_bounds(const struct eb_wire_query *wire)
{
    switch ((enum eb_layout)wire->layout) {
    case EB_LAYOUT_LENGTHS: return &wire->lengths;
    case EB_LAYOUT_SEGMENTS: return &wire->segment_ids;
    default: return &wire->offsets;
    }
}

bool eb_bag_query_refuse(const struct eb_bag_query_position *position, struct eb_error *error,
    enum eb_status status, const char *format, ...)
{
    char text[EB_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (position->number == EB_NO_QUERY) {
        eb_error_set(error, status, "\"%s\": %s", position->table, text);
    } else if (!position->is_group) {
        eb_error_set(
            error, status, "queries[%zu] \"%s\": %s", position->number, position->table, text);
    } else if (position->feature == EB_NO_FEATURE) {
        eb_error_set(
            error, status, "groups[%zu] \"%s\": %s", position->number, position->table, text);
    } else {
        eb_error_set(error, status, "groups[%zu].features[%zu] \"%s\": %s", position->number,
            position->feature, position->table, text);
    }
    return false;
}

void eb_bag_query_choose(
    struct eb_bag_query *query, int32_t reduction, int32_t missing, int32_t output_type)
{
    bool is_other = (reduction != 0 && reduction != (int32_t)query->reduction) ||
                    (missing != 0 && missing != (int32_t)query->missing) ||
                    (output_type != 0 && output_type != (int32_t)query->table->type);
    if (!is_other) {
        return;
    }
    query->kind = NULL;
    query->output_type = (enum eb_type)output_type;
    if (reduction != 0) {
        query->reduction = (enum eb_reduction)reduction;
    }
    if (missing != 0) {
        query->missing = (enum eb_missing)missing;
    }
}

bool eb_bag_query_weigh(const struct eb_bag_query_position *position,
    const struct eb_bag_query_weights *weights, struct eb_bag_query *query, struct eb_error *error)
{
    if (weights->type != 0) {
        query->weights_type = (enum eb_type)weights->type;
    }
    if (weights->bytes > 0) {
        query->weights = weights->data;
        query->weights_bytes = weights->bytes;
    } else if (weights->type != 0 && query->indices.bytes > 0) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "weights_type is set, but there are no weights");
    }
    return true;
}

static const char *name_sequence_field(const struct eb_wire_sequence *wire)
{
    return wire->max_len != 0 ? "max_len"
           : wire->keep_first ? "keep_first"
           : wire->pad        ? "pad"
                              : "unique";
}

bool eb_bag_query_begin_sequence(const struct eb_bag_query_position *position,
    const struct eb_wire_sequence *wire, struct eb_bag_query *query, struct eb_error *error)
{
    if (query->reduction != EB_REDUCTION_NONE) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "%s is set, but the reduction is %s: expected NONE", name_sequence_field(wire),
            eb_reduction_name(query->reduction));
    }
    query->reduction = EB_REDUCTION_SUM;
    query->kind = NULL;
    return true;
}

const struct eb_feature *eb_bag_query_refuse_name(
    const struct eb_bag_query_position *position, struct eb_error *error)
{
    eb_bag_query_refuse(position, error, EB_STATUS_NOT_FOUND,
        "model \"%s\" version %llu has no table or feature of that name", position->version->model,
        (unsigned long long)position->version->version);
    return NULL;
}

/* Fills in the weights of a query. Kept out of line since most queries have none. */
static __attribute__((noinline)) bool fill_bag_weights(const struct eb_bag_query_position *position,
    const struct eb_wire_query *wire, struct eb_bag_query *query, struct eb_error *error)
{
    struct eb_bag_query_weights weights = {wire->weights, wire->weights_bytes, wire->weights_type};
    return eb_bag_query_weigh(position, &weights, query, error);
}

bool eb_bag_query_refuse_part(const struct eb_bag_query_position *position,
    const struct eb_named_table *table, uint32_t part, struct eb_error *error)
{
    const struct eb_part_choice *here = &position->version->tables.part;
    if (table->part == 0) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "part = %u, but the rows of this table are not divided here", part);
    }
    if (part == table->part) {
        return eb_bag_query_refuse(position, error, EB_STATUS_PERMISSION_DENIED,
            "part = %u: only callers with router: true in auth_file may ask for the rows of one "
            "part; ask a router",
            part);
    }
    return eb_bag_query_refuse(position, error, EB_STATUS_FAILED_PRECONDITION,
        "this server has only part %u of %u of the rows, counted from 0; ask a router", here->part,
        here->parts);
}

bool eb_bag_query_fill(const struct eb_bag_query_position *position,
    const struct eb_feature *feature, const struct eb_wire_query *wire, struct eb_bag_query *query,
    struct eb_error *error)
{
    bool is_refused =
        wire->part != feature->table->part || (wire->part != 0 && !position->may_name_part);
    if (__builtin_expect(is_refused, 0)) {
        return eb_bag_query_refuse_part(position, feature->table, wire->part, error);
    }
    eb_bag_query_begin(feature, query);
    query->layout = (enum eb_layout)wire->layout;
    query->indices = eb_bag_query_array(&wire->indices);
    query->bounds = eb_bag_query_array(find_bounds(wire));
    query->num_segments = wire->num_segments;
    query->num_bags = wire->num_bags;
    query->indices_per_bag = wire->indices_per_bag;
    query->include_last_offset = wire->include_last_offset;
    int32_t output_type = wire->output_type ? wire->output_type : (int32_t)position->output_type;
    if ((wire->reduction | wire->missing | output_type) != 0) {
        eb_bag_query_choose(query, wire->reduction, wire->missing, output_type);
    }
    if (wire->has_default) {
        query->has_default = true;
        query->default_index = wire->default_index;
    }
    bool says_weights = wire->weights_bytes > 0 || wire->weights_type != 0;
    return !says_weights || fill_bag_weights(position, wire, query, error);
}

bool eb_bag_query_error(const struct eb_bag_query_position *position,
    const struct eb_bag_error *bag_error, struct eb_error *error)
{
    enum eb_status status = EB_STATUS_INVALID_ARGUMENT;
    switch (bag_error->class) {
    case EB_BAG_ERROR_MALFORMED: break;
    case EB_BAG_ERROR_OUT_OF_RANGE: status = EB_STATUS_OUT_OF_RANGE; break;
    case EB_BAG_ERROR_TOO_LARGE: status = EB_STATUS_RESOURCE_EXHAUSTED; break;
    }
    return eb_bag_query_refuse(position, error, status, "%s", bag_error->text);
}
