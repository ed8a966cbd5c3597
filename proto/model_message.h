/* What embag.v1 says of models, as plain structs; otherwise as message.h.
 * Thread, memory: none of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    const char *error; /* why it failed; empty otherwise */
    size_t label_count;
    const char *const *labels;
    uint64_t bytes;
    uint64_t digest;
    uint64_t loaded_unix_ms;
    uint64_t load_ms;
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
