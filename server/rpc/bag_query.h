/* Translates a query of the wire format into a query of the kernels.
 * Thread: pure. Memory: everything is borrowed from the request and the version. */
#pragma once

#include "proto/message.h"
#include "proto/status.h"
#include "server/models/model_version.h"

/* The position of one query in its request, which names it in error texts. Also the settings of all
 * queries of the request, and the feature of the query before it. */
struct eb_bag_query_position {
    const struct eb_model_version *version;
    const char *table; /* name of the table or feature; of the group if no feature is meant */
    bool is_group;     /* whether this is a group of the request, or a feature of one */
    size_t number;  /* index of the query or of the group in the request; EB_NO_QUERY if errors give
                       only the name */
    size_t feature; /* index of the feature in the group; EB_NO_FEATURE for the whole group */
    bool may_name_part;            /* the caller may ask for rows of one part */
    enum eb_type output_type;      /* of all queries; if unspecified, each table's own */
    const struct eb_feature *last; /* of the query before, as a hint; NULL if there is none */
};

#define EB_NO_QUERY SIZE_MAX
#define EB_NO_FEATURE SIZE_MAX

struct eb_bag_query_weights {
    const void *data;
    uint64_t bytes; /* 0 if there are no weights */
    int32_t type;   /* DataType; 0 if not given */
};

/* Returns the array in the form that the kernels take. */
static inline struct eb_int_array eb_bag_query_array(const struct eb_wire_array *array)
{
    return (struct eb_int_array){array->data, array->bytes, array->width};
}

/* Sets the error for a name that no table or feature of the version has. Always returns NULL. */
const struct eb_feature *eb_bag_query_refuse_name(
    const struct eb_bag_query_position *position, struct eb_error *error) __attribute__((cold));
/* Returns the table or feature at the position. Returns NULL, with *error set, if none has that
 * name. */
static inline const struct eb_feature *eb_bag_query_find(
    const struct eb_bag_query_position *position, struct eb_error *error)
{
    const struct eb_feature *feature =
        eb_feature_set_find_after(&position->version->features, position->last, position->table);
    return feature ? feature : eb_bag_query_refuse_name(position, error);
}

/* Sets *query to the feature's defaults, without weights. Leaves layout and its fields, indices and
 * bounds unset. Copies member by member, so that the first is stored before all are read. */
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

/* Sets the error for a query that is not for the part of the table's rows that this server has;
 * `part` is that of the query, as in struct eb_wire_query. Always returns false. */
bool eb_bag_query_refuse_part(const struct eb_bag_query_position *position,
    const struct eb_named_table *table, uint32_t part, struct eb_error *error)
    __attribute__((cold));

/* Fills in *query for the feature. Members that the request does not set have the feature's
 * defaults. Returns false with *error set; its text names the query. */
bool eb_bag_query_fill(const struct eb_bag_query_position *position,
    const struct eb_feature *feature, const struct eb_wire_query *wire, struct eb_bag_query *query,
    struct eb_error *error);

/* Replaces these members of a query that eb_bag_query_begin has set; an argument of 0 leaves its
 * member as it is. The query keeps its kind if no member changes. */
void eb_bag_query_choose(
    struct eb_bag_query *query, int32_t reduction, int32_t missing, int32_t output_type);
/* Turns a query that is filled in into a sequence lookup, whose reduction is SUM (bag_sequence.h).
 * `wire` has the request's fields for sequences; a query sets at least one of them. Returns false
 * with *error set if the query's reduction is not NONE. */
bool eb_bag_query_begin_sequence(const struct eb_bag_query_position *position,
    const struct eb_wire_sequence *wire, struct eb_bag_query *query, struct eb_error *error);
/* Adds weights to a query that is filled in. Returns false with *error set if a type of weights is
 * given without any weights, unless there are no indices. */
bool eb_bag_query_weigh(const struct eb_bag_query_position *position,
    const struct eb_bag_query_weights *weights, struct eb_bag_query *query, struct eb_error *error);

/* Sets *error: the query's position, then the text. Always returns false, so that a caller can
 * refuse and return in one line. */
bool eb_bag_query_refuse(const struct eb_bag_query_position *position, struct eb_error *error,
    enum eb_status status, const char *format, ...) __attribute__((cold, format(printf, 4, 5)));
/* Refuses the query because of an error of the kernels. Always returns false. */
bool eb_bag_query_error(const struct eb_bag_query_position *position,
    const struct eb_bag_error *bag_error, struct eb_error *error);
