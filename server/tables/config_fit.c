#include "server/tables/config_fit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_fit_name(const void *name, const void *table)
{
    return strcmp(name, ((const struct eb_planned_table *)table)->name);
}

static const struct eb_planned_table *find_fit_table(
    const struct eb_table_plan *plan, const char *name)
{
    return bsearch(name, plan->tables, plan->table_count, sizeof *plan->tables, compare_fit_name);
}

/* Sets *error to why a tensor that model.yaml names cannot be a table. Always returns false. */
static bool refuse_fit_unfit(
    const struct eb_table_plan *plan, const struct eb_piece *unfit, struct eb_failure *failure)
{
    return eb_failure_set(failure, "%s: tensor '%.128s', which model.yaml names: %s",
        plan->scan.files[unfit->file].path, unfit->name, unfit->unfit);
}

static bool check_table(const struct eb_model_config_table *table, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    const struct eb_planned_table *found = find_fit_table(plan, table->name);
    const struct eb_piece *unfit = eb_version_scan_find_unfit(&plan->scan, table->source);
    if (found && found->config == table) {
        return true;
    }
    return unfit ? refuse_fit_unfit(plan, unfit, failure)
                 : eb_failure_set(failure,
                       "model.yaml: table '%.64s': its source '%.64s' is not in this version",
                       table->name, table->source);
}

static bool check_fit_default(const struct eb_model_config_feature *feature,
    const struct eb_planned_table *table, struct eb_failure *failure)
{
    const uint64_t rows = table->tensor.dims[0];
    const bool is_row = feature->default_index >= 0 && (uint64_t)feature->default_index < rows;
    return table->is_keyed || !feature->has_default || feature->default_index == -1 || is_row ||
           eb_failure_set(failure,
               "model.yaml: feature '%.64s': default_index %" PRId64 " is none of the %" PRIu64
               " rows of table '%.64s', nor -1 for zeros",
               feature->name, feature->default_index, rows, table->name);
}

/* What a feature says of the table, which it has. */
static bool check_use(const struct eb_model_config_feature *feature,
    const struct eb_planned_table *table, struct eb_failure *failure)
{
    if (feature->id_map.kind != EB_ID_MAP_NONE && (table->is_keyed || table->tensor.dims[0] == 0)) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': id_map has no meaning for table '%.64s', which %s; leave "
            "it out",
            feature->name, table->name, table->is_keyed ? "is keyed" : "has no rows");
    }
    if (feature->missing == EB_MISSING_UNKNOWN_ROW && table->unknown_row < 0) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': missing: unknown_row needs an unknown_row of table "
            "'%.64s'",
            feature->name, table->name);
    }
    if (!eb_type_is_float(table->type) && (feature->reduction == EB_REDUCTION_WEIGHTED_MEAN ||
                                              feature->reduction == EB_REDUCTION_SQRTN)) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': reduction %s is for floating-point tables, and table "
            "'%.64s' holds %s",
            feature->name, eb_reduction_name(feature->reduction), table->name,
            eb_type_name(table->type));
    }
    return check_fit_default(feature, table, failure);
}

static bool check_feature(const struct eb_model_config_feature *feature,
    const struct eb_table_plan *plan, struct eb_failure *failure)
{
    const struct eb_planned_table *table = find_fit_table(plan, feature->table);
    if (find_fit_table(plan, feature->name)) {
        return eb_failure_set(
            failure, "model.yaml: feature '%.64s' has a table's name; rename it", feature->name);
    }
    const struct eb_piece *unfit = eb_version_scan_find_unfit(&plan->scan, feature->table);
    if (!table && unfit) {
        return refuse_fit_unfit(plan, unfit, failure);
    }
    if (!table) {
        return eb_failure_set(failure,
            "model.yaml: feature '%.64s': table '%.64s' is not in this version", feature->name,
            feature->table);
    }
    return check_use(feature, table, failure);
}

/* What lies side by side is of one floating-point type, and pooled. */
static bool check_fit_group(const struct eb_model_config *config,
    const struct eb_model_config_group *group, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    const struct eb_model_config_feature *first = &config->features[group->features[0]];
    const enum eb_type type = find_fit_table(plan, first->table)->type;
    for (size_t i = 0; i < group->feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[group->features[i]];
        const enum eb_type other = find_fit_table(plan, feature->table)->type;
        if (feature->reduction == EB_REDUCTION_NONE) {
            return eb_failure_set(failure,
                "model.yaml: group '%.64s': feature '%.64s' has the reduction NONE, which no group "
                "can have",
                group->name, feature->name);
        }
        if (!eb_type_is_float(other) || other != type) {
            return eb_failure_set(failure,
                "model.yaml: group '%.64s': feature '%.64s' is of type %s, and '%.64s' of %s; a "
                "group's features are all of one floating-point type",
                group->name, feature->name, eb_type_name(other), first->name, eb_type_name(type));
        }
    }
    return true;
}

bool eb_config_fit_check(const struct eb_model_config *config, const struct eb_table_plan *plan,
    struct eb_failure *failure)
{
    bool is_good = true;
    for (size_t i = 0; i < config->table_count && is_good; i++) {
        is_good = check_table(&config->tables[i], plan, failure);
    }
    for (size_t i = 0; i < config->feature_count && is_good; i++) {
        is_good = check_feature(&config->features[i], plan, failure);
    }
    for (size_t i = 0; i < config->group_count && is_good; i++) {
        is_good = check_fit_group(config, &config->groups[i], plan, failure);
    }
    return is_good;
}
