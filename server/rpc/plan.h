/* The plan of a request: its checked queries and features as jobs of the kernels, and the results
 * that the jobs produce.
 * Thread: the loop's. Memory: the structs come from the request's arena, scratch from the loop's
 * answer pool; jobs may also point into the request's message. */
#pragma once

#include "proto/arena.h"
#include "proto/send_queue.h"
#include "server/base/limits.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/bag_query.h"
#include "server/rpc/feature_memo.h"

/* A query whose missing indices are to be listed. */
struct eb_plan_missing {
    struct eb_bag_query query;
    uint64_t first_index; /* position of the feature's first index among its group's values; 0 if
                             not a feature of a group */
    /* If the table is keyed and its rows are on other servers: the positions, ascending, each with
     * first_index added. Otherwise NULL. */
    const uint32_t *positions;
};

/* A query on a table whose rows are on other servers. Its job lists row numbers of the whole table,
 * or keys. When the servers have answered, it is replaced by one on their rows (remote.h). */
struct eb_plan_remote {
    struct eb_plan_remote *next; /* of an earlier query */
    uint32_t number;             /* index in plan->queries and in plan->jobs */
    uint64_t first_index;        /* as in struct eb_plan_missing */
    struct eb_bag_query query;
    struct eb_bag_query_position position;
    /* Whether its rows are only fetched (route_fetch.h), and its job stays: that of a pending
     * sequence lookup, or of keys in no bag, which are looked up all the same. */
    bool is_fetched;
    uint32_t row_count; /* rows of the job's list; includes keys in no bag */
};

/* The data kept of a query, or of one feature of a group, beside its job. */
struct eb_plan_query {
    const struct eb_named_table *table;
    uint64_t result_row_bytes;
    const struct eb_plan_missing *missing; /* NULL if there is nothing to list */
    uint64_t unreached_count;              /* indices whose part could not be reached */
    bool is_incomplete; /* some of its rows were not reached; a default row is not counted above */
    uint64_t index_count;
    struct eb_int_array indices; /* the indices in the request */
    const struct eb_id_map *id_map;
};

/* The lists of a sequence lookup, which tell which row belongs to which bag. Those of a group's
 * features follow each other. */
struct eb_plan_sequence {
    int32_t *lengths;  /* [lengths_count] */
    uint32_t *inverse; /* [inverse_count]; NULL without `unique` */
    uint64_t lengths_count;
    uint64_t inverse_count;
    uint64_t row_count;  /* rows of the result */
    uint32_t padded_len; /* rows of each bag; 0 without `pad` */
    /* What eb_plan_take_pending needs. NULL if the lists are made when the request is checked.
     * Otherwise a table is keyed and its rows are on other servers: the lists depend on which keys
     * are missing. The jobs of the result then still have bags, and the reduction SUM. */
    const struct eb_plan_pending *pending;
};

/* One BagResult: of a query, of a group, or of all queries side by side. */
struct eb_plan_result {
    uint32_t query_first; /* index in plan->queries and in plan->jobs */
    uint32_t query_count; /* 0 if it failed */
    uint32_t number;      /* index among the request's queries, then its groups */
    /* Whether it is the result of one query that is not a sequence lookup. If not, and `sequence`
     * is NULL, it has the results of several queries side by side. */
    bool is_single;
    enum eb_status status;
    struct eb_plan_sequence *sequence; /* NULL if it is not the result of a sequence lookup */
    const char *text;                  /* why it failed */
};

/* Sums that count against the request's caps. */
struct eb_plan_asked {
    uint64_t index_count;
    uint64_t result_rows; /* includes rows of queries whose values were invalid */
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
    bool may_name_part; /* the caller may ask for rows of one part */
    struct eb_arena *arena;
    struct eb_buffer_pool *pool; /* for scratch memory and answers */
    struct eb_feature_memo *memo;
    struct eb_plan_asked asked;
    struct eb_plan_counts counts;
    struct eb_plan_query *queries; /* [query_count] */
    struct eb_bag_job *jobs;       /* [query_count] same order; eb_plan_answer sets the outputs */
    size_t remote_count;
    struct eb_plan_remote *remotes; /* the last query's first */
    size_t result_count;
    struct eb_plan_result *results;
    struct eb_plan_scratch *scratch; /* memory that jobs point into, in pieces; the newest first */
    uint8_t *scratch_room;           /* the unused rest of the newest piece */
    size_t scratch_room_bytes;
    /* The first group whose features the memo did not know. */
    const struct eb_wire_group *unknown_group;
    const struct eb_feature *const *unknown_features; /* features of that group, from the arena */
};

/* Most bytes that planning one query or feature takes from the arena, with an error text of up to
 * 512 bytes. */
#define EB_PLAN_QUERY_BYTES 1680

/* Checks a request. The caller sets the plan's first seven members and zeroes the rest. Checks
 * query by query, and the sizes of each before its values. Returns false with the first error in
 * *error. With errors_per_query, each result holds its own error, and false is returned only for
 * errors of the whole request. eb_plan_deinit must be called in either case. */
bool eb_plan_check(struct eb_plan *plan, struct eb_error *error);
/* Makes the lists and the final jobs of all pending sequence lookups, except of results that have
 * failed. The rows of their jobs must be here by then, the missing ones treated as the policy says.
 * Returns false with *error set if the values exceed the request's cap. */
bool eb_plan_take_pending(struct eb_plan *plan, struct eb_error *error);
/* Gives the scratch back to the pool. */
void eb_plan_deinit(struct eb_plan *plan);

/* Sets *error to the message that no memory is left for `what`. Always returns false. */
bool eb_plan_refuse_memory(struct eb_error *error, const char *what);

/* Lays out an answer with results [first, first + count) of a checked plan, as a LookupResponse or
 * a ModelInferResponse, and points the jobs of these results into it. The caller must still set the
 * times of a LookupResponse. If the results are divided among several answers, it must also mark
 * the last of them as the last. Returns NULL with *error set. */
struct eb_outgoing *eb_plan_answer(
    struct eb_plan *plan, size_t first, size_t count, struct eb_error *error);
