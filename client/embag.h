/* embag: the C client of an embag server. client/examples/lookup_example.c is a complete program.
 * The calls in this header block; embag_async.h has calls on the same client that do not.
 *
 * A client keeps connections to one server, and a thread that serves them. The thread blocks all
 * signals and sleeps while there is nothing to do. No call raises SIGPIPE. Thread: any number of
 * threads may call at the same time; their calls are in flight together. A client does not survive
 * fork: a child may neither use nor close it. The process must have descriptors 0, 1 and 2 open, if
 * only on /dev/null: libuv aborts the process if a client's socket gets one of them. Memory: arrays
 * that are passed in are borrowed for the call; answers belong to the caller. Functions that close
 * or free accept NULL. */
#pragma once

#include "embag_models.h"
#include "embag_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An array of integers: int64_t if width is 8, int32_t if it is 4, absent if it is 0. Host order
 * (little-endian hosts only), any alignment. */
struct embag_integers {
    const void *data; /* may be NULL if count is 0 */
    size_t count;
    unsigned width;
};

/* The options of a sequence lookup. It returns the rows of each bag without pooling them, bag after
 * bag, and the number of rows of each bag (embag_result.lengths). A query of EMBAG_NONE is a
 * sequence lookup if a member is set; it then needs a layout, or num_bags 1. A group of EMBAG_NONE
 * is always a sequence lookup. With any other reduction, a member that is set is refused. Missing
 * indices under EMBAG_SKIP are left out before max_len is applied. */
struct embag_sequence {
    uint32_t max_len; /* most rows of a bag; a longer bag keeps its last rows; 0: no limit */
    bool keep_first;  /* a longer bag keeps its first rows; needs max_len */
    bool pad;         /* every bag has max_len rows: zeros are added at its end; needs max_len */
    bool unique;      /* returns each row once (in a group once for each feature that uses it) and
                         embag_result.inverse; not allowed with pad or weights */
};

/* One bag lookup. Give indices and one layout: offsets, lengths, segment_ids with num_segments, or
 * indices_per_bag. Zero-initialise the struct: fields that stay zero are absent. */
struct embag_query {
    const char *table; /* name of the table, or of a feature of the model; NUL-terminated UTF-8 */
    enum embag_reduction reduction;
    enum embag_missing missing;
    struct embag_integers indices;     /* [num_indices] */
    struct embag_integers offsets;     /* [bags], or [bags + 1] with include_last_offset */
    struct embag_integers lengths;     /* [bags] */
    struct embag_integers segment_ids; /* [num_indices] */
    uint64_t num_segments;
    uint32_t indices_per_bag;
    uint64_t num_bags; /* 0: derived from the fields above */
    bool include_last_offset;
    bool has_default; /* default_index is set */
    int64_t default_index;
    const void *weights; /* [num_indices] of weights_type */
    size_t weights_count;
    /* Unspecified: no weights. Otherwise indices without weights are refused. */
    enum embag_type weights_type;
    struct embag_sequence sequence; /* with EMBAG_NONE; all zero: indices are read one by one */
    /* Asks a part server for its rows of a table that is divided among parts; indices are then row
     * numbers within the part, or keys. Only for tests of a part: routers add parts up. */
    bool has_part;
    uint32_t part; /* with has_part: the number of the part, from 0 */
};

/* TorchRec's jagged form: the bags of many features in one set of arrays. The answer is one result
 * with the features' vectors side by side. An empty bag yields the feature's default row, or zeros
 * if the feature has none. A group is cheaper than a query per feature. Give a name or features,
 * and either lengths or offsets, which are ordered by feature and then by bag. */
struct embag_group {
    const char *name;            /* name of an ordered list of features of the model; NULL: none */
    const char *const *features; /* [feature_count] features or tables; repeats are allowed */
    size_t feature_count;
    uint32_t bags;                 /* bags of every feature */
    struct embag_integers values;  /* [num_values] indices, feature by feature, bag by bag */
    struct embag_integers lengths; /* [feature_count * bags] values of each bag; width 4 only */
    struct embag_integers offsets; /* [feature_count * bags + 1] 0 first, num_values last */
    const void *weights;           /* [num_values] of weights_type, or none, as in a query */
    size_t weights_count;
    enum embag_type weights_type;
    enum embag_reduction reduction; /* reduction of every feature */
    enum embag_missing missing;     /* missing policy of every feature */
    struct embag_sequence sequence; /* only with EMBAG_NONE, where all rows must have one size */
};

