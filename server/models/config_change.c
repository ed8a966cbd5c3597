#include "server/models/config_change.h"

#include <string.h>

static bool is_same_table(
    const struct eb_model_config_table *a, const struct eb_model_config_table *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->source, b->source) == 0 &&
           a->format == b->format && a->dim == b->dim && a->storage == b->storage &&
           a->missing == b->missing && a->has_default == b->has_default &&
           a->default_index == b->default_index && a->unknown_row == b->unknown_row;
}

static bool is_same_feature(
    const struct eb_model_config_feature *a, const struct eb_model_config_feature *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->table, b->table) == 0 &&
           a->reduction == b->reduction && a->missing == b->missing &&
           a->has_default == b->has_default && a->default_index == b->default_index &&
           a->id_map.kind == b->id_map.kind && a->id_map.seed == b->id_map.seed &&
           a->max_ids == b->max_ids;
}

/* Where the features are the same, so are their numbers. */
static bool is_same_group(
    const struct eb_model_config_group *a, const struct eb_model_config_group *b)
{
    return strcmp(a->name, b->name) == 0 && a->feature_count == b->feature_count &&
           memcmp(a->features, b->features, a->feature_count * sizeof *a->features) == 0;
}

static bool is_same_choice(
    const struct eb_model_config_patterns *a, const struct eb_model_config_patterns *b)
{
    bool is_same = a->count == b->count;
    for (size_t i = 0; is_same && i < a->count; i++) {
        is_same = strcmp(a->texts[i], b->texts[i]) == 0;
    }
    return is_same;
}

bool eb_config_change_is_none(const struct eb_model_config *a, const struct eb_model_config *b)
{
    bool is_same = a->table_count == b->table_count && a->feature_count == b->feature_count &&
                   a->group_count == b->group_count && is_same_choice(&a->only, &b->only) &&
                   is_same_choice(&a->exclude, &b->exclude);
    for (size_t i = 0; is_same && i < a->table_count; i++) {
        is_same = is_same_table(&a->tables[i], &b->tables[i]);
    }
    for (size_t i = 0; is_same && i < a->feature_count; i++) {
        is_same = is_same_feature(&a->features[i], &b->features[i]);
    }
    for (size_t i = 0; is_same && i < a->group_count; i++) {
        is_same = is_same_group(&a->groups[i], &b->groups[i]);
    }
    return is_same;
}
