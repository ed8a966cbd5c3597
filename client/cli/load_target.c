#include "client/cli/load_target.h"

#include "client/cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what the server lacks. Returns false, for callers to return. */
static bool refuse(const char *what, const char *name, const char *remedy)
{
    (void)fprintf(stderr, "embag-load: the server has no %s \"%s\"%s\n", what,
        eb_output_printable(name).bytes, remedy);
    return false;
}

static const struct embag_model *find_model(
    const struct embag_model_list *list, const struct eb_load_options *options)
{
    if (options->model == NULL && list->count == 1) {
        return &list->models[0];
    }
    for (size_t i = 0; options->model != NULL && i < list->count; i++) {
        if (strcmp(list->models[i].name, options->model) == 0) {
            return &list->models[i];
        }
    }
    if (options->model == NULL) {
        (void)fprintf(
            stderr, "embag-load: the server has %zu models: name one with --model\n", list->count);
    } else if (options->workload != NULL) {
        (void)refuse("model", options->model, "; embag make-model --workload writes one");
    } else {
        (void)refuse("model", options->model, "; embag models lists them");
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
    (void)refuse("version being served of the model", model->name, "");
    return NULL;
}

static bool fill_table(
    struct eb_load_table *table, const struct embag_model_version *version, char *name)
{
    const struct embag_table *found = NULL;
    for (size_t i = 0; i < version->table_count; i++) {
        found = strcmp(version->tables[i].name, name) == 0 ? &version->tables[i] : found;
    }
    if (found == NULL) {
        return refuse("table", name, "; embag models lists them");
    }
    uint64_t columns = 1;
    for (uint32_t i = 0; i < found->rank; i++) {
        columns *= found->shape[i];
    }
    if (found->rows == 0) {
        return refuse("row in the table", name, ": there is nothing to look up");
    }
    table->row_count = found->rows;
    table->column_count = (uint32_t)columns;
    table->is_f32 = found->type == EMBAG_F32 && strcmp(found->storage, "f32") == 0;
    return true;
}

/* The n-th name of the options, on the heap; NULL: no memory. */
static char *copy_name(const struct eb_load_options *options, uint32_t n)
{
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    if (options->workload != NULL) {
        eb_workload_table_name(n, name);
        return strdup(name);
    }
    const char *at = options->tables;
    for (uint32_t i = 0; i < n; i++) {
        at = strchr(at, ',') + 1;
    }
    return strndup(at, strcspn(at, ","));
}

static uint32_t count_tables(const struct eb_load_options *options)
{
    if (options->workload != NULL) {
        return options->workload->table_count;
    }
    uint32_t count = 1;
    for (const char *c = options->tables; *c != '\0'; c++) {
        count += *c == ',';
    }
    return count;
}

static bool fill_tables(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_version *version)
{
    for (uint32_t i = 0; i < target->table_count; i++) {
        struct eb_load_table *table = &target->tables[i];
        table->name = copy_name(options, i);
        table->indices_per_bag = options->workload != NULL
                                     ? eb_workload_indices_per_bag(options->workload, i)
                                     : options->indices_per_bag;
        if (table->name == NULL || !fill_table(table, version, table->name)) {
            return false;
        }
        if (options->is_verified && !table->is_f32) {
            (void)fprintf(stderr,
                "embag-load: --verify: table %s is not f32, as the published values are: "
                "leave --verify out\n",
                table->name);
            return false;
        }
    }
    return true;
}

bool eb_load_target_init(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_model_list *list)
{
    *target = (struct eb_load_target){0};
    const struct embag_model *model = find_model(list, options);
    const struct embag_model_version *version = model != NULL ? find_version(model) : NULL;
    if (version == NULL) {
        return false;
    }
    target->version = version->version;
    target->table_count = count_tables(options);
    target->model = strdup(model->name);
    target->tables = calloc(target->table_count, sizeof *target->tables);
    if (target->model == NULL || target->tables == NULL) {
        (void)fprintf(stderr, "embag-load: no memory for the tables' names\n");
        target->table_count = 0;
    } else if (fill_tables(target, options, version)) {
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
    free(target->tables);
    free(target->model);
    *target = (struct eb_load_target){0};
}
