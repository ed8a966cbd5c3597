/* embag: C client of an embag server. client/examples/lookup_example.c is a whole program. The
 * calls here block; embag_async.h has those that do not, on the same client.
 *
 * A client keeps connections to one server and a thread that serves them, blocks all signals and
 * sleeps while there is nothing to do. No call raises SIGPIPE. Thread: any, at the same time; calls
 * of several threads are under way together. A client does not survive fork: a child may neither
 * use nor close it. The process must have descriptors 0, 1 and 2 open, if only on /dev/null: libuv
 * aborts it if a client's socket gets one of them. Memory: arrays given are borrowed for the call;
 * answers are the caller's. What closes or frees accepts NULL. */
#pragma once

#include "embag_models.h"
#include "embag_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    const char *table; /* or a feature of the model: its name, NUL-terminated UTF-8 */
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
    const void *weights; /* [num_indices] of weights_type */
    size_t weights_count;
    enum embag_type weights_type; /* unspecified: none; else indices without weights are refused */
};

/* TorchRec's jagged form: the bags of many features in one set of arrays. Its answer is one result,
 * the features' vectors side by side; an empty bag is the feature's default row, zeros if it has
 * none. Cheaper than a query per feature. Give a name or features, and lengths or offsets, which
 * count feature by feature, bag by bag. */
struct embag_group {
    const char *name;            /* of an ordered list of features of the model; NULL: none */
    const char *const *features; /* [feature_count] features or tables, as often as is wanted */
    size_t feature_count;
    uint32_t bags;                 /* of every feature */
    struct embag_integers values;  /* [num_values] indices, feature by feature, bag by bag */
    struct embag_integers lengths; /* [feature_count * bags] values of each bag; width 4 only */
    struct embag_integers offsets; /* [feature_count * bags + 1] 0 first, num_values last */
    const void *weights;           /* [num_values] of weights_type, or none, as in a query */
    size_t weights_count;
    enum embag_type weights_type;
    enum embag_reduction reduction; /* of every feature */
    enum embag_missing missing;     /* of every feature */
};

/* One call: any number of queries and groups on one model. It fails whole or is answered whole,
 * unless errors_per_query is set. There is no `partial` here (proto/PROTOCOL.md): an answer is
 * handed out when it is complete, and in parts would come to no one any sooner. */
struct embag_request {
    const char *model; /* NULL or empty: the server's only one */
    uint64_t version;  /* 0: the one being served */
    const struct embag_query *queries;
    size_t query_count;
    enum embag_type output_type; /* unspecified: each table's own */
    bool concat;                 /* all results side by side, as one of shape [bags, sum of dims] */
    uint64_t timeout_us;         /* 0: the client's */
    const struct embag_group *groups; /* none with concat */
    size_t group_count;
    enum embag_priority priority;
    bool errors_per_query;     /* a fault of one query or group is its result's, see embag_result */
    bool report_missing;       /* results say where indices stand that named no row */
    const char *version_label; /* a version by its label, where version is 0; NULL: none */
};

struct embag_result {
    uint32_t query; /* which one of the request: queries first, then groups */
    enum embag_type type;
    uint32_t rank;
    uint64_t shape[EMBAG_RANK_MAX];   /* [bags, trailing dims...]; group: [bags, sum of row sizes];
                                         0 from rank on */
    uint64_t missing;                 /* indices that named no row; with concat of all queries */
    const uint64_t *missing_by_query; /* [missing_by_query_count] of missing; NULL: 0 of them */
    const void *values;               /* C order, little-endian, aligned to 16 bytes */
    size_t values_bytes;              /* product of shape times the type's bytes */
    size_t missing_by_query_count;    /* with concat query_count, a group's feature_count, else 0 */
    /* With report_missing: [missing] where in the query's indices, or in the group's values, those
     * stand that named no row, ascending; with concat those of each query in turn. NULL: none. */
    const uint32_t *missing_positions;
    /* With errors_per_query, where it is not EMBAG_OK: what is wrong with the query or group, which
     * has no values then: type, rank, missing and values_bytes are 0. */
    enum embag_status status;
    const char *message; /* UTF-8; empty where status is EMBAG_OK */
};

