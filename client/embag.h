/* embag: C client of an embag server. client/examples/lookup_example.c is a whole program.
 *
 * A client is one connection. Calls block until they are answered or their deadline has passed;
 * between calls nothing runs. No call raises SIGPIPE. Thread: any; a client's lock lets one call
 * through at a time, so threads that want to work at once open one client each. Memory: arrays
 * given are borrowed for the call; answers are the caller's. What closes or frees accepts NULL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gRPC status codes, those that embag sends. */
enum embag_status {
    EMBAG_OK = 0,
    EMBAG_CANCELLED = 1,
    EMBAG_UNKNOWN = 2,
    EMBAG_INVALID_ARGUMENT = 3,
    EMBAG_DEADLINE_EXCEEDED = 4,
    EMBAG_NOT_FOUND = 5,
    EMBAG_PERMISSION_DENIED = 7,
    EMBAG_RESOURCE_EXHAUSTED = 8,
    EMBAG_OUT_OF_RANGE = 11,
    EMBAG_UNIMPLEMENTED = 12,
    EMBAG_INTERNAL = 13,
    EMBAG_UNAVAILABLE = 14,
    EMBAG_UNAUTHENTICATED = 16
};

struct embag_error {
    enum embag_status status;
    char text[1024]; /* what was wrong and where; UTF-8 */
};

/* Element types; numbers are those of embag.v1.DataType. */
enum embag_type {
    EMBAG_TYPE_UNSPECIFIED = 0,
    EMBAG_F32 = 1,
    EMBAG_F64 = 2,
    EMBAG_F16 = 3,
    EMBAG_BF16 = 4,
    EMBAG_I8 = 5,
    EMBAG_U8 = 6,
    EMBAG_I16 = 7,
    EMBAG_U16 = 8,
    EMBAG_I32 = 9,
    EMBAG_U32 = 10,
    EMBAG_I64 = 11,
    EMBAG_U64 = 12
};

enum embag_reduction {
    EMBAG_REDUCTION_UNSPECIFIED = 0, /* the table's default: SUM */
    EMBAG_SUM = 1,
    EMBAG_MEAN = 2,
    EMBAG_WEIGHTED_MEAN = 3,
    EMBAG_SQRTN = 4,
    EMBAG_MAX = 5,
    EMBAG_MIN = 6,
    EMBAG_NONE = 7
};

enum embag_missing {
    EMBAG_MISSING_UNSPECIFIED = 0, /* the table's default: ERROR */
    EMBAG_MISSING_ERROR = 1,
    EMBAG_MISSING_SKIP = 2,
    EMBAG_MISSING_ZERO = 3,
    EMBAG_MISSING_UNKNOWN_ROW = 4
};

/* An array of integers: int64_t where width is 8, int32_t where it is 4, absent where it is 0. Host
 * order (little-endian hosts only), any alignment. */
struct embag_integers {
    const void *data; /* may be NULL where count is 0 */
    size_t count;
    unsigned width;
};

/* One bag lookup. Give indices and one layout: offsets, lengths, segment_ids with num_segments, or
 * indices_per_bag. Zero-initialise; what stays zero is absent. */
struct embag_query {
    const char *table; /* name; NUL-terminated UTF-8 */
    enum embag_reduction reduction;
    enum embag_missing missing;
    struct embag_integers indices;     /* [num_indices] */
    struct embag_integers offsets;     /* [bags], or [bags + 1] with include_last_offset */
    struct embag_integers lengths;     /* [bags] */
    struct embag_integers segment_ids; /* [num_indices] */
    uint64_t num_segments;
    uint32_t indices_per_bag;
    uint64_t num_bags; /* 0: as the fields above say */
    bool include_last_offset;
    bool has_default; /* default_index is meant */
    int64_t default_index;
    const void *weights; /* [num_indices] of weights_type; NULL: none */
    size_t weights_count;
    enum embag_type weights_type;
};

/* One call: any number of queries on one model. */
struct embag_request {
    const char *model; /* NULL or empty: the server's only one */
    uint64_t version;  /* 0: the one being served */
    const struct embag_query *queries;
    size_t query_count;
    enum embag_type output_type; /* unspecified: each table's own */
    bool concat;                 /* all results side by side, as one of shape [bags, sum of dims] */
    uint64_t timeout_us;         /* 0: the client's */
};

#define EMBAG_RANK_MAX 8
struct embag_result {
    uint32_t query; /* which query of the request */
    enum embag_type type;
    uint32_t rank;
    uint64_t shape[EMBAG_RANK_MAX];   /* [bags, trailing dims of the table...] */
    uint64_t missing;                 /* indices that named no row; with concat of all queries */
    const uint64_t *missing_by_query; /* with concat: [query_count]; else NULL */
    const void *values;               /* C order, little-endian, aligned to 16 bytes */
    size_t values_bytes;              /* product of shape times the type's bytes */
};

struct embag_answer {
    const char *model;
    uint64_t version; /* of the model, the same for all results */
    size_t result_count;
    const struct embag_result *results; /* in the order of the queries */
};

struct embag_options {
    uint64_t connect_timeout_us; /* 0: 5 s; the resolver's own time for a name comes on top */
    uint64_t timeout_us; /* of a call that names none, waiting for the lock included; 0: 1 s */
    uint32_t answer_bytes_max; /* a larger answer ends its call: RESOURCE_EXHAUSTED; 0: 64 MiB */
};

struct embag_client; /* opaque */

/* Connects to "HOST:PORT", "[V6]:PORT" or "unix:PATH"; a name's addresses are tried in turn.
 * options may be NULL. Anything but EMBAG_OK: *client is NULL and *error says why (UNAVAILABLE:
 * nobody answers there). error may be NULL, here and below. */
enum embag_status embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error);
/* Closes the connection. No call may be under way. */
void embag_close(struct embag_client *client);

/* Sends one Lookup and waits for its answer. A connection that has been lost is opened once more
 * first; one lost before the answer is there gives UNAVAILABLE, and the request may be sent again.
 * Anything but EMBAG_OK: *answer is NULL. */
enum embag_status embag_lookup(struct embag_client *client, const struct embag_request *request,
    struct embag_answer **answer, struct embag_error *error);
void embag_answer_free(struct embag_answer *answer);

/* Models as the server describes them. */
struct embag_table {
    const char *name;
    uint64_t rows;
    uint32_t rank;                  /* of shape */
    uint64_t shape[EMBAG_RANK_MAX]; /* trailing dims; none for a table of rank 1 */
    enum embag_type type;
    const char *storage;
    uint64_t resident_bytes;
};

struct embag_model_version {
    uint64_t version;
    bool serving;
    const char *error; /* why it does not load; empty otherwise */
    size_t table_count;
    const struct embag_table *tables;
};

struct embag_model {
    const char *name;
    uint64_t served_version;
    size_t version_count;
    const struct embag_model_version *versions;
};

struct embag_model_list {
    size_t count;
    const struct embag_model *models;
};

/* Lists the server's models. */
enum embag_status embag_list_models(
    struct embag_client *client, struct embag_model_list **list, struct embag_error *error);
void embag_model_list_free(struct embag_model_list *list);

/* "OUT_OF_RANGE" and so on; "UNKNOWN" for a number that is none of them. */
const char *embag_status_name(enum embag_status status);
/* Bytes of one element; 0 for a number that is no type. */
size_t embag_type_bytes(enum embag_type type);

#ifdef __cplusplus
}
#endif
