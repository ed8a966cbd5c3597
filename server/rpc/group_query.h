/* Translates a FeatureGroup of the wire format into queries of the kernels, one for each feature.
 * Each query is a slice of the group's arrays, which are not copied.
 * Thread: pure. Memory: new arrays come from the given arena; everything else is borrowed from the
 * request and the version. */
#pragma once

#include "proto/arena.h"
#include "server/rpc/bag_query.h"

/* A group whose arrays are consistent with each other. */
struct eb_group_query {
    const struct eb_wire_group *wire;
    struct eb_wire_array lengths; /* [features * bags], as sent or computed from the offsets */
    const uint64_t *starts;       /* [features + 1] start of each feature's values */
    uint64_t weight_bytes;        /* size of one weight; 0 if there are no weights */
    bool is_sequence_set;         /* whether a field of sequence lookups is set */
};

/* Lists the features of the groups that the request names without listing them. From then on these
 * groups are as if the request had listed their features. A group that the version does not have
 * stays without features. Returns false with *error set if the request has more than count_max
 * queries and features. */
bool eb_group_query_list(const struct eb_wire_request *request,
    const struct eb_model_version *version, uint64_t count_max, struct eb_error *error);

/* Begins *group and checks that it has features. `position` names the group. Returns false with
 * *error set. */
bool eb_group_query_begin(const struct eb_bag_query_position *position,
    const struct eb_wire_group *wire, struct eb_group_query *group, struct eb_error *error);
/* Checks sizes and finds the start of each feature's values. Called once the features are known.
 * Returns false with *error set. */
bool eb_group_query_lay_out(const struct eb_bag_query_position *position, struct eb_arena *arena,
    struct eb_group_query *group, struct eb_error *error);

/* Fills in the query of the feature at the position, in a group that is laid out. Returns false
 * with *error set; its text names the feature. */
bool eb_group_query_fill(const struct eb_group_query *group,
    const struct eb_bag_query_position *position, const struct eb_feature *feature,
    struct eb_bag_query *query, struct eb_error *error);
