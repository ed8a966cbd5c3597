#include "server/contents/config_change.h"

#include <string.h>

/* Either text may be NULL. */
static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same_list(char *const *a, size_t a_count, char *const *b, size_t b_count)
{
    bool is_same = a_count == b_count;
    for (size_t i = 0; is_same && i < a_count; i++) {
        is_same = strcmp(a[i], b[i]) == 0;
    }
    return is_same;
}

static bool is_same_table(
    const struct eb_model_config_table *a, const struct eb_model_config_table *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->source, b->source) == 0 &&
           a->format == b->format && a->dim == b->dim && is_same_text(a->scales, b->scales) &&
           is_same_text(a->biases, b->biases) && a->storage == b->storage &&
           a->missing == b->missing && a->has_default == b->has_default &&
           a->default_index == b->default_index && a->unknown_row == b->unknown_row &&
           is_same_list(a->vector, a->vector_count, b->vector, b->vector_count) &&
           a->unknown_is_vector == b->unknown_is_vector;
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

/* Returns whether two groups are equal. Their features are indices, so this is valid only if all
 * features of both configurations are the same. */
static bool is_same_group(
    const struct eb_model_config_group *a, const struct eb_model_config_group *b)
{
    return strcmp(a->name, b->name) == 0 && a->feature_count == b->feature_count &&
           memcmp(a->features, b->features, a->feature_count * sizeof *a->features) == 0;
}

static bool is_same_choice(
    const struct eb_model_config_patterns *a, const struct eb_model_config_patterns *b)
{
    return is_same_list(a->texts, a->count, b->texts, b->count);
}

bool eb_config_change_is_alike(const struct eb_model_config *a, const struct eb_model_config *b)
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
