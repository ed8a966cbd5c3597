#include "client/cli/load_target.h"

#include "client/cli/load_keys.h"
#include "client/cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what the server lacks. Returns false, for callers to return. */
static bool refuse_target(const char *what, const char *name, const char *hint)
{
    fprintf(stderr, "embag-load: the server has no %s \"%s\"%s\n", what,
        eb_output_printable(name).bytes, hint);
    return false;
}

static const struct embag_model *find_target_model(
    const struct embag_model_list *list, const struct eb_load_options *options)
{
    if (!options->model && list->count == 1) {
        return &list->models[0];
    }
    for (size_t i = 0; options->model && i < list->count; i++) {
        if (strcmp(list->models[i].name, options->model) == 0) {
            return &list->models[i];
        }
    }
    if (!options->model) {
        fprintf(
            stderr, "embag-load: the server has %zu models: name one with --model\n", list->count);
    } else if (options->workload) {
        (void)refuse_target("model", options->model, "; embag make-model --workload writes one");
    } else {
        (void)refuse_target("model", options->model, "; embag models lists them");
    }
    return NULL;
}

static const struct embag_model_version *find_version(const struct embag_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].serving) {
            return &model->versions[i];
        }
    }
    (void)refuse_target("version being served of the model", model->name, "");
    return NULL;
}

/* NULL: the version has none of that name. */
static const struct embag_table *find_target_table(
    const struct embag_model_version *version, const char *name)
{
    for (size_t i = 0; i < version->table_count; i++) {
        if (strcmp(version->tables[i].name, name) == 0) {
            return &version->tables[i];
        }
    }
    return NULL;
}

/* The table of the feature of that name; NULL: there is none. */
static const struct embag_table *find_features_table(
    const struct embag_model_version *version, const char *name)
{
    for (size_t i = 0; i < version->feature_count; i++) {
        if (strcmp(version->features[i].name, name) == 0) {
            return find_target_table(version, version->features[i].table);
        }
    }
    return NULL;
}

/* Always false. */
static bool refuse_keyed(const char *table, const char *why)
{
    fprintf(
        stderr, "embag-load: table \"%s\" is keyed: %s\n", eb_output_printable(table).bytes, why);
    return false;
}

/* Sees to it that the keys of the table, which is keyed, are there. */
static bool take_keys(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_table *table)
{
    if (!options->keys_file) {
        return refuse_keyed(table->name,
            "say which keys it has with --keys-file FILE, its TABLE.keys.npy or TABLE.embag");
    }
    if (target->keyed_name) {
        return strcmp(target->keyed_name, table->name) == 0 ||
               refuse_keyed(table->name, "--keys-file is of one table; ask for one keyed table");
    }
    if (!eb_load_keys_read(&target->keys, options->keys_file)) {
        return false;
    }
    target->keyed_name = strdup(table->name);
    return (target->keys.count == table->rows && target->keyed_name) ||
           refuse_keyed(table->name, "--keys-file has not as many keys as the table has rows");
}

static bool fill_target_table(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_version *version, struct eb_load_table *table)
{
    const struct embag_table *found = find_target_table(version, table->name);
    table->is_feature = !found;
    if (!found) {
        found = find_features_table(version, table->name);
    }
    if (!found) {
        return refuse_target("table or feature", table->name, "; embag models lists them");
    }
    uint64_t columns = 1;
    for (uint32_t i = 0; i < found->rank; i++) {
        columns *= found->shape[i];
    }
    if (found->rows == 0) {
        return refuse_target("row in the table", table->name, ": there is nothing to look up");
    }
    table->row_count = found->rows;
    table->column_count = (uint32_t)columns;
    table->is_f32 = found->type == EMBAG_F32 && strcmp(found->storage, "f32") == 0;
    table->is_keyed = found->keyed;
    return !found->keyed || take_keys(target, options, found);
}

/* The group that the options name; NULL: there is none, which is said. */
static const struct embag_feature_list *find_group(
    const struct embag_model_version *version, const struct eb_load_options *options)
{
    for (size_t i = 0; i < version->group_count; i++) {
        if (strcmp(version->groups[i].name, options->group) == 0) {
            return &version->groups[i];
        }
    }
    (void)refuse_target("group", options->group, "; embag models --features lists them");
    return NULL;
}

/* The n-th name of what the options name, on the heap; NULL: no memory. */
static char *copy_name(
    const struct eb_load_options *options, const struct embag_feature_list *group, uint32_t n)
{
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    if (options->workload) {
        eb_workload_table_name(n, name);
        return strdup(name);
    }
    if (group) {
        return strdup(group->features[n]);
    }
    const char *at = options->tables;
    for (uint32_t i = 0; i < n; i++) {
        at = strchr(at, ',') + 1;
    }
    return strndup(at, strcspn(at, ","));
}

static uint32_t count_target_tables(
    const struct eb_load_options *options, const struct embag_feature_list *group)
{
    if (group) {
        return (uint32_t)group->feature_count;
    }
    if (options->workload) {
        return options->workload->table_count;
    }
    uint32_t count = 1;
    for (const char *c = options->tables; *c != '\0'; c++) {
        count += *c == ',';
    }
    return count;
}

/* With --verify: whether what the table answers is published. */
static bool check_published(const struct eb_load_table *table)
{
    const char *why = table->is_feature ? "a feature, not a table"
                      : table->is_keyed ? "keyed, not one of make-model's"
                                        : "not f32";
    if (table->is_f32 && !table->is_feature && !table->is_keyed) {
        return true;
    }
    fprintf(stderr,
        "embag-load: --verify: %s is %s, as the published values are: leave --verify out\n",
        table->name, why);
    return false;
}

static bool fill_tables(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_version *version, const struct embag_feature_list *group)
{
    for (uint32_t i = 0; i < target->table_count; i++) {
        struct eb_load_table *table = &target->tables[i];
        table->name = copy_name(options, group, i);
        table->indices_per_bag = options->workload
                                     ? eb_workload_indices_per_bag(options->workload, i)
                                     : options->indices_per_bag;
        if (!table->name || !fill_target_table(target, options, version, table)) {
            return false;
        }
        if (options->is_verified && !check_published(table)) {
            return false;
        }
    }
    if (options->keys_file && !target->keyed_name) {
        fprintf(stderr, "embag-load: --keys-file: no table of these is keyed; leave it out\n");
        return false;
    }
    return true;
}

bool eb_load_target_init(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_list *list)
{
    *target = (struct eb_load_target){0};
    const struct embag_model *model = find_target_model(list, options);
    const struct embag_model_version *version = model ? find_version(model) : NULL;
    const struct embag_feature_list *group =
        version && options->group ? find_group(version, options) : NULL;
    if (!version || (options->group && !group)) {
        return false;
    }
    target->version = version->version;
    target->table_count = count_target_tables(options, group);
    target->model = strdup(model->name);
    target->tables = calloc(target->table_count, sizeof *target->tables);
    if (!target->model || !target->tables) {
        fprintf(stderr, "embag-load: no memory for the tables' names\n");
        target->table_count = 0;
    } else if (fill_tables(target, options, version, group)) {
        return true;
    }
    eb_load_target_deinit(target);
    return false;
}

void eb_load_target_deinit(struct eb_load_target *target)
{
    for (uint32_t i = 0; i < target->table_count; i++) {
        free(target->tables[i].name);
    }
    eb_pack_keys_deinit(&target->keys);
    free(target->keyed_name);
    free(target->tables);
    free(target->model);
    *target = (struct eb_load_target){0};
}