/* One call: any number of queries and groups on one model. It is answered or fails as a whole,
 * unless errors_per_query is set. There is no `partial` here (proto/PROTOCOL.md): the client hands
 * an answer out when it is complete, so partial answers would not arrive any sooner. */
struct embag_request {
    const char *model; /* NULL or empty: the server's only one */
    uint64_t version;  /* 0: the version being served; for several servers see embag_servers.h */
    const struct embag_query *queries;
    size_t query_count;
    enum embag_type output_type; /* unspecified: each table's own */
    bool concat;                 /* all results side by side as one, of shape [bags, sum of dims] */
    uint64_t timeout_us;         /* 0: the client's timeout */
    const struct embag_group *groups; /* must be empty with concat */
    size_t group_count;
    enum embag_priority priority;
    bool errors_per_query;     /* an error of one query or group is in its embag_result */
    bool report_missing;       /* results list the positions of the indices that named no row */
    const char *version_label; /* selects a version by its label if version is 0; NULL: none */
    /* W3C trace context of the caller, for the server's log:
     * "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"; NULL or empty: none. It is sent as
     * it is; the server ignores an invalid one, and refuses one longer than its name_bytes_max. */
    const char *traceparent;
    /* A router answers even if it cannot reach a part of a table: the indices whose rows are there
     * are left out, as missing ones are under SKIP, and embag_result.unreached is their number.
     * Without this the lookup, or with errors_per_query the query, ends with UNAVAILABLE. Other
     * servers ignore it. */
    bool allow_incomplete;
};

struct embag_result {
    uint32_t query; /* index into the request's queries, then its groups */
    enum embag_type type;
    uint32_t rank;
    uint64_t shape[EMBAG_RANK_MAX]; /* [bags, trailing dims...]; group: [bags, sum of row sizes]; 0
                                       at positions from rank on. Sequence lookup: [rows, trailing
                                       dims...], with pad [bags, max_len, trailing dims...]; in a
                                       group the trailing dims are one, the row size */
    uint64_t missing;               /* indices that named no row; with concat, in all queries */
    /* [missing_by_query_count] `missing` of each query or feature; NULL if the count is 0. */
    const uint64_t *missing_by_query;
    const void *values;            /* C order, little-endian, aligned to 16 bytes */
    size_t values_bytes;           /* product of shape, times the size of the type */
    size_t missing_by_query_count; /* query_count with concat, feature_count for a group, else 0 */
    /* With report_missing: [missing] positions of the indices that named no row, ascending. They
     * are positions in the query's indices or the group's values; with concat, first those in the
     * first query, then those in the second, and so on. NULL if there are none. */
    const uint32_t *missing_positions;
    /* With errors_per_query: the error of this query or group, unless EMBAG_OK. A result with an
     * error has no values: type, rank, missing and values_bytes are 0. */
    enum embag_status status;
    const char *message; /* UTF-8; empty if status is EMBAG_OK */
    /* The number of rows of each bag in a sequence lookup, without padding; in a group feature by
     * feature, bag by bag. NULL if the count is 0, as for all other lookups. */
    const int32_t *lengths;
    size_t lengths_count;
    /* With unique: for each row of the bags, its row in `values`. The count is the sum of the
     * lengths. NULL if the count is 0. */
    const uint32_t *inverse;
    size_t inverse_count;
    /* With allow_incomplete: indices left out because their part was not reached. They are not in
     * `missing`. With concat, in all queries. */
    uint64_t unreached;
};

struct embag_answer {
    const char *model;
    uint64_t version; /* version of the model, the same for all results */
    size_t result_count;
    const struct embag_result *results; /* in the order of the queries, then of the groups */
    uint32_t queue_us;   /* the server's time from the request's arrival until pooling began */
    uint32_t compute_us; /* server time from the start of pooling to the last computed value */
    /* With allow_incomplete: some result has unreached indices, or lacks its default row or the row
     * for unknown indices because their part was not reached. */
    bool incomplete;
};

/* How lookups are sent. A stream costs both ends the least. Unary calls, one per lookup, are for
 * servers and proxies that require them. A lookup that was on a stream when an error ended it is
 * sent again as a unary call. */
enum embag_mode { EMBAG_MODE_STREAM = 0, EMBAG_MODE_UNARY = 1 };

/* How a client and its server authenticate each other. embag_open reads the files, and the client
 * reads them again when they change: later calls are sent with the new token, and new connections
 * use the new certificates. While changed files are not valid, the former ones are used. TLS is
 * used, over TCP only, if any of the TLS fields is set. */
