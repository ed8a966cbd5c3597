/* Checks an answer against its request. The server is not trusted: an answer is passed on only if
 * it has the shape that the request implies, so that callers may index it by what they asked for.
 * Thread: pure. Memory: none. */
#pragma once

#include "client/embag_types.h"
#include "proto/message.h"

/* Facts about a query or a group that its answer is checked against. */
struct eb_lookup_asked {
    uint64_t bags;          /* number of bags that its layout gives */
    uint64_t index_count;   /* indices, or a group's values */
    uint32_t feature_count; /* of a group; 0 for a query, or if the model lists the features */
    int32_t reduction;      /* unspecified: the feature's own, which may be NONE */
    struct eb_wire_sequence sequence;
};

/* Facts about a request that its answer is checked against. */
struct eb_lookup_expected {
    size_t query_count;
    size_t group_count;
    const struct eb_lookup_asked *asked; /* [query_count + group_count], the outgoing request's */
    uint64_t version;                    /* 0: any */
    enum embag_type output_type;         /* unspecified: each table's own */
    bool concat;
    bool errors_per_query;
    bool report_missing;
    bool allow_incomplete;
};

/* Returns the facts about a query or a group. If the server will refuse it, the number of bags
 * means nothing. */
struct eb_lookup_asked eb_lookup_check_keep_query(const struct eb_wire_query *query);
struct eb_lookup_asked eb_lookup_check_keep_group(const struct eb_wire_group *group);

/* Returns whether a response answers its request as embag.h promises under embag_lookup. If not,
 * *error is the one that the server reports, or INTERNAL with the reason why the answer does not
 * fit. */
bool eb_lookup_check_response(const struct eb_lookup_expected *expected,
    const struct eb_wire_response *response, struct eb_error *error);