struct embag_answer {
    const char *model;
    uint64_t version; /* of the model, the same for all results */
    size_t result_count;
    const struct embag_result *results; /* in the order of the queries, then of the groups */
    uint32_t queue_us;   /* the server's time from the request's arrival until pooling began */
    uint32_t compute_us; /* and from there until the last value was there */
};

/* How lookups travel. A stream costs both ends the least; a unary call each is for servers and
 * proxies that want it so. A lookup that ended its stream is sent again as a unary call. */
enum embag_mode { EMBAG_MODE_STREAM = 0, EMBAG_MODE_UNARY = 1 };

/* How a client and its server know each other. Files are read once, by embag_open. TLS is spoken
 * where any of its parts is set, over TCP only. */
struct embag_access {
    bool tls;                    /* with the rest as it stands */
    const char *tls_ca;          /* PEM file: who vouches for servers; NULL: as the system says */
    const char *tls_cert;        /* PEM file: this client's certificate; NULL: none */
    const char *tls_key;         /* PEM file without a password: its key */
    const char *tls_server_name; /* in the server's certificate; NULL: the address's host */
    const char *token_file;      /* its line is sent with each call as bearer token; NULL: none.
                                    Without TLS to this machine only: everybody on the
                                    way could read it */
};

struct embag_options {
    uint64_t connect_timeout_us; /* 0: 5 s; the resolver's own time for a name comes on top */
    uint64_t timeout_us;         /* of a call that names none; 0: 1 s */
    uint32_t answer_bytes_max;   /* a larger answer ends its call: RESOURCE_EXHAUSTED; 0: 64 MiB */
    uint32_t connections;   /* to the server, the least busy takes the next call; 0: 1, max 64 */
    uint32_t in_flight_max; /* calls under way or done and not taken; 0: 1024, max 65536 */
    int32_t retries_max; /* times a call is sent again, see embag_async.h; 0: 2; below 0: never */
    enum embag_mode mode;
    bool unpaced;               /* lookups are sent at once, however late their answers will be */
    struct embag_access access; /* zeroes: plain bytes, and no token */
};

struct embag_client; /* opaque */

/* Connects to "HOST:PORT", "[V6]:PORT" or "unix:PATH"; a name's addresses are tried in turn.
 * options may be NULL. Anything but EMBAG_OK: *client is NULL and *error says why (UNAVAILABLE:
 * nobody answers there). error may be NULL, here and below. */
enum embag_status embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error);
/* Ends what is under way with CANCELLED and returns once nothing of the client is left: threads
 * that were in a call of it, of whatever kind, are done with it. None may begin another; callbacks
 * still may, until this returns, and are refused. Not from a callback of the client. */
void embag_close(struct embag_client *client);

/* Sends one Lookup and waits for its answer: at in_flight_max first for other calls to end. What is
 * safe to send again is, as embag_async.h says; then a lost connection, or none, is UNAVAILABLE,
 * also where the deadline passes after the last attempt at one has failed. Anything but EMBAG_OK:
 * *answer is NULL. Not from a callback of the client: INVALID_ARGUMENT.
 *
 * An answer always fits its request, whatever the server sends: the call fails with INTERNAL if the
 * server's answer does not fit, and the text says what was asked for and what was answered. So a
 * caller may rely on this:
 * - There is one result for each query and then for each group, in order; with concat there is one
 *   in all. The version is the one that the request names, and never 0.
 * - shape[0] is the number of bags of the query or group. With EMBAG_NONE it is the number of
 *   indices. If a query names no reduction it is either, because a feature's own reduction may be
 *   NONE: name one, or read shape[0].
 * - The type is output_type if that is set. The rank is at least 1. For a group, and with concat,
 *   the rank is 2, the type is floating-point, and each feature or query has at least one column.
 *   Only shape[0] can be 0.
 * - values_bytes is what shape and type imply. Counts and positions of missing indices are
 *   complete, and each position is that of one of the query's indices, or of the group's values.
 * The table decides the width of rows, and their type if output_type is not set: read them from
 * shape and type. */
enum embag_status embag_lookup(struct embag_client *client, const struct embag_request *request,
    struct embag_answer **answer, struct embag_error *error);
void embag_answer_free(struct embag_answer *answer);

/* Lists the server's models. */
enum embag_status embag_list_models(
    struct embag_client *client, struct embag_model_list **list, struct embag_error *error);
void embag_model_list_free(struct embag_model_list *list);

#ifdef __cplusplus
}
#endif