struct embag_access {
    bool tls; /* TLS even if no other TLS field is set */
    /* PEM file: the CAs that may vouch for the server; NULL: those of the system. */
    const char *tls_ca;
    const char *tls_cert;        /* PEM file: this client's certificate; NULL: none */
    const char *tls_key;         /* PEM file without a password: the certificate's key */
    const char *tls_server_name; /* name in the server's certificate; NULL: the address's host */
    /* File whose only line is sent with each call as a bearer token; NULL: none. Without TLS a
     * token may only be sent to this machine, because everybody on the way could read it. */
    const char *token_file;
};

struct embag_options {
    uint64_t connect_timeout_us; /* 0: 5 s; the time to resolve a name comes on top */
    uint64_t timeout_us;         /* timeout of a call that has none of its own; 0: 1 s */
    uint32_t answer_bytes_max;   /* a larger answer ends its call: RESOURCE_EXHAUSTED; 0: 64 MiB */
    uint32_t connections;   /* to each server; the least busy takes the next call; 0: 1, max 64 */
    uint32_t in_flight_max; /* calls in flight, or completed and not taken; 0: 1024, max 65536 */
    int32_t retries_max; /* times a call is sent again, see embag_async.h; 0: 2; below 0: never */
    enum embag_mode mode;
    bool unpaced;               /* lookups are sent at once, even if their answers will be late */
    struct embag_access access; /* zeroes: no TLS and no token */
    /* Lookups per hundred that may be sent to a second server as well, because the first one is
     * late (embag_servers.h); 0: none, max 100. 5 is a good number. */
    uint32_t hedge_percent;
};

struct embag_client; /* opaque */

/* Connects to "HOST:PORT" (a host is a name, an IPv4 address, or an IPv6 address in brackets), to
 * several servers as "HOST:PORT,HOST:PORT", to "dns:NAME:PORT" or "dns:///NAME:PORT", or to
 * "unix:PATH". Each address of a name is a server; embag_servers.h says how lookups are spread over
 * servers. At most 1024 addresses. Returns when the first server is connected. options may be NULL.
 * If the result is not EMBAG_OK, *client is NULL and *error says why (UNAVAILABLE: nobody answers
 * there). error may be NULL, here and below. */
enum embag_status embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error);
/* Ends every call in flight with CANCELLED. Returns when all other threads have returned from the
 * client's functions and nothing of the client is left. Once embag_close has begun, no thread may
 * call another of these functions. Callbacks may until embag_close returns, but their calls are
 * refused. Must not be called from a callback of the client. If the file system of a file in
 * embag_access does not respond while the client reads or compares the file again, embag_close
 * waits until it does. */
void embag_close(struct embag_client *client);

/* Sends one Lookup and waits for its answer. If in_flight_max calls are in flight, it waits for
 * another to end first. Sends the lookup again if that is safe, as embag_async.h says. If there is
 * still no connection, the result is UNAVAILABLE, also if the deadline passes after the last
 * attempt to connect has failed. If the result is not EMBAG_OK, *answer is NULL. A call from a
 * callback of the client is refused: INVALID_ARGUMENT.
 *
 * An answer always fits its request, whatever the server sends: if the server's answer does not
 * fit, the call fails with INTERNAL, and the text says what was requested and what was answered. So
 * a caller may rely on this:
 * - There is one result for each query and then one for each group, in order; with concat there is
 *   one in all. The version is the one that the request names, and never 0.
 * - shape[0] is the number of bags of the query or group. With EMBAG_NONE it is the number of
 *   indices. If a query names no reduction, shape[0] may be either number, because a feature's own
 *   reduction may be NONE: name one, or read shape[0].
 * - A sequence lookup has one length for each bag (in a group, for each feature and bag). No length
 *   is negative, or above max_len if that is set. Their sum is at most the number of indices.
 *   Without pad, shape[0] is the sum of the lengths or, with unique, the number of rows that
 *   `inverse` names; `inverse` first names them in ascending order. With pad, shape[0] is the
 *   number of lengths and shape[1] is max_len. A group that names no reduction may be a sequence
 *   lookup, because its features may have NONE: it is one if the result has lengths.
 * - The type is output_type if that is set. The rank is at least 1. For a group, and with concat,
 *   the rank is 2 (3 with pad), the type is floating-point, and each feature or query that is
 *   pooled has at least one column. Only shape[0] can be 0.
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
