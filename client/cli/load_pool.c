#include "client/cli/load_pool.h"

#include "client/cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of requests if --requests is not given: enough that their rows do not fit in a cache, but
 * within both budgets. */
#define COUNT_DEFAULT 4096
#define INDICES_BUDGET (UINT64_C(16) * 1024 * 1024)
#define QUERIES_BUDGET (UINT64_C(512) * 1024) /* queries of all requests; they take some 90 MiB */
/* Budget for expected answers. They are computed beforehand, because computing them while answers
 * are awaited would slow the load down. */
#define KEPT_BYTES_MAX (UINT64_C(256) * 1024 * 1024)
/* Most indices of one query, as in the kernels. */
#define INDICES_MAX (UINT64_C(1) << 24)

/* ---- the target ---- */

/* Prints what the server lacks. Always returns false. */
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
    (void)refuse_target("served version of the model", model->name, "");
    return NULL;
}

/* Returns the table of that name; NULL if the version has none. */
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

/* Returns the table of the feature of that name; NULL if there is none. */
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

static bool read_packed_load_keys(
    struct eb_pack_keys *keys, struct eb_source_file *source, struct eb_failure *failure)
{
    return source->reader.format.sections[EB_PACKED_KEYS].bytes > 0
               ? eb_pack_keys_unpack(keys, &source->reader, failure)
               : eb_failure_set(failure, "it has no keys");
}

static bool read_any_load_keys(
    struct eb_pack_keys *keys, const char *path, struct eb_failure *failure)
{
    struct eb_source_file source;
    if (!eb_source_file_open(&source, path, failure)) {
        return false;
    }
    bool is_good = source.is_packed ? read_packed_load_keys(keys, &source, failure)
                                    : eb_pack_keys_read(keys, path, failure);
    eb_source_file_close(&source);
    return is_good;
}

/* Reads the keys of TABLE.keys.npy or of a packed table. Returns false, with an error on stderr and
 * *keys empty, if there are none. */
static bool read_load_keys(struct eb_pack_keys *keys, const char *path)
{
    struct eb_failure failure = {.text = ""};
    *keys = (struct eb_pack_keys){0};
    if (read_any_load_keys(keys, path, &failure)) {
        return true;
    }
    fprintf(
        stderr, "embag-load: --keys-file %s: %s\n", path, eb_output_printable(failure.text).bytes);
    return false;
}

/* Prints why the keyed table cannot be used. Always returns false. */
static bool refuse_keyed(const char *table, const char *why)
{
    fprintf(
        stderr, "embag-load: table \"%s\" is keyed: %s\n", eb_output_printable(table).bytes, why);
    return false;
}

/* Reads the keys of a keyed table, unless they have been read. Returns false after printing an
 * error to stderr. */
