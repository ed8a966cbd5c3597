/* From a FeatureGroup as the wire says it to queries as the kernels take them, feature by feature:
 * each is a slice of the group's arrays, which are not copied.
 * Thread: pure. Memory: what is made comes from the arena given; the rest is borrowed from the
 * request and the version. */
#pragma once

#include "proto/arena.h"
#include "server/rpc/bag_query.h"

/* A group whose arrays fit each other. */
struct eb_group_query {
    const struct eb_wire_group *wire;
    struct eb_wire_array lengths; /* [features * bags], as sent or made of the offsets */
    const uint64_t *starts;       /* [features + 1] where each feature's values begin */
    uint64_t weight_bytes;        /* of one weight; 0: none */
};

/* Lists the features of the request's groups that are named: from then on they are as if the
 * request had listed them. A group that the version has not stays without. false: *error, the
 * request has more than count_max queries and features. */
bool eb_group_query_list(const struct eb_wire_request *request,
    const struct eb_model_version *version, uint64_t count_max, struct eb_error *error);

/* That there are features. `place` names the group. false: *error. */
bool eb_group_query_begin(const struct eb_bag_query_place *place, const struct eb_wire_group *wire,
    struct eb_group_query *group, struct eb_error *error);
/* Once the features are known: checks sizes, and where each one's values begin. false: *error. */
bool eb_group_query_lay_out(const struct eb_bag_query_place *place, struct eb_arena *arena,
    struct eb_group_query *group, struct eb_error *error);

/* Of a group that is laid out: fills the query of the place's feature. false: *error, its text
 * naming the feature. */
bool eb_group_query_fill(const struct eb_group_query *group, const struct eb_bag_query_place *place,
    const struct eb_feature *feature, struct eb_bag_query *query, struct eb_error *error);
