#include "server/models/feature_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct eb_feature describe_feature_table(const struct eb_named_table *table)
{
    return (struct eb_feature){
        .name = table->name,
        .table = table,
        .default_index = table->default_index,
        .has_default = table->has_default,
        .reduction = EB_REDUCTION_SUM,
        .missing = table->missing ? table->missing : EB_MISSING_ERROR,
    };
}

/* Returns the feature that `config` describes. If a setting is not given, the table's default
 * applies. */
static struct eb_feature describe_set_feature(
    const struct eb_named_table *table, const struct eb_model_config_feature *config)
{
    struct eb_feature feature = describe_feature_table(table);
    feature.name = config->name;
    feature.id_map = config->id_map.kind != EB_ID_MAP_NONE ? &config->id_map : NULL;
    feature.max_ids = config->max_ids;
    if (config->has_default) {
        feature.has_default = true;
        feature.default_index = config->default_index;
    }
    if (config->reduction) {
        feature.reduction = config->reduction;
    }
    if (config->missing) {
        feature.missing = config->missing;
    }
    return feature;
}

/* Returns the FNV-1a hash of a name. */
static size_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at; at++) {
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    return (size_t)(hash ^ hash >> 32);
}

/* Returns the slot of `name` in the index, or the empty slot where it belongs. A slot holds the
 * feature's index plus one, or 0 if it is empty. At least half of the slots are empty. */
static uint32_t *find_feature_slot(const struct eb_feature_set *set, const char *name)
{
    size_t mask = set->name_index_size - 1;
    size_t at = hash_name(name) & mask;
    while (set->name_index[at] != 0 &&
           strcmp(set->features[set->name_index[at] - 1].name, name) != 0) {
        at = (at + 1) & mask;
    }
    return &set->name_index[at];
}

static bool index_names(struct eb_feature_set *set)
{
    size_t size = 2;
    while (size < set->count * 2) {
        size *= 2;
    }
    set->name_index = calloc(size, sizeof *set->name_index);
    if (!set->name_index) {
        return false;
    }
    set->name_index_size = size;
    for (size_t i = 0; i < set->count; i++) {
        *find_feature_slot(set, set->features[i].name) = (uint32_t)(i + 1);
    }
    return true;
}

static bool make_features(struct eb_feature_set *set, const struct eb_table_set *tables,
    const struct eb_model_config *config)
{
    size_t feature_count = config ? config->feature_count : 0;
    set->features = calloc(tables->count + feature_count + 1, sizeof *set->features);
    if (!set->features) {
        return false;
    }
    for (size_t i = 0; i < tables->count; i++) {
        set->features[set->count++] = describe_feature_table(&tables->tables[i]);
    }
    set->table_count = set->count;
    for (size_t i = 0; i < feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[i];
        const struct eb_named_table *table = eb_table_set_find(tables, feature->table);
        assert(table);
        set->features[set->count++] = describe_set_feature(table, feature);
    }
    return index_names(set);
}

static bool make_kinds(struct eb_feature_set *set)
{
    set->kinds = calloc(set->count + 1, sizeof *set->kinds);
    for (size_t i = 0; set->kinds && i < set->count; i++) {
        struct eb_feature *feature = &set->features[i];
        struct eb_bag_query query = {
            .table = &feature->table->table,
            .reduction = feature->reduction,
            .missing = feature->missing,
        };
        struct eb_bag_error failure;
        feature->kind = eb_bag_kind_find(&query, &set->kinds[i], &failure) ? &set->kinds[i] : NULL;
    }
    return set->kinds;
}

static bool make_groups(struct eb_feature_set *set, const struct eb_model_config *config)
{
    size_t name_count = 0;
    for (size_t i = 0; i < config->group_count; i++) {
        name_count += config->groups[i].feature_count;
    }
    set->groups = calloc(config->group_count + 1, sizeof *set->groups);
    set->group_names = calloc(name_count + 1, sizeof *set->group_names);
    if (!set->groups || !set->group_names) {
        return false;
    }
    const char **names = set->group_names;
    for (size_t i = 0; i < config->group_count; i++) {
        const struct eb_model_config_group *group = &config->groups[i];
        set->groups[set->group_count++] =
            (struct eb_feature_group){group->name, group->feature_count, names};
        for (size_t k = 0; k < group->feature_count; k++) {
            *names++ = config->features[group->features[k]].name;
        }
    }
    return true;
}

bool eb_feature_set_init(struct eb_feature_set *set, const struct eb_table_set *tables,
    const struct eb_model_config *config, struct eb_failure *failure)
{
    *set = (struct eb_feature_set){0};
    if (tables->count >= UINT32_MAX - EB_MODEL_CONFIG_FEATURES_MAX) {
        return eb_failure_set(failure, "more tables than can be counted");
    }
    if (make_features(set, tables, config) && make_kinds(set) &&
        (!config || make_groups(set, config))) {
        return true;
    }
    eb_feature_set_deinit(set);
    return eb_failure_set(failure, "out of memory");
}

void eb_feature_set_deinit(struct eb_feature_set *set)
{
    free(set->features);
    free(set->kinds);
    free(set->groups);
    free(set->group_names);
    free(set->name_index);
    *set = (struct eb_feature_set){0};
}

const struct eb_feature *eb_feature_set_find(const struct eb_feature_set *set, const char *name)
{
    uint32_t slot = *find_feature_slot(set, name);
    return slot == 0 ? NULL : &set->features[slot - 1];
}

static int compare_group(const void *name, const void *group)
{
    return strcmp(name, ((const struct eb_feature_group *)group)->name);
}

const struct eb_feature_group *eb_feature_set_find_group(
    const struct eb_feature_set *set, const char *name)
{
    return set->group_count > 0
               ? bsearch(name, set->groups, set->group_count, sizeof *set->groups, compare_group)
               : NULL;
}
