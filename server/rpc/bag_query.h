/* From a query as the wire says it to a query as the kernels take it.
 * Thread: pure. Memory: everything is borrowed from the request and the version. */
#pragma once

#include "proto/message.h"
#include "proto/status.h"
#include "server/models/model_version.h"

/* One query's place: what its errors name, and what is said of all queries of its request. */
struct eb_bag_query_place {
    const struct eb_model_version *version;
    const char *table;        /* its name, a feature's, or a group's where no feature is meant */
    bool is_group;            /* a group of the request, or a feature of one */
    size_t number;            /* of the query among queries, or of the group among groups;
                                 EB_NO_QUERY: its name tells it */
    size_t feature;           /* of the group; EB_NO_FEATURE: all of it */
    enum eb_type output_type; /* unspecified: each table's own */
};

#define EB_NO_QUERY SIZE_MAX
#define EB_NO_FEATURE SIZE_MAX

/* An array as the kernels take it. */
static inline struct eb_int_array eb_bag_query_array(const struct eb_wire_array *array)
{
    return (struct eb_int_array){
        .data = array->data, .bytes = array->bytes, .width = array->width ? array->width : 8};
}

/* The place's table or feature. NULL: *error says that there is none of its name. */
const struct eb_feature *eb_bag_query_find(
    const struct eb_bag_query_place *place, struct eb_error *error);
/* Finds the table or feature and fills *query and *table; what the request does not say is as the
 * feature has it. false: *error, its text naming the query. */
bool eb_bag_query_fill(const struct eb_bag_query_place *place, const struct eb_wire_query *wire,
    struct eb_bag_query *query, const struct eb_named_table **table, struct eb_error *error);

/* Sets the query's error: its place, then the text. Always false, so that a caller can refuse and
 * return in one line. */
bool eb_bag_query_refuse(const struct eb_bag_query_place *place, struct eb_error *error,
    enum eb_status status, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Refuses it for saying the type of weights that it has none of. */
bool eb_bag_query_refuse_weights_type(
    const struct eb_bag_query_place *place, struct eb_error *error);
/* Refuses it for a fault of the kernels. */
bool eb_bag_query_fault(const struct eb_bag_query_place *place, const struct eb_bag_fault *fault,
    struct eb_error *error);
