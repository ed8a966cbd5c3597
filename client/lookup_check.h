/* Checks an answer against its request: a server is believed only as far as its answer has the
 * shape that the request gives it, so that a caller may index an answer by what it asked.
 * Thread: pure. Memory: none. */
#pragma once

#include "client/embag_types.h"
#include "proto/message.h"

/* What is kept of a query or a group until its answer comes. */
struct eb_lookup_asked {
    uint64_t bags;          /* as its layout says */
    uint64_t index_count;   /* indices, or a group's values */
    uint32_t feature_count; /* of a group; 0 where the model has the list, and of a query */
    int32_t reduction;      /* unspecified where it is the feature's, which may be NONE */
};

/* What is kept of a request. */
struct eb_lookup_expected {
    size_t query_count;
    size_t group_count;
    const struct eb_lookup_asked *asked; /* [query_count + group_count], the outgoing request's */
    uint64_t version;                    /* 0: whichever answers */
    enum embag_type output_type;         /* unspecified: each table's own */
    bool concat;
    bool errors_per_query;
    bool report_missing;
};

/* Returns what is kept of a query or a group. What the server will refuse may have any number of
 * bags. */
struct eb_lookup_asked eb_lookup_check_keep_query(const struct eb_wire_query *query);
struct eb_lookup_asked eb_lookup_check_keep_group(const struct eb_wire_group *group);

/* Returns whether a response answers its request as embag.h promises under embag_lookup. Otherwise
 * *error is what the server reports, or INTERNAL and says what does not fit. */
bool eb_lookup_check_response(const struct eb_lookup_expected *expected,
    const struct eb_wire_response *response, struct eb_error *error);
/* Returns a status that came as a number: UNKNOWN for one that gRPC does not have. */
enum eb_status eb_lookup_check_status(uint32_t code);
