/* What a request asks for, checked: its queries and features as jobs of the kernels, and the
 * results that they make.
 * Thread: the loop's. Memory: the structs from the request's arena, scratch from the loop's answer
 * pool. */
#pragma once

#include "proto/arena.h"
#include "proto/send_queue.h"
#include "server/base/limits.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/bag_query.h"
#include "server/rpc/feature_memo.h"

/* Of a query whose missing indices are to be listed. */
struct eb_plan_missing {
    struct eb_bag_query query;
    uint64_t first_index; /* of a feature in its group's values; else 0 */
};

/* What is kept of a query, or of one feature of a group, beside its job. */
struct eb_plan_query {
    const struct eb_named_table *table;
    uint64_t result_row_bytes;
    const struct eb_plan_missing *missing; /* NULL: there is nothing to list */
    uint64_t index_count;
    struct eb_int_array indices; /* the request's */
    const struct eb_id_map *id_map;
};

/* One BagResult: a query's, a group's, or that of all queries side by side. */
struct eb_plan_result {
    uint32_t query_first; /* of plan->queries, and of plan->jobs */
    uint32_t query_count; /* 0: it failed */
    uint32_t number;      /* queries first, then groups */
    bool is_joined;       /* its queries' results lie side by side */
    enum eb_status status;
    const char *text; /* why it failed */
};

/* What counts against the request's caps. */
struct eb_plan_asked {
    uint64_t index_count;
    uint64_t result_rows; /* includes those of queries whose values were wrong */
    uint64_t values_bytes;
};

/* Sums over the queries that are computed. */
struct eb_plan_counts {
    uint32_t query_count;
    uint64_t index_count;
    uint64_t result_rows;
    uint64_t values_bytes;
    uint64_t gather_bytes;
};

struct eb_plan {
    const struct eb_wire_request *request;
    const struct eb_model_version *version;
    const struct eb_limits *limits;
    const struct eb_bag_ops *ops;
    struct eb_arena *arena;
    struct eb_buffer_pool *pool; /* of scratch and answers */
    struct eb_feature_memo *memo;
    struct eb_plan_asked asked;
    struct eb_plan_counts counts;
    struct eb_plan_query *queries; /* [query_count] */
    struct eb_bag_job *jobs;       /* beside them; outputs set by eb_plan_answer */
    size_t result_count;
    struct eb_plan_result *results;
    struct eb_plan_scratch *scratch; /* what jobs point into, in pieces; the newest first */
    uint8_t *scratch_room;           /* of the newest, what is not taken yet */
    size_t scratch_room_bytes;
    const struct eb_wire_group
        *unknown_group; /* the first group whose features the memo did not know */
    const struct eb_feature *const *unknown_features; /* what these are, from the arena */
};

/* Most that planning one query, or feature, takes from the arena: with the text of its error, most
 * of what such texts have. */
#define EB_PLAN_QUERY_BYTES 1408

/* Checks everything. The first seven members are set, the rest zeroed. false: *error holds the
 * first error, query by query, sizes before values; with errors_per_query a result holds its own,
 * and false is for what concerns the whole request. eb_plan_deinit is due either way. */
bool eb_plan_check(struct eb_plan *plan, struct eb_error *error);
/* Gives the scratch back. */
void eb_plan_deinit(struct eb_plan *plan);

/* "No memory left for WHAT": always false. */
bool eb_plan_refuse_memory(struct eb_error *error, const char *what);

/* Lays out the answer, a LookupResponse or a ModelInferResponse, of a checked plan with results
 * [first, first + count), whose jobs it points into it; a LookupResponse's times are still to be
 * set, and where these are not all results, which one is the last. NULL: *error. */
struct eb_outgoing *eb_plan_answer(
    struct eb_plan *plan, size_t first, size_t count, struct eb_error *error);
