/* The messages of embag.v1 as plain structs. The rest of the program sees nothing else of protobuf.
 * Enums are unchecked numbers from the wire. Strings are NUL-terminated UTF-8, never NULL, and
 * empty if absent. Arrays are borrowed from whoever filled the struct.
 * Thread, memory: none of its own. */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Zeroes a struct of this header in pieces so small that a compiler emits plain stores. For a
 * larger piece a compiler would emit a loop or a call. */
static inline __attribute__((always_inline)) void eb_wire_clear(void *element, size_t bytes)
{
    enum { PIECE_BYTES = 80 };
    uint8_t *at = element;
    for (; bytes > PIECE_BYTES; bytes -= PIECE_BYTES, at += PIECE_BYTES) {
        memset(at, 0, PIECE_BYTES);
    }
    memset(at, 0, bytes);
}

/* One array field, in any of its forms: little-endian integers of `width` bytes. */
struct eb_wire_array {
    const void *data; /* any alignment; NULL if absent */
    size_t bytes;
    uint32_t width;    /* 4 or 8; 0: absent in every form */
    const char *field; /* name of the field in which it came, for error texts: "offsets_i32" */
};

/* Returns the number of integers: 0 if the array is absent. */
static inline uint64_t eb_wire_array_count(const struct eb_wire_array *array)
{
    return array->width != 0 ? array->bytes / array->width : 0;
}

struct eb_infer_request;

/* The fields of BagQuery and FeatureGroup that make a lookup a sequence lookup. */
struct eb_wire_sequence {
    uint32_t max_len;
    bool keep_first;
    bool pad;
    bool unique;
};

/* Returns whether any of the fields is set. */
static inline bool eb_wire_sequence_is_set(const struct eb_wire_sequence *sequence)
{
    return (sequence->max_len | sequence->keep_first | sequence->pad | sequence->unique) != 0;
}

/* BagQuery. */
struct eb_wire_query {
    const char *table;
    int32_t reduction;
    int32_t missing;
    int32_t layout;               /* decoded: derived from other fields if not given; or 0 */
    struct eb_wire_array indices; /* indices_i64, indices_i32 or indices */
    struct eb_wire_array offsets; /* offsets_i64, offsets_i32 or offsets */
    struct eb_wire_array lengths;
    struct eb_wire_array segment_ids;
    uint32_t indices_per_bag;
    uint64_t num_segments;
    uint64_t num_bags;
    bool include_last_offset;
    bool has_default;
    int64_t default_index;
    const void *weights; /* weights or weights_f32 */
    size_t weights_bytes;
    int32_t weights_type; /* DataType; F32 for weights_f32; 0: not given */
    int32_t output_type;  /* type for this query alone; 0: the request's */
    uint32_t part;        /* 1 + number of the part that the indices are of; 0: none */
    struct eb_wire_sequence sequence;
    /* An error that the codec found in this query; its text names the query. NULL if there is none.
     * Kept in the query so that errors are reported in the order of the queries, whether the codec
     * or a later check finds them. */
    const struct eb_error *error;
};

/* A list of features that a group has named before. */
struct eb_known_features {
    const uint8_t *run; /* [run_bytes] the list's adjacent fields in the FeatureGroup */
    size_t run_bytes;
    size_t text_bytes; /* size of all names, without NULs */
    size_t count;
    const char *const *names; /* [count] */
};

/* FeatureGroup: many features' bags in one set of arrays, feature by feature. */
struct eb_wire_group {
    const char *name; /* name of an ordered list in the model; empty: see `features` */
    size_t feature_count;
    const char *const *features;
    const struct eb_known_features *known; /* decoded: known list with the same names; NULL: none */
    const uint8_t *run; /* [run_bytes] decoded: the features' fields; NULL if not adjacent */
    size_t run_bytes;
    uint32_t bags;                /* bags of each feature */
    struct eb_wire_array values;  /* values_i64 or values_i32 */
    struct eb_wire_array lengths; /* [feature_count * bags] */
    struct eb_wire_array offsets; /* [feature_count * bags + 1] */
    const void *weights;
    size_t weights_bytes;
    int32_t weights_type; /* DataType; 0: not given */
    int32_t reduction;
    int32_t missing;
    struct eb_wire_sequence sequence;
    const struct eb_error *error; /* the same as eb_wire_query.error */
};

/* LookupRequest, without the fields that are not built, which the codec refuses. Unless
 * errors_per_query is set, decoding stops at the first query with an error, and this query is then
 * the last of its array. If no query has an error, decoding stops in the same way at the first
 * group with an error. With errors_per_query all queries and groups are decoded. */
struct eb_wire_request {
    uint64_t request_id;
    const char *model;
    uint64_t version;
    const char *version_label; /* names a version if `version` is 0; encoding: may be NULL */
    uint64_t timeout_us;
    int32_t output_type;
    bool concat;
    bool partial;
    bool cancel;
    bool errors_per_query;
    bool report_missing;
    bool allow_incomplete;
    uint32_t attempt; /* earlier attempts of the same request */
    /* Encoder only: `attempt`, at most 127, and timeout_us, at most UINT32_MAX (71 minutes), are
     * written last, in a form that eb_lookup_request_set_attempt and _set_timeout can overwrite. */
    bool is_timed;
    uint32_t priority; /* 0: interactive; 1: batch; decoded: no other value */
    /* [traceparent_bytes] W3C trace context, valid or not; 0 bytes: none. Decoded: borrowed from
     * the message's bytes, without a NUL. */
    const char *traceparent;
    size_t traceparent_bytes;
    size_t query_count;
    struct eb_wire_query *queries;
    size_t group_count;
    struct eb_wire_group *groups;
    struct eb_infer_request *infer; /* request that this was made from; NULL: a LookupRequest */
};

