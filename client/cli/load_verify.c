#include "client/cli/load_verify.h"

#include "kernels/bag_ops.h"
#include "kernels/bag_stream.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum eb_type find_output_type(const struct eb_load_pool *pool)
{
    return pool->output_type == EMBAG_TYPE_UNSPECIFIED ? EB_F32 : (enum eb_type)pool->output_type;
}

static uint64_t table_row_bytes(const struct eb_load_pool *pool, uint32_t table)
{
    return pool->target->tables[table].column_count * eb_type_bytes(find_output_type(pool));
}

static uint32_t count_results(const struct eb_load_pool *pool)
{
    return pool->groups ? 1 : pool->target->table_count;
}

/* Returns the bytes of one bag of a result. In a group, a bag has all tables' rows side by side. */
static uint64_t result_row_bytes(const struct eb_load_pool *pool, uint32_t result)
{
    if (!pool->groups) {
        return table_row_bytes(pool, result);
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < pool->target->table_count; i++) {
        bytes += table_row_bytes(pool, i);
    }
    return bytes;
}

/* The state of computing one query. The query's rows are copied into a table of their own,
 * in the order of its indices. */
struct gathering {
    const struct embag_query *query;
    const struct eb_load_pool *pool;
    uint64_t seed;
    uint32_t column_count;
    float *rows;
    int64_t *positions;
    void *scratch;
    uint8_t *out;
    uint64_t out_stride_bytes; /* distance from one bag to the next */
};

static void gather_rows(struct gathering *gathering)
{
    const int64_t *indices = gathering->query->indices.data;
    for (uint64_t i = 0; i < gathering->query->indices.count; i++) {
        eb_workload_fill_row(gathering->seed, (uint64_t)indices[i],
            gathering->rows + i * gathering->column_count, gathering->column_count);
        gathering->positions[i] = (int64_t)i;
    }
}

static bool pool_rows(struct gathering *gathering, const struct eb_table *table)
{
    const struct eb_bag_ops *ops = eb_bag_ops_find("ref");
    const struct embag_integers *offsets = &gathering->query->offsets;
    struct eb_bag_query query = {
        .table = table,
        .reduction = EB_REDUCTION_SUM,
        .missing = EB_MISSING_ERROR,
        .output_type = find_output_type(gathering->pool),
        .layout = EB_LAYOUT_OFFSETS,
        .indices = {gathering->positions, table->row_count * 8, 8},
        .bounds = {offsets->data, offsets->count * offsets->width, offsets->width},
    };
    struct eb_bag_extent extent;
    struct eb_bag_job job = {0};
    struct eb_bag_error error;
    bool is_good = eb_bag_measure(&query, &extent, &error);
    assert(ops && is_good);
    gathering->scratch = aligned_alloc(64, extent.scratch_bytes + 64);
    if (!gathering->scratch) {
        return false;
    }
    job.scratch = gathering->scratch;
    is_good = eb_bag_check(ops, &query, &extent, &job, &error);
    assert(is_good);
    job.out = gathering->out;
    job.out_stride_bytes = gathering->out_stride_bytes;
    eb_bag_pool(ops, &job, 0, job.bag_count);
    return true;
}

/* The memory for a query's answer. */
struct destination {
    uint8_t *out;
    uint64_t stride_bytes;
};

/* Computes the expected answer to a query. Returns false if out of memory. */
static bool compute_query(const struct eb_load_pool *pool, const struct embag_query *query,
    uint64_t version, const struct destination *destination)
{
    uint32_t position = (uint32_t)((size_t)(query - pool->queries) % pool->target->table_count);
    const struct eb_load_table *target = &pool->target->tables[position];
    uint64_t count = query->indices.count;
    struct gathering gathering = {
        .query = query,
        .pool = pool,
        .seed = eb_workload_seed(target->name, version),
        .column_count = target->column_count,
        .rows = calloc(count * target->column_count, sizeof(float)),
        .positions = calloc(count, sizeof(int64_t)),
        .out = destination->out,
        .out_stride_bytes = destination->stride_bytes,
    };
    bool is_done = false;
    if (gathering.rows && gathering.positions) {
        struct eb_table table = {
            .rows = gathering.rows,
            .row_count = count,
            .row_stride_bytes = target->column_count * sizeof(float),
            .row_elements = target->column_count,
            .storage = EB_STORAGE_F32,
            .type = EB_F32,
            .unknown_row = -1,
        };
        gather_rows(&gathering);
        is_done = pool_rows(&gathering, &table);
    }
    free(gathering.rows);
    free(gathering.positions);
    free(gathering.scratch);
    return is_done;
}

