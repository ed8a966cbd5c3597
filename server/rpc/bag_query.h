/* From a query as the wire says it to a query as the kernels take it.
 * Thread: pure. Memory: everything is borrowed from the request and the version. */
#pragma once

#include "proto/message.h"
#include "proto/status.h"
#include "server/models/model_version.h"

/* One query's place: what its errors name, what is said of all queries of its request, and where
 * the one before it has led. */
struct eb_bag_query_place {
    const struct eb_model_version *version;
    const char *table;        /* its name, a feature's, or a group's where no feature is meant */
    bool is_group;            /* a group of the request, or a feature of one */
    size_t number;            /* of the query among queries, or of the group among groups;
                                 EB_NO_QUERY: its name tells it */
    size_t feature;           /* of the group; EB_NO_FEATURE: all of it */
    enum eb_type output_type; /* unspecified: each table's own */
    const struct eb_feature *last; /* found before it: a guess at which is next; NULL: none */
};

#define EB_NO_QUERY SIZE_MAX
#define EB_NO_FEATURE SIZE_MAX

struct eb_bag_query_weights {
    const void *data;
    uint64_t bytes; /* 0: there are none */
    int32_t type;   /* DataType; 0: not said */
};

/* An array as the kernels take it. */
static inline struct eb_int_array eb_bag_query_array(const struct eb_wire_array *array)
{
    return (struct eb_int_array){array->data, array->bytes, array->width};
}

/* Sets the error of a place whose table or feature there is none of. Always NULL. */
const struct eb_feature *eb_bag_query_refuse_name(
    const struct eb_bag_query_place *place, struct eb_error *error) __attribute__((cold));
/* The place's table or feature. NULL: *error says that there is none of its name. */
static inline const struct eb_feature *eb_bag_query_find(
    const struct eb_bag_query_place *place, struct eb_error *error)
{
    const struct eb_feature *feature =
        eb_feature_set_find_after(&place->version->features, place->last, place->table);
    return feature ? feature : eb_bag_query_refuse_name(place, error);
}

/* What a feature's query is where the request says nothing of it: all but layout, its fields,
 * indices and bounds; without weights. Member by member, so that not all are read before the first
 * is stored. */
static inline void eb_bag_query_begin(const struct eb_feature *feature, struct eb_bag_query *query)
{
    query->table = &feature->table->table;
    query->kind = feature->kind;
    query->id_map = feature->id_map;
    query->max_ids = feature->max_ids;
    query->default_index = feature->default_index;
    query->reduction = feature->reduction;
    query->missing = feature->missing;
    query->output_type = EB_TYPE_UNSPECIFIED;
    query->weights = NULL;
    query->weights_bytes = 0;
    query->weights_type = query->table->type;
    query->has_default = feature->has_default;
}

/* Fills *query for the place's feature; what the request does not say is as that has it. false:
 * *error, its text naming the query. */
bool eb_bag_query_fill(const struct eb_bag_query_place *place, const struct eb_feature *feature,
    const struct eb_wire_query *wire, struct eb_bag_query *query, struct eb_error *error);

/* Replaces, in a query that is begun, what the request says of these; 0: nothing. What is said as
 * it is anyway keeps the query's kind. */
void eb_bag_query_choose(
    struct eb_bag_query *query, int32_t reduction, int32_t missing, int32_t output_type);
/* Adds weights, as they are said, to a query that is filled. false: *error, there are none to be of
 * the type that is said, though there are indices. */
bool eb_bag_query_weigh(const struct eb_bag_query_place *place,
    const struct eb_bag_query_weights *weights, struct eb_bag_query *query, struct eb_error *error);

/* Sets the query's error: its place, then the text. Always false, so that a caller can refuse and
 * return in one line. */
bool eb_bag_query_refuse(const struct eb_bag_query_place *place, struct eb_error *error,
    enum eb_status status, const char *format, ...) __attribute__((cold, format(printf, 4, 5)));
/* Refuses it for an error of the kernels. */
bool eb_bag_query_error(const struct eb_bag_query_place *place,
    const struct eb_bag_error *bag_error, struct eb_error *error);