/* BagResult. When encoding, `values` may be NULL; the encoder then leaves room for values_bytes. */
struct eb_wire_result {
    uint32_t query;
    int32_t type;
    /* When encoding a LookupResponse: an earlier result, whose own `like` is NULL, from which this
     * one differs only in `query` and the values. The other fields of this one need not be set, and
     * room is left for its values. NULL if all fields of this one are set. */
    const struct eb_wire_result *like;
    size_t head_bytes; /* for the codec when encoding: size of all but the values */
    uint32_t shape_count;
    const uint64_t *shape; /* [shape_count] */
    uint64_t missing;
    size_t missing_by_query_count;
    const uint64_t *missing_by_query; /* encoding: NULL if all are 0 */
    uint64_t unreached;               /* indices whose part could not be reached */
    /* With report_missing: positions, in the query's indices, of the indices that named no row.
     * They are ascending little-endian uint32 at any alignment. */
    const uint8_t *missing_positions;
    size_t missing_positions_bytes;
    /* For a sequence lookup: the number of rows of each bag, and with `unique` the number of the
     * row in `values` for each row of the bags. Little-endian int32 and uint32 at any alignment. */
    const uint8_t *lengths;
    size_t lengths_bytes;
    const uint8_t *inverse;
    size_t inverse_bytes;
    uint32_t error_code;       /* if not 0, the query failed and values_bytes is 0 */
    const char *error_message; /* encoding: NULL if there is none */
    const uint8_t *values;     /* decoded: borrowed from the message's bytes */
    size_t values_bytes;
    /* For the codec when encoding: number of bytes after the query's number, and the bytes
     * themselves if they are few. */
    size_t tail_bytes;
    bool is_tail_kept;
    uint8_t tail[64];
};

/* LookupResponse. */
struct eb_wire_response {
    uint64_t request_id;
    const char *model;
    uint64_t version;
    uint64_t digest; /* of the version's manifest; 0: not given */
    uint32_t error_code;
    const char *error_message;
    uint32_t retry_after_ms;
    bool incomplete;     /* some rows were not reached */
    bool more;           /* further answers to the same request follow */
    uint32_t queue_us;   /* microseconds from arrival to the first tile */
    uint32_t compute_us; /* microseconds from there to the last value */
    /* When encoding: the message begins with room for both times, however large they are.
     * eb_lookup_response_set_times writes them there when they are known. */
    bool is_timed;
    size_t result_count;
    struct eb_wire_result *results;
};

struct eb_wire_limit {
    const char *name;
    uint64_t value;
};

/* Server. */
struct eb_wire_server {
    const char *version;
    const char *build;
    const char *isa;
    size_t limit_count;
    const struct eb_wire_limit *limits;
    uint32_t loops;
    uint32_t threads;
    const char *role;
    uint64_t instance;
};

/* GetModelRequest, VersionRequest. */
struct eb_wire_model_query {
    const char *model;
    uint64_t version;
};

/* ---- models ---- */

/* Table. */
struct eb_wire_table {
    const char *name;
    uint64_t rows;
    size_t shape_count;
    const uint64_t *shape; /* trailing dims; none for a rank-1 table */
    int32_t type;
    const char *storage;
    bool keyed;
    uint64_t resident_bytes;
    uint64_t digest;
    int32_t missing; /* Missing */
    bool has_default;
    int64_t default_index;
    bool has_unknown_row;
    int64_t unknown_row;
    const void *default_vector; /* values of `type`; NULL if there are none */
    size_t default_vector_bytes;
    bool unknown_vector;
    const char *placement; /* empty unless the version is in parts; encoding: may be NULL */
    uint32_t part;         /* 1 + the part in which it lies whole; else 0 */
};

/* Feature. */
struct eb_wire_feature {
    const char *name;
    const char *table;
    int32_t reduction; /* Reduction */
    int32_t missing;   /* Missing */
    bool has_default;
    int64_t default_index;
    const char *id_map;
    uint64_t seed;
    uint64_t max_ids; /* 0: not bounded */
};

/* Group: an ordered list of features. */
struct eb_wire_feature_list {
    const char *name;
    size_t feature_count;
    const char *const *features;
};

/* ModelVersion; `state` is its enum State. */
struct eb_wire_version {
    uint64_t version;
    int32_t state;
    const char *error; /* why the version failed; empty if it did not */
    size_t label_count;
    const char *const *labels;
    uint64_t bytes;
    uint64_t digest;
    uint64_t loaded_unix_ms;
    uint64_t load_ms;
    uint32_t parts; /* 0: the version is not in parts */
    size_t owned_part_count;
    const uint32_t *owned_parts;
    bool held;
    size_t table_count;
    const struct eb_wire_table *tables;
    size_t feature_count;
    const struct eb_wire_feature *features;
    size_t group_count;
    const struct eb_wire_feature_list *groups;
};

enum eb_wire_state {
    EB_WIRE_STATE_UNSPECIFIED = 0,
    EB_WIRE_STATE_LOADING = 1,
    EB_WIRE_STATE_READY = 2,
    EB_WIRE_STATE_SERVING = 3,
    EB_WIRE_STATE_RETIRED = 4,
    EB_WIRE_STATE_FAILED = 5
};

/* Model. */
struct eb_wire_model {
    const char *name;
    uint64_t served_version; /* 0: none */
    uint64_t commanded_version;
    const char *config_error; /* empty: none */
    size_t version_count;
    const struct eb_wire_version *versions;
};

/* ListModelsResponse. */
struct eb_wire_model_list {
    size_t count;
    const struct eb_wire_model *models;
};
