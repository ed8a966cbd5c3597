#include "tests/unit/rpc/plan_trial.h"

#include "kernels/bag_stream.h"
#include "proto/grpc_text.h"
#include "server/formats/npy.h"
#include "server/rpc/reply.h"
#include "tests/lib/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL_BYTES (UINT64_C(1) << 28)
#define ARENA_BYTES (UINT64_C(1) << 20)

static const char description[] =
    "features:\n"
    "- {name: plain, table: rows}\n"
    "- {name: highest, table: rows, reduction: max, missing: skip, default_index: 3, max_ids: 2}\n"
    "- {name: around, table: wide, id_map: modulo}\n"
    "groups:\n"
    "- {name: pair, features: [highest, around]}\n";

static struct eb_model_config config;
static struct eb_model_version version = {.model = "trial", .version = 7};

static void write_table(
    struct eb_scratch *scratch, const char *name, struct eb_tensor tensor, const void *data)
{
    uint8_t bytes[4096];
    char file[64];
    uint64_t head_bytes = eb_npy_header_write(&tensor, bytes, sizeof bytes);
    uint64_t data_bytes = eb_storage_bytes(tensor.storage);
    for (uint32_t i = 0; i < tensor.rank; i++) {
        data_bytes *= tensor.dims[i];
    }
    assert_in_range(head_bytes, 1, sizeof bytes - data_bytes);
    memcpy(bytes + head_bytes, data, data_bytes);
    snprintf(file, sizeof file, "%s.npy", name);
    eb_scratch_write(scratch, file, bytes, head_bytes + data_bytes);
}

static void write_f32(
    struct eb_scratch *scratch, const char *name, struct eb_tensor tensor, float step)
{
    float values[64];
    uint64_t row_elements = 1;
    size_t count = 0;
    for (uint32_t i = 1; i < tensor.rank; i++) {
        row_elements *= tensor.dims[i];
    }
    for (uint64_t row = 0; row < tensor.dims[0]; row++) {
        for (uint64_t c = 0; c < row_elements; c++) {
            values[count++] = step * (float)row + (float)c;
        }
    }
    tensor.storage = EB_STORAGE_F32;
    write_table(scratch, name, tensor, values);
}

int plan_trial_load(void **state)
{
    (void)state;
    const struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    static const uint16_t ones[] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    static const int32_t whole[] = {0, 1, 1, 2};
    struct eb_scratch scratch;
    struct eb_file_fault fault;
    eb_scratch_init(&scratch);
    write_f32(&scratch, "rows", (struct eb_tensor){.rank = 2, .dims = {4, 2}}, 10);
    write_f32(&scratch, "wide", (struct eb_tensor){.rank = 2, .dims = {3, 3}}, 100);
    write_f32(&scratch, "cube", (struct eb_tensor){.rank = 3, .dims = {2, 2, 3}}, 10);
    write_f32(&scratch, "line", (struct eb_tensor){.rank = 1, .dims = {5}}, 1);
    write_f32(&scratch, "bare", (struct eb_tensor){.rank = 2, .dims = {0, 2}}, 1);
    write_table(&scratch, "half",
        (struct eb_tensor){.storage = EB_STORAGE_F16, .rank = 2, .dims = {2, 2}}, ones);
    write_table(&scratch, "whole",
        (struct eb_tensor){.storage = EB_STORAGE_I32, .rank = 2, .dims = {2, 2}}, whole);
    if (!eb_model_config_parse(
            (const uint8_t *)description, strlen(description), 255, &config, &fault) ||
        !eb_table_set_load(scratch.root, &options, NULL, &version.tables, &fault) ||
        !eb_feature_set_init(&version.features, &version.tables, &config, &fault)) {
        fail_msg("%s", fault.text);
    }
    eb_scratch_deinit(&scratch);
    return 0;
}

const struct eb_model_version *plan_trial_version(void)
{
    return &version;
}

int plan_trial_unload(void **state)
{
    (void)state;
    eb_feature_set_deinit(&version.features);
    eb_table_set_deinit(&version.tables);
    eb_model_config_deinit(&config);
    return 0;
}

void plan_trial_set_indices(struct eb_wire_query *query, const int32_t *indices, size_t count)
{
    query->indices = (struct eb_wire_array){
        .data = indices, .bytes = count * sizeof *indices, .width = 4, .field = "indices_i32"};
}

