/* The names that requests may use in a version: its tables, the features that model.yaml defines on
 * the tables, and groups of features. Each table and feature has defaults for settings that a
 * request leaves out. The lists are made when the version is loaded and never change.
 * Thread: made by any one; afterwards immutable. Memory: owns its lists, on the heap; tables, names
 * and id maps are borrowed from the tables and the configuration. */
#pragma once

#include "server/contents/model_config.h"
#include "server/tables/table_set.h"

#include <string.h>

/* A named way to use a table. Each table is also a feature. */
struct eb_feature {
    const char *name;
    const struct eb_named_table *table;
    const struct eb_id_map *id_map; /* NULL if it has none */
    uint64_t max_ids;               /* most ids of one bag; 0 means no limit */
    int64_t default_index;       /* a row (id_map is not applied to it), -1 for zeros, or a key */
    enum eb_reduction reduction; /* never UNSPECIFIED; the same holds for `missing` */
    enum eb_missing missing;
    bool has_default;
    /* The kind of queries that use the feature's own `reduction` and `missing`. NULL if such
     * queries are not valid. */
    const struct eb_bag_kind *kind;
};

/* An ordered list of features. */
struct eb_feature_group {
    const char *name;
    size_t count;
    const char *const *names; /* names of its features */
};

struct eb_feature_set {
    size_t table_count;
    size_t count;                /* number of tables and features together */
    struct eb_bag_kind *kinds;   /* private: the kinds that the features point to */
    struct eb_feature *features; /* tables, sorted by name, then features, sorted by name */
    size_t group_count;
    struct eb_feature_group *groups; /* sorted by name */
    const char **group_names;        /* private: the groups' lists, one after the other */
    uint32_t *name_index;            /* private: open addressing over features */
    size_t name_index_size;
};

/* Makes the features and groups that the configuration, which may be NULL, defines on the tables.
 * The load of the tables must have checked that the configuration matches them. Returns false with
 * *failure set and *set empty if that fails. */
bool eb_feature_set_init(struct eb_feature_set *set, const struct eb_table_set *tables,
    const struct eb_model_config *config, struct eb_failure *failure);
/* Accepts a zeroed set. */
void eb_feature_set_deinit(struct eb_feature_set *set);

/* Returns the feature or table of that name, or NULL if there is none. Takes constant time. */
const struct eb_feature *eb_feature_set_find(const struct eb_feature_set *set, const char *name);
/* Does the same as eb_feature_set_find, but is faster if `name` is the name of the feature after
 * `last`. `last` may be NULL. */
static inline const struct eb_feature *eb_feature_set_find_after(
    const struct eb_feature_set *set, const struct eb_feature *last, const char *name)
{
    const struct eb_feature *end = set->features + set->count;
    if (last && last + 1 < end && strcmp(last[1].name, name) == 0) {
        return last + 1;
    }
    return eb_feature_set_find(set, name);
}
/* Returns the group of that name, or NULL if there is none. */
const struct eb_feature_group *eb_feature_set_find_group(
    const struct eb_feature_set *set, const char *name);
