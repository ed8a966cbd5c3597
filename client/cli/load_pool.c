#include "client/cli/load_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Requests without --requests: so many that their rows do not fit a cache, in bounded memory. */
#define COUNT_DEFAULT 4096
#define INDICES_BUDGET (UINT64_C(16) * 1024 * 1024)
#define QUERIES_BUDGET (UINT64_C(512) * 1024) /* of all requests, some 90 MiB */
/* Of answers that are kept to be compared: computing them while they are awaited would slow the
 * load down. */
#define KEPT_BYTES_MAX (UINT64_C(256) * 1024 * 1024)
/* What one query may ask for, as the kernels count. */
#define INDICES_MAX (UINT64_C(1) << 24)

static bool refuse_pool(const char *why)
{
    fprintf(stderr, "embag-load: %s\n", why);
    return false;
}

static uint64_t find_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many requests there may be with --verify; always one. */
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
            "embag-load: --verify keeps what every request's answer should be, at most 256 MiB or "
            "one: give --requests %" PRIu64 " or fewer, fewer bags, or fewer versions ahead\n",
            kept_max);
        return false;
    }
    pool->count = options->pool_count != 0 ? options->pool_count : find_least(fitting, kept_max);
    return true;
}

static bool measure_pool(struct eb_load_pool *pool, const struct eb_load_options *options)
{
    const bool is_own = pool->output_type == EMBAG_TYPE_UNSPECIFIED;
    const size_t value_bytes = embag_type_bytes(is_own ? EMBAG_F32 : pool->output_type);
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
           refuse_pool("no memory for the requests: give a smaller --requests");
}

static bool take_group_memory(struct eb_load_pool *pool)
{
    uint64_t tables = pool->target->table_count;
    pool->groups = calloc(pool->count, sizeof *pool->groups);
    pool->features = calloc(tables, sizeof *pool->features);
    pool->lengths = calloc(pool->bag_count * tables, sizeof *pool->lengths);
    return (pool->groups && pool->features && pool->lengths) ||
           refuse_pool("no memory for the requests: give a smaller --requests");
}

/* The queries of all requests on one table. `skip` indices of each request are other tables'. */
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

/* Each request's queries as one group, or as that called `name`: their indices lie behind one
 * another already. */
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
        const uint64_t bags = (uint64_t)target->table_count * pool->bag_count;
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