static bool take_keys(struct eb_load_target *target, const struct eb_load_options *options,
    const struct embag_table *table)
{
    if (!options->keys_file) {
        return refuse_keyed(table->name,
            "give its keys with --keys-file FILE, which is its TABLE.keys.npy or TABLE.embag");
    }
    if (target->keyed_name) {
        return strcmp(target->keyed_name, table->name) == 0 ||
               refuse_keyed(
                   table->name, "--keys-file has keys of one table; look up only one keyed table");
    }
    if (!read_load_keys(&target->keys, options->keys_file)) {
        return false;
    }
    target->keyed_name = strdup(table->name);
    return (target->keys.count == table->rows && target->keyed_name) ||
           refuse_keyed(table->name,
               "the number of keys in --keys-file differs from the table's number of rows");
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

/* Returns the group that the options name. Returns NULL after printing an error to stderr if there
 * is none. */
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

/* Returns a copy of the n-th table or feature name that the options or their group give; NULL if
 * out of memory. */
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

/* Returns whether the table's values are published, as --verify requires. If not, prints an error
 * to stderr. */
static bool check_published(const struct eb_load_table *table)
{
    const char *why = table->is_feature ? "is a feature"
                      : table->is_keyed ? "is keyed"
                                        : "is not f32";
    if (table->is_f32 && !table->is_feature && !table->is_keyed) {
        return true;
    }
    fprintf(stderr,
        "embag-load: --verify: %s %s; only make-model's f32 tables have published values: leave "
        "--verify out\n",
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
        fprintf(stderr, "embag-load: --keys-file: none of the tables is keyed; leave it out\n");
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
        fprintf(stderr, "embag-load: out of memory for the tables' names\n");
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

/* ---- the pool ---- */

static bool refuse_pool(const char *why)
{
    fprintf(stderr, "embag-load: %s\n", why);
    return false;
}

static uint64_t find_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns how many requests the budget for --verify allows, at least one. */
static uint64_t find_kept_max(const struct eb_load_pool *pool)
{
    if (pool->answer_bytes == 0) {
        return UINT64_MAX;
    }
    uint64_t fitting = KEPT_BYTES_MAX / pool->answer_bytes / pool->kept_versions;
    return fitting > 0 ? fitting : 1;
}

static bool choose_count(struct eb_load_pool *pool, const struct eb_load_options *options)
{
    uint64_t kept_max = options->is_verified ? find_kept_max(pool) : UINT64_MAX;
    uint64_t fitting = find_least(
        INDICES_BUDGET / pool->request_indices, QUERIES_BUDGET / pool->target->table_count);
    fitting = fitting > 0 ? find_least(fitting, COUNT_DEFAULT) : 1;
    if (options->pool_count > kept_max) {
        fprintf(stderr,
            "embag-load: --verify keeps the expected answer of every request, at most 256 MiB of "
            "them: give --requests %" PRIu64 " or fewer, fewer bags, or fewer versions ahead\n",
            kept_max);
        return false;
    }
    pool->count = options->pool_count != 0 ? options->pool_count : find_least(fitting, kept_max);
    return true;
}

static bool measure_pool(struct eb_load_pool *pool, const struct eb_load_options *options)
{
    bool is_own = pool->output_type == EMBAG_TYPE_UNSPECIFIED;
    size_t value_bytes = embag_type_bytes(is_own ? EMBAG_F32 : pool->output_type);
    for (uint32_t i = 0; i < pool->target->table_count; i++) {
        uint64_t indices = (uint64_t)pool->bag_count * pool->target->tables[i].indices_per_bag;
        if (indices > INDICES_MAX) {
            return refuse_pool(
                "a query would have more than 2^24 indices: give fewer bags, or fewer "
                "indices per bag");
        }
        pool->request_indices += indices;
        pool->answer_bytes +=
            (uint64_t)pool->bag_count * pool->target->tables[i].column_count * value_bytes;
    }
    return choose_count(pool, options);
}

static bool take_pool_memory(struct eb_load_pool *pool)
{
    uint64_t tables = pool->target->table_count;
    pool->requests = calloc(pool->count, sizeof *pool->requests);
    pool->queries = calloc(pool->count * tables, sizeof *pool->queries);
    pool->indices = calloc(pool->count * pool->request_indices, sizeof *pool->indices);
    pool->offsets = calloc(pool->bag_count * tables, sizeof *pool->offsets);
    return (pool->requests && pool->queries && pool->indices && pool->offsets) ||
           refuse_pool("out of memory for the requests: give a smaller --requests");
}

static bool take_group_memory(struct eb_load_pool *pool)
{
    uint64_t tables = pool->target->table_count;
    pool->groups = calloc(pool->count, sizeof *pool->groups);
    pool->features = calloc(tables, sizeof *pool->features);
    pool->lengths = calloc(pool->bag_count * tables, sizeof *pool->lengths);
    return (pool->groups && pool->features && pool->lengths) ||
           refuse_pool("out of memory for the requests: give a smaller --requests");
}

/* Fills in the queries of all requests on one table. The first `skip` indices of each request are
 * those of other tables. */
static void fill_pool_table(struct eb_load_pool *pool, const struct eb_load_options *options,
    uint32_t position, uint64_t skip)
{
    const struct eb_load_table *table = &pool->target->tables[position];
    uint64_t count = (uint64_t)pool->bag_count * table->indices_per_bag;
    int64_t *offsets = pool->offsets + (uint64_t)position * pool->bag_count;
    struct eb_sampler sampler;
    eb_sampler_init(&sampler, &options->distribution, table->row_count, table->indices_per_bag,
        options->seed + position);
    for (uint32_t bag = 0; bag < pool->bag_count; bag++) {
        offsets[bag] = (int64_t)bag * table->indices_per_bag;
    }
    for (uint64_t i = 0; i < pool->count; i++) {
        int64_t *indices = pool->indices + i * pool->request_indices + skip;
        for (uint64_t k = 0; k < count; k++) {
            uint64_t row = eb_sampler_draw(&sampler);
            indices[k] = table->is_keyed ? pool->target->keys.keys[row] : (int64_t)row;
        }
        pool->queries[i * pool->target->table_count + position] = (struct embag_query){
            .table = table->name,
            .reduction = table->is_feature ? EMBAG_REDUCTION_UNSPECIFIED : EMBAG_SUM,
            .indices = {indices, count, sizeof *indices},
            .offsets = {offsets, pool->bag_count, sizeof *offsets},
        };
    }
}

static void fill_pool(struct eb_load_pool *pool, const struct eb_load_options *options)
{
    const struct eb_load_target *target = pool->target;
    uint64_t skip = 0;
    for (uint32_t i = 0; i < target->table_count; i++) {
        fill_pool_table(pool, options, i, skip);
        skip += (uint64_t)pool->bag_count * target->tables[i].indices_per_bag;
    }
    for (uint64_t i = 0; i < pool->count; i++) {
        pool->requests[i] = (struct embag_request){
            .model = target->model,
            .queries = pool->queries + i * target->table_count,
            .query_count = target->table_count,
            .output_type = options->output_type,
            .timeout_us = options->timeout_us,
            .priority = options->priority,
        };
    }
}

/* Turns each request's queries into one group, which names all tables, or is the model's group
 * called `name`. The indices already lie one after the other. */
static void group(struct eb_load_pool *pool, const char *name)
{
    const struct eb_load_target *target = pool->target;
    for (uint32_t i = 0; i < target->table_count; i++) {
        pool->features[i] = target->tables[i].name;
        for (uint32_t bag = 0; bag < pool->bag_count; bag++) {
            pool->lengths[(uint64_t)i * pool->bag_count + bag] =
                (int32_t)target->tables[i].indices_per_bag;
        }
    }
    for (uint64_t i = 0; i < pool->count; i++) {
        const int64_t *indices = pool->indices + i * pool->request_indices;
        uint64_t bags = (uint64_t)target->table_count * pool->bag_count;
        pool->groups[i] = (struct embag_group){
            .name = name,
            .features = !name ? pool->features : NULL,
            .feature_count = !name ? target->table_count : 0,
            .bags = pool->bag_count,
            .values = {indices, pool->request_indices, sizeof *indices},
            .lengths = {pool->lengths, bags, sizeof *pool->lengths},
            .reduction = !name ? EMBAG_SUM : EMBAG_REDUCTION_UNSPECIFIED,
        };
        pool->requests[i].queries = NULL;
        pool->requests[i].query_count = 0;
        pool->requests[i].groups = &pool->groups[i];
        pool->requests[i].group_count = 1;
    }
}

bool eb_load_pool_init(struct eb_load_pool *pool, const struct eb_load_options *options,
    const struct eb_load_target *target)
{
    *pool = (struct eb_load_pool){
        .target = target,
        .bag_count = options->bag_count,
        .output_type = options->output_type,
        .kept_versions = options->versions_ahead + 1,
    };
    if (!measure_pool(pool, options) || !take_pool_memory(pool) ||
        (options->is_grouped && !take_group_memory(pool))) {
        eb_load_pool_deinit(pool);
        return false;
    }
    fill_pool(pool, options);
    if (options->is_grouped) {
        group(pool, options->group);
    }
    return true;
}

void eb_load_pool_deinit(struct eb_load_pool *pool)
{
    free(pool->requests);
    free(pool->queries);
    free(pool->groups);
    free(pool->features);
    free(pool->lengths);
    free(pool->indices);
    free(pool->offsets);
    *pool = (struct eb_load_pool){0};
}
