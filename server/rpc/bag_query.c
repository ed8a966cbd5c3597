#include "server/rpc/bag_query.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* Kernel enums carry the wire's numbers, so that translating is a cast once they are checked. */
#define X(name, number, bytes, text)                                                               \
    static_assert((int)EB_##name == (int)EMBAG__V1__DATA_TYPE__DATA_TYPE_##name, "DataType"        \
                                                                                 " " text);
EB_TYPE_LIST(X)
#undef X
static_assert((int)EB_REDUCTION_NONE == (int)EMBAG__V1__REDUCTION__REDUCTION_NONE, "Reduction");
static_assert(
    (int)EB_MISSING_UNKNOWN_ROW == (int)EMBAG__V1__MISSING__MISSING_UNKNOWN_ROW, "Missing");
static_assert((int)EB_LAYOUT_SEGMENTS == (int)EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, "Layout");

static const struct eb_wire_array *find_bounds(const struct eb_wire_query *wire)
{
    switch ((enum eb_layout)wire->layout) {
    case EB_LAYOUT_LENGTHS: return &wire->lengths;
    case EB_LAYOUT_SEGMENTS: return &wire->segment_ids;
    case EB_LAYOUT_OFFSETS:
    case EB_LAYOUT_PACKED:
    case EB_LAYOUT_UNSPECIFIED:
    case EB_LAYOUT_COUNT: break;
    }
    return &wire->offsets;
}

bool eb_bag_query_refuse(const struct eb_bag_query_place *place, struct eb_error *error,
    enum eb_status status, const char *format, ...)
{
    char text[EB_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (place->number == EB_NO_QUERY) {
        eb_error_set(error, status, "\"%s\": %s", place->table, text);
    } else if (!place->is_group) {
        eb_error_set(error, status, "queries[%zu] \"%s\": %s", place->number, place->table, text);
    } else if (place->feature == EB_NO_FEATURE) {
        eb_error_set(error, status, "groups[%zu] \"%s\": %s", place->number, place->table, text);
    } else {
        eb_error_set(error, status, "groups[%zu].features[%zu] \"%s\": %s", place->number,
            place->feature, place->table, text);
    }
    return false;
}

bool eb_bag_query_refuse_weights_type(
    const struct eb_bag_query_place *place, struct eb_error *error)
{
    return eb_bag_query_refuse(
        place, error, EB_STATUS_INVALID_ARGUMENT, "weights_type is set, but there are no weights");
}

const struct eb_feature *eb_bag_query_find(
    const struct eb_bag_query_place *place, struct eb_error *error)
{
    const struct eb_feature *feature = eb_feature_set_find(&place->version->features, place->table);
    if (!feature) {
        eb_bag_query_refuse(place, error, EB_STATUS_NOT_FOUND,
            "model \"%s\" version %llu has no table or feature of that name", place->version->model,
            (unsigned long long)place->version->version);
    }
    return feature;
}

bool eb_bag_query_fill(const struct eb_bag_query_place *place, const struct eb_wire_query *wire,
    struct eb_bag_query *query, const struct eb_named_table **table, struct eb_error *error)
{
    const struct eb_feature *feature = eb_bag_query_find(place, error);
    if (wire->fault && (feature || wire->table[0] == '\0')) {
        *error = *wire->fault;
        return false;
    }
    if (!feature) {
        return false;
    }
    *table = feature->table;
    enum eb_type type = (*table)->table.type;
    bool weighted = wire->weights_bytes > 0;
    *query = (struct eb_bag_query){
        .table = &(*table)->table,
        .id_map = feature->id_map,
        .reduction = wire->reduction ? (enum eb_reduction)wire->reduction : feature->reduction,
        .missing = wire->missing ? (enum eb_missing)wire->missing : feature->missing,
        .output_type = place->output_type,
        .layout = (enum eb_layout)wire->layout,
        .include_last_offset = wire->include_last_offset,
        .has_default = wire->has_default || feature->has_default,
        .indices = eb_bag_query_array(&wire->indices),
        .bounds = eb_bag_query_array(find_bounds(wire)),
        .indices_per_bag = wire->indices_per_bag,
        .num_segments = wire->num_segments,
        .num_bags = wire->num_bags,
        .max_ids = feature->max_ids,
        .default_index = wire->has_default ? wire->default_index : feature->default_index,
        .weights = weighted ? wire->weights : NULL,
        .weights_bytes = wire->weights_bytes,
        .weights_type = wire->weights_type ? (enum eb_type)wire->weights_type : type,
    };
    if (!weighted && wire->weights_type != 0 && query->indices.bytes > 0) {
        return eb_bag_query_refuse_weights_type(place, error);
    }
    return true;
}

bool eb_bag_query_fault(const struct eb_bag_query_place *place, const struct eb_bag_fault *fault,
    struct eb_error *error)
{
    enum eb_status status = EB_STATUS_INVALID_ARGUMENT;
    switch (fault->class) {
    case EB_FAULT_MALFORMED: break;
    case EB_FAULT_OUT_OF_RANGE: status = EB_STATUS_OUT_OF_RANGE; break;
    case EB_FAULT_TOO_LARGE: status = EB_STATUS_RESOURCE_EXHAUSTED; break;
    }
    return eb_bag_query_refuse(place, error, status, "%s", fault->text);
}