static bool compute_answer(
    const struct eb_load_pool *pool, uint64_t position, uint64_t version, uint8_t *out)
{
    const struct embag_query *queries = pool->queries + position * pool->target->table_count;
    bool is_grouped = pool->groups;
    for (uint32_t i = 0; i < pool->target->table_count; i++) {
        struct destination destination = {out, result_row_bytes(pool, i)};
        if (!compute_query(pool, &queries[i], version, &destination)) {
            return false;
        }
        out += is_grouped ? table_row_bytes(pool, i) : destination.stride_bytes * pool->bag_count;
    }
    return true;
}

/* Returns the place for the expected answer in the version that is `ahead` versions after the first
 * kept one. */
static uint8_t *find_verified_kept(
    const struct eb_load_verify *verify, uint64_t ahead, uint64_t position)
{
    const struct eb_load_pool *pool = verify->pool;
    return verify->kept + (ahead * pool->count + position) * pool->answer_bytes;
}

static bool keep_answers(struct eb_load_verify *verify)
{
    const struct eb_load_pool *pool = verify->pool;
    uint64_t kept_count = pool->kept_versions * pool->count;
    verify->kept = malloc(kept_count * pool->answer_bytes);
    verify->later = malloc(pool->count * pool->answer_bytes);
    verify->later_versions = malloc(pool->count * sizeof(uint64_t));
    bool is_done = verify->kept && verify->later && verify->later_versions;
    for (uint64_t i = 0; i < pool->count && is_done; i++) {
        verify->later_versions[i] = verify->version;
    }
    for (uint64_t i = 0; i < kept_count && is_done; i++) {
        uint64_t ahead = i / pool->count;
        is_done = compute_answer(
            pool, i % pool->count, verify->version + ahead, find_verified_kept(verify, 0, i));
    }
    return is_done;
}

bool eb_load_verify_init(struct eb_load_verify *verify, const struct eb_load_pool *pool)
{
    *verify = (struct eb_load_verify){.pool = pool, .version = pool->target->version};
    int rc = pthread_mutex_init(&verify->lock, NULL);
    assert(rc == 0);
    if (!keep_answers(verify)) {
        fprintf(stderr, "embag-load: out of memory for --verify: give a smaller --requests\n");
        eb_load_verify_deinit(verify);
        return false;
    }
    return true;
}

void eb_load_verify_deinit(struct eb_load_verify *verify)
{
    if (verify->pool) {
        (void)pthread_mutex_destroy(&verify->lock);
    }
    free(verify->kept);
    free(verify->later);
    free(verify->later_versions);
    *verify = (struct eb_load_verify){0};
}

/* Compares the values and their shape, [bags, columns]. */
static bool equals_expected(
    const struct eb_load_verify *verify, const struct embag_answer *answer, const uint8_t *expected)
{
    const struct eb_load_pool *pool = verify->pool;
    if (answer->result_count != count_results(pool)) {
        return false;
    }
    for (uint32_t i = 0; i < answer->result_count; i++) {
        const struct embag_result *result = &answer->results[i];
        uint64_t bytes = result_row_bytes(pool, i) * pool->bag_count;
        if (result->query != i || (enum eb_type)result->type != find_output_type(pool) ||
            result->missing != 0 || result->rank == 0 || result->shape[0] != pool->bag_count ||
            result->values_bytes != bytes || memcmp(result->values, expected, bytes) != 0) {
            return false;
        }
        expected += bytes;
    }
    return true;
}

/* Returns the expected answer in a version that is not kept. Returns NULL if there is no memory to
 * compute it. */
static const uint8_t *find_verified_later(
    struct eb_load_verify *verify, uint64_t position, uint64_t version)
{
    uint8_t *later = verify->later + position * verify->pool->answer_bytes;
    if (verify->later_versions[position] != version) {
        verify->later_versions[position] = verify->version;
        if (!compute_answer(verify->pool, position, version, later)) {
            return NULL;
        }
        verify->later_versions[position] = version;
    }
    return later;
}

bool eb_load_verify_answer(
    struct eb_load_verify *verify, uint64_t position, const struct embag_answer *answer)
{
    uint64_t ahead = answer->version - verify->version;
    if (ahead < verify->pool->kept_versions) {
        return equals_expected(verify, answer, find_verified_kept(verify, ahead, position));
    }
    pthread_mutex_lock(&verify->lock);
    const uint8_t *later = find_verified_later(verify, position, answer->version);
    bool is_right = later && equals_expected(verify, answer, later);
    pthread_mutex_unlock(&verify->lock);
    return is_right;
}
