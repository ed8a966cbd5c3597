/* embag: models as a server describes them. Part of embag.h, which includes it.
 * Thread: immutable. Memory: part of the list that it is in. */
#pragma once

#include "embag_types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct embag_table {
    const char *name;
    uint64_t rows;
    uint32_t rank;                  /* of shape */
    uint64_t shape[EMBAG_RANK_MAX]; /* trailing dims; none for a table of rank 1 */
    enum embag_type type;
    const char *storage;
    uint64_t resident_bytes;
    uint64_t digest;            /* of its content */
    bool keyed;                 /* indices are keys */
    enum embag_missing missing; /* where a request says nothing, like default_index */
    bool has_default;           /* default_index is meant; else empty bags are zeros */
    int64_t default_index;
    bool has_unknown_row; /* unknown_row is meant */
    int64_t unknown_row;
};

/* A name for a use of a table, with what holds where a request says nothing. */
struct embag_feature {
    const char *name;
    const char *table;
    enum embag_reduction reduction;
    enum embag_missing missing;
    bool has_default; /* default_index is meant; else empty bags are zeros */
    int64_t default_index;
    const char *id_map; /* "none", "modulo" or "hash_modulo" */
    uint64_t seed;      /* of hash_modulo */
    uint64_t max_ids;   /* of one bag; 0: not bounded */
};

/* An ordered list of features, as embag_group.name means. */
struct embag_feature_list {
    const char *name;
    size_t feature_count;
    const char *const *features;
};

struct embag_model_version {
    uint64_t version;
    bool serving;      /* answers where no version is named */
    const char *error; /* why it does not load; empty otherwise */
    size_t table_count;
    const struct embag_table *tables;
    enum embag_version_state state;
    uint64_t bytes; /* of memory that its tables take, in whole pages */
    size_t label_count;
    const char *const *labels; /* by which requests may name it */
    bool held;                 /* a command has loaded it: it stays until it is unloaded */
    uint64_t digest;           /* of its tables' names and contents; 0 where it is not loaded, */
    uint64_t loaded_unix_ms;   /* like the milliseconds since 1970 (UTC) when it was, */
    uint64_t load_ms;          /* and those that it took */
    size_t feature_count;
    const struct embag_feature *features; /* ordered by name, like groups */
    size_t group_count;
    const struct embag_feature_list *groups;
};

struct embag_model {
    const char *name;
    uint64_t served_version;
    uint64_t commanded_version; /* served by command, whatever model.yaml says; 0: as that says */
    const char *config_error;   /* why model.yaml or its directory cannot be used; else empty */
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
