/* embag: models, as a server describes them. Part of embag.h, which includes it.
 * Thread: immutable. Memory: part of the list that they are in. */
#pragma once

#include "embag_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct embag_table {
    const char *name;
    uint64_t rows;
    uint32_t rank;                  /* number of dims in shape */
    uint64_t shape[EMBAG_RANK_MAX]; /* trailing dims; none for a table of rank 1 */
    enum embag_type type;
    const char *storage;
    uint64_t resident_bytes;
    uint64_t digest;            /* digest of its content */
    bool keyed;                 /* indices are keys */
    enum embag_missing missing; /* applies, like default_index, if a request sets none */
    bool has_default;           /* default_index is set; if not, empty bags yield default_vector or,
                                   without one, zeros */
    int64_t default_index;
    bool has_unknown_row; /* unknown_row is set */
    int64_t unknown_row;
    const void *default_vector;  /* values of `type`, one for each element of a row, at any
                                    alignment; the table has none if default_vector_bytes is 0 */
    size_t default_vector_bytes; /* bytes of all values */
    bool unknown_vector; /* default_vector takes the place of missing rows with UNKNOWN_ROW */
    /* In a version in parts: where its rows are, "everywhere" (on every router), "whole" (in one
     * part) or "rows" (divided among all parts). Otherwise empty. */
    const char *placement;
    int64_t part; /* the part, from 0, with the placement "whole"; otherwise -1 */
};

/* A name for one use of a table, with its own defaults for requests that set none. */
struct embag_feature {
    const char *name;
    const char *table;
    enum embag_reduction reduction;
    enum embag_missing missing;
    bool has_default; /* default_index is set; if not, empty bags yield the table's default_vector
                         or, without one, zeros */
    int64_t default_index;
    const char *id_map; /* "none", "modulo" or "hash_modulo" */
    uint64_t seed;      /* seed of hash_modulo */
    uint64_t max_ids;   /* most ids of one bag; 0: no limit */
};

/* An ordered list of features, which embag_group.name can name. */
struct embag_feature_list {
    const char *name;
    size_t feature_count;
    const char *const *features;
};

struct embag_model_version {
    uint64_t version;
    bool serving;      /* answers requests that name no version */
    const char *error; /* why it cannot be loaded; empty if it can */
    size_t table_count;
    const struct embag_table *tables;
    enum embag_version_state state;
    uint64_t bytes; /* memory that its tables take, in whole pages */
    size_t label_count;
    const char *const *labels; /* labels by which requests may name it */
    bool held;                 /* loaded by a command: it stays until it is unloaded */
    uint64_t digest;           /* digest of its tables' names and contents; 0: not loaded */
    uint64_t loaded_unix_ms;   /* when it was loaded: ms since 1970 (UTC); 0: not loaded */
    uint64_t load_ms;          /* ms that loading took; 0 if not loaded */
    size_t feature_count;
    const struct embag_feature *features; /* ordered by name, as groups are */
    size_t group_count;
    const struct embag_feature_list *groups;
    uint32_t parts; /* number of parts of a version in parts; otherwise 0 */
    /* The parts, from 0, that the server has; of a router: those that some part server has ready.
     * Requests that touch other parts fail. */
    size_t ready_part_count;
    const uint32_t *ready_parts;
};

struct embag_model {
    const char *name;
    uint64_t served_version;
    /* Version that a command serves, whatever model.yaml says; 0 if model.yaml decides. */
    uint64_t commanded_version;
    /* Why model.yaml or the model's directory cannot be used; else empty. */
    const char *config_error;
    size_t version_count;
    const struct embag_model_version *versions;
};

struct embag_model_list {
    size_t count;
    const struct embag_model *models;
};

#ifdef __cplusplus
}
#endif
