/* What a request asks for, checked and laid out: its queries as jobs of the kernels, and the bytes
 * of its answer with everything written but the pooled values.
 * Thread: the loop's. Memory: the structs from the request's arena, scratch and answer from the
 * loop's answer pool. */
#pragma once

#include "proto/arena.h"
#include "server/config.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/bag_query.h"

/* One query of a plan. */
struct eb_plan_query {
    struct eb_bag_query_place place;
    struct eb_bag_query query;
    struct eb_bag_extent extent;
    const struct eb_named_table *table;
};

struct eb_plan {
    const struct eb_wire_request *request;
    const struct eb_model_version *version;
    const struct eb_limits *limits;
    const struct eb_bag_ops *ops;
    struct eb_arena *arena;
    struct eb_buffer_pool *pool; /* of scratch and answer */
    size_t count;                /* queries measured */
    struct eb_plan_query *queries;
    struct eb_bag_job *jobs; /* [count], outputs set by eb_plan_answer */
    void *scratch;
    size_t scratch_bytes;
    uint64_t index_count;
    uint64_t result_rows;
    uint64_t values_bytes;
    uint64_t gather_bytes;
};

/* Checks everything. The first seven members are set, the rest zeroed. false: *error holds the
 * first fault, query by query, sizes before values. eb_plan_deinit is due either way. */
bool eb_plan_check(struct eb_plan *plan, struct eb_error *error);
/* Gives the scratch back. */
void eb_plan_deinit(struct eb_plan *plan);

/* Lays out the answer of a checked plan and points the jobs into it. NULL: *error. */
struct eb_outgoing *eb_plan_answer(struct eb_plan *plan, struct eb_error *error);
