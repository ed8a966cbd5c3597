/* The requests of a run, made before it, so that making them costs nothing while it is measured.
 * Thread: immutable once made. Memory: on the heap, within a budget unless their number was given;
 * borrows the target. With --verify no more requests than their answers fit a budget. */
#pragma once

#include "client/cli/load_target.h"

/* All zero is an empty one. */
struct eb_load_pool {
    const struct eb_load_target *target;
    uint32_t bag_count;             /* of each query */
    enum embag_type output_type;    /* unspecified: each table's own */
    uint64_t count;                 /* of requests */
    struct embag_request *requests; /* [count] */
    struct embag_query *queries;    /* [count][tables]; with groups what they mean */
    struct embag_group *groups;     /* [count]; NULL where queries are sent */
    const char **features;          /* [tables] of every group */
    int32_t *lengths;               /* [tables][bag_count] of every group */
    int64_t *indices;               /* of all requests, one behind the other */
    int64_t *offsets;               /* of all tables: [tables][bag_count] */
    uint64_t request_indices;       /* of one request */
    uint32_t kept_versions;         /* whose answers are compared with what is kept */
    uint64_t answer_bytes;          /* values of one answer; f32 where each type is a table's own */
};

/* Draws the requests. `timeout_us` and all else come from the options. false: no memory, or more
 * than can be asked or compared; said on stderr. */
bool eb_load_pool_init(struct eb_load_pool *pool, const struct eb_load_options *options,
    const struct eb_load_target *target);
void eb_load_pool_deinit(struct eb_load_pool *pool);
