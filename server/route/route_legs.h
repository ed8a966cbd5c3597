/* The legs of a request: one for each part that has rows of its queries, with all sub-queries of
 * that part, or several if that would be too much for one message. Makes their messages, and hands
 * the results in their answers to the merges. Thread: pure. Memory: everything comes from the
 * arena. */
#pragma once

#include "server/route/route_merge.h"

/* One query of the request, on a table whose rows are divided. */
struct eb_route_item {
    const char *table;           /* name of the table; borrowed */
    struct eb_route_merge merge; /* its split is set, and the merge has begun */
};

/* A sub-query of a leg. */
struct eb_route_leg_query {
    uint32_t item; /* index in the request's items */
    uint32_t sub;  /* index in the item's sub-queries */
};

struct eb_route_leg {
    uint32_t part;
    uint32_t query_count;
    struct eb_route_leg_query *queries; /* [query_count] */
    uint64_t answer_bytes_max;          /* most bytes of a sound answer */
};

struct eb_route_legs {
    uint32_t count;
    struct eb_route_leg *legs; /* [count] */
};

/* Groups the sub-queries of all items by part, with several legs for a part where one would exceed
 * `caps`; NULL: it has no bounds. All items have the same number of parts. Returns false if the
 * arena is full. */
bool eb_route_legs_group(const struct eb_route_item *items, size_t item_count,
    const struct eb_route_caps *caps, struct eb_arena *arena, struct eb_route_legs *legs);

/* The version that legs ask for. */
struct eb_route_version {
    const char *model;
    uint64_t version;
    uint64_t digest; /* of its manifest */
};

/* Sets the model, version and queries of *request. Returns false if the arena is full. */
bool eb_route_leg_fill(const struct eb_route_leg *leg, const struct eb_route_item *items,
    const struct eb_route_version *version, struct eb_arena *arena,
    struct eb_wire_request *request);

/* Takes the results of an answer whose error_code is OK. Returns false with *error set if the
 * answer does not match the leg: INTERNAL, with a text that names the part; or FAILED_PRECONDITION
 * if the server has the version with another digest, so that another server may do. */
bool eb_route_leg_take(const struct eb_route_leg *leg, struct eb_route_item *items,
    const struct eb_route_version *version, const struct eb_wire_response *response,
    struct eb_error *error);