void plan_trial_set_offsets(struct eb_wire_query *query, const int32_t *offsets, size_t count)
{
    query->layout = EB_LAYOUT_OFFSETS;
    query->offsets = (struct eb_wire_array){
        .data = offsets, .bytes = count * sizeof *offsets, .width = 4, .field = "offsets_i32"};
}

void plan_trial_init(struct plan_trial *trial, size_t count)
{
    static const int32_t indices[] = {1, 2, 3};
    static const int32_t offsets[] = {0, 2};
    *trial = (struct plan_trial){
        .limits =
            {
#define X(name, fallback, min, max, what) .name = (fallback),
                EB_LIMIT_LIST(X)
#undef X
            },
        .request = {.request_id = 42, .model = "", .query_count = count},
        .arena_cap_bytes = ARENA_BYTES,
    };
    assert_true(count <= PLAN_TRIAL_QUERIES_MAX);
    for (size_t i = 0; i < count; i++) {
        trial->queries[i].table = "rows";
        plan_trial_set_indices(&trial->queries[i], indices, 3);
        plan_trial_set_offsets(&trial->queries[i], offsets, 2);
    }
    trial->request.queries = trial->queries;
    eb_buffer_pool_init(&trial->pool, POOL_BYTES);
    trial->memory = eb_buffer_pool_memory(&trial->pool);
    eb_arena_init(&trial->answer_arena, &eb_memory_heap);
}

/* Gives back what an earlier run has taken. */
static void reset(struct plan_trial *trial)
{
    if (trial->answer) {
        eb_outgoing_drop(trial->answer);
        trial->answer = NULL;
    }
    eb_plan_deinit(&trial->plan);
    trial->response = NULL;
    trial->error = (struct eb_error){.status = EB_STATUS_OK};
    eb_arena_deinit(&trial->arena);
    assert_int_equal(trial->pool.taken_bytes, 0);
}

void plan_trial_deinit(struct plan_trial *trial)
{
    reset(trial);
    eb_feature_memo_deinit(&trial->memo);
    eb_arena_deinit(&trial->answer_arena);
    eb_buffer_pool_deinit(&trial->pool);
}

bool plan_trial_check(struct plan_trial *trial)
{
    reset(trial);
    eb_arena_init(&trial->arena, &trial->memory);
    eb_arena_reset(&trial->arena, trial->arena_cap_bytes);
    trial->plan = (struct eb_plan){
        .request = &trial->request,
        .version = &version,
        .limits = &trial->limits,
        .ops = eb_bag_ops_find(NULL),
        .arena = &trial->arena,
        .pool = &trial->pool,
        .memo = &trial->memo,
    };
    return eb_plan_check(&trial->plan, &trial->error);
}

bool plan_trial_run(struct plan_trial *trial)
{
    if (!plan_trial_check(trial)) {
        return false;
    }
    trial->answer = eb_plan_answer(&trial->plan, 0, trial->plan.result_count, &trial->error);
    if (!trial->answer) {
        return false;
    }
    for (size_t i = 0; i < trial->plan.counts.query_count; i++) {
        const struct eb_bag_job *job = &trial->plan.jobs[i];
        eb_bag_pool(eb_bag_ops_find("ref"), job, 0, job->bag_count);
    }
    eb_arena_reset(&trial->answer_arena, ARENA_BYTES);
    trial->response = eb_lookup_response_decode(&trial->answer_arena, eb_reply_body(trial->answer),
        trial->answer->size - EB_GRPC_PREFIX_BYTES, &trial->error);
    assert_non_null(trial->response);
    return true;
}

void plan_trial_expect_refused(struct plan_trial *trial, enum eb_status status, const char *part)
{
    assert_false(plan_trial_check(trial));
    assert_string_equal(eb_status_name((int)trial->error.status), eb_status_name((int)status));
    eb_scratch_expect(trial->error.text, part);
}

void plan_trial_expect_rows(
    const struct plan_trial *trial, size_t number, uint64_t bags, const float *values, size_t count)
{
    const struct eb_wire_result *result = &trial->response->results[number];
    assert_true(number < trial->response->result_count);
    assert_int_equal(result->query, number);
    assert_int_equal(result->type, EB_F32);
    assert_int_equal(result->shape_count, 2);
    assert_int_equal(result->shape[0], bags);
    assert_int_equal(result->shape[0] * result->shape[1], count);
    assert_int_equal(result->values_bytes, count * sizeof *values);
    assert_memory_equal(result->values, values, count * sizeof *values);
}
