/* The remote queries of a lookup, while their legs are in flight and when these are over. Private
 * to remote.c, remote_slice.c and remote_end.c.
 *
 * Thread: the loop's. Memory: the remote arena, unless stated otherwise. */
#pragma once

#include "server/route/leg_link.h"
#include "server/route/route_fetch.h"
#include "server/route/route_legs.h"
#include "server/rpc/lookup_state.h"

/* One remote query. Its job in the plan is copied, because the plan's is replaced in the end. */
struct remote_query {
    const struct eb_plan_remote *plan;
    struct eb_bag_job job;
    struct eb_route_fetch fetch; /* if plan->is_fetched */
    uint32_t slice_first;        /* index in eb_remote.slices */
    uint32_t slice_count;
    bool is_cut; /* into slices (route_slice.h); if not, it has one slice with all its bags */
    /* If it is cut: its results, from the loop's answer pool. NULL if they are computed in the
     * answer. */
    uint8_t *results;
    uint64_t results_bytes;
    struct eb_table table; /* these results */
};

/* A range of a query's bags. eb_remote.items has its merge, with the same index. */
struct remote_slice {
    struct remote_query *query;
    uint32_t row_first;    /* its first row in the row list of query->job */
    struct eb_bag_job job; /* if the query is cut into slices */
    struct eb_route_query route;
    struct eb_route_split split;
    uint32_t open_sub_count; /* sub-queries whose legs are not over */
    bool has_failed;         /* one of its legs has failed */
    bool lacks_default;      /* an empty bag is zeros because its default row was left out */
    uint64_t rows_bytes; /* memory taken for its merge's rows, if the query is cut into slices */
};

struct remote_leg {
    struct eb_leg leg;
    struct eb_remote *remote;
    const struct eb_route_leg *route;
    bool is_open;
    uint32_t next; /* before it is sent: the next leg to the same part, or NO_LEG */
};

/* The legs to one part. */
struct remote_part {
    uint32_t next; /* the next one to send; NO_LEG: all are sent */
    uint32_t open_count;
    bool has_sent;
};

struct eb_remote {
    struct eb_lookup *lookup;
    struct eb_leg_link *link;
    const struct eb_memory *memory; /* of the loop's answer pool */
    uint64_t slab_bytes;
    uint64_t fetched_bytes; /* rows of the queries that are fetched */
    struct eb_route_version version;
    struct eb_route_caps caps;
    struct eb_route_split_counts counts; /* of all splits */
    size_t query_count;
    struct remote_query *queries; /* [query_count] */
    bool is_sliced;               /* some queries are cut into slices */
    uint32_t slice_count;
    struct remote_slice *slices; /* [slice_count] */
    struct eb_route_item *items; /* [slice_count] */
    uint32_t oldest;             /* the first slice with open sub-queries; slice_count: none has */
    uint64_t rows_bytes;         /* sum over the slices */
    uint64_t pooled_bytes;       /* rows that the results of slices were computed from */
    struct eb_route_legs legs;
    struct remote_leg *sent;   /* [legs.count] */
    struct remote_part *parts; /* [number of parts of the version] */
    uint32_t sent_count;
    uint32_t open_count;
    uint64_t open_bytes; /* largest answers of the legs that are open */
    bool has_waited;     /* legs were not sent at once, because others had to end first */
    uint64_t leg_deadline_ns;
    bool is_ending; /* legs are being abandoned */
};

/* Sets lookup->error. Always returns false. */
bool eb_remote_refuse_memory(struct eb_lookup *lookup);

/* Sets *error to that of a leg. If the part server blames the request, or says that it was
 * cancelled, the error is INTERNAL: this router made that request, and has not cancelled it. */
void eb_remote_blame_part(
    const struct eb_remote *remote, const struct eb_leg *leg, struct eb_error *error);

/* Returns whether the rows of a leg that has failed are left out of the results: its part could not
 * be reached in time, and the request has allow_incomplete. */
bool eb_remote_is_left_out(const struct eb_remote *remote, const struct eb_leg *leg);

/* Returns whether a key is missing without which a slice has no results: one of its own under the
 * policy ERROR, or the one that fills empty bags. */
bool eb_remote_lacks_key(const struct remote_slice *slice, const struct eb_route_merge *merge);
