#include "tests/unit/rpc/plan_fixture.h"

#include "kernels/bag_stream.h"
#include "proto/grpc_text.h"
#include "server/formats/npy.h"
#include "server/rpc/reply.h"
#include "server/tables/set_load.h"
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

int plan_fixture_load(void **state)
{
    (void)state;
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .config = &config};
    static const uint16_t ones[] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    static const int32_t whole[] = {0, 1, 1, 2};
    struct eb_scratch scratch;
    struct eb_failure failure;
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
            (const uint8_t *)description, strlen(description), 255, &config, &failure) ||
        !eb_set_load(scratch.root, &options, NULL, &version.tables, &failure) ||
        !eb_feature_set_init(&version.features, &version.tables, &config, &failure)) {
        fail_msg("%s", failure.text);
    }
    eb_scratch_deinit(&scratch);
    return 0;
}

const struct eb_model_version *plan_fixture_version(void)
{
    return &version;
}

int plan_fixture_unload(void **state)
{
    (void)state;
    eb_feature_set_deinit(&version.features);
    eb_table_set_deinit(&version.tables);
    eb_model_config_deinit(&config);
    return 0;
}

void plan_fixture_set_indices(struct eb_wire_query *query, const int32_t *indices, size_t count)
{
    query->indices = (struct eb_wire_array){
        .data = indices, .bytes = count * sizeof *indices, .width = 4, .field = "indices_i32"};
}

void plan_fixture_set_offsets(struct eb_wire_query *query, const int32_t *offsets, size_t count)
{
    query->layout = EB_LAYOUT_OFFSETS;
    query->offsets = (struct eb_wire_array){
        .data = offsets, .bytes = count * sizeof *offsets, .width = 4, .field = "offsets_i32"};
}

void plan_fixture_init(struct plan_fixture *fixture, size_t count)
{
    static const int32_t indices[] = {1, 2, 3};
    static const int32_t offsets[] = {0, 2};
    *fixture = (struct plan_fixture){
        .limits =
            {
#define X(name, effect, fallback, min, max, what) .name = (fallback),
                EB_LIMIT_LIST(X)
#undef X
            },
        .request = {.request_id = 42, .model = "", .query_count = count},
        .arena_cap_bytes = ARENA_BYTES,
    };
    assert_true(count <= PLAN_FIXTURE_QUERIES_MAX);
    for (size_t i = 0; i < count; i++) {
        fixture->queries[i].table = "rows";
        plan_fixture_set_indices(&fixture->queries[i], indices, 3);
        plan_fixture_set_offsets(&fixture->queries[i], offsets, 2);
    }
    fixture->request.queries = fixture->queries;
    eb_buffer_pool_init(&fixture->pool, POOL_BYTES);
    fixture->memory = eb_buffer_pool_memory(&fixture->pool);
    eb_arena_init(&fixture->answer_arena, &eb_memory_heap);
}

/* Releases what an earlier run took. */
static void reset(struct plan_fixture *fixture)
{
    if (fixture->answer) {
        eb_outgoing_drop(fixture->answer);
        fixture->answer = NULL;
    }
    eb_plan_deinit(&fixture->plan);
    fixture->response = NULL;
    fixture->error = (struct eb_error){.status = EB_STATUS_OK};
    eb_arena_deinit(&fixture->arena);
    assert_int_equal(fixture->pool.taken_bytes, 0);
}

void plan_fixture_deinit(struct plan_fixture *fixture)
{
    reset(fixture);
    eb_feature_memo_deinit(&fixture->memo);
    eb_arena_deinit(&fixture->answer_arena);
    eb_buffer_pool_deinit(&fixture->pool);
}

bool plan_fixture_check(struct plan_fixture *fixture)
{
    reset(fixture);
    eb_arena_init(&fixture->arena, &fixture->memory);
    eb_arena_reset(&fixture->arena, fixture->arena_cap_bytes);
    fixture->plan = (struct eb_plan){
        .request = &fixture->request,
        .version = &version,
        .limits = &fixture->limits,
        .ops = eb_bag_ops_find(NULL),
        .arena = &fixture->arena,
        .pool = &fixture->pool,
        .memo = &fixture->memo,
    };
    return eb_plan_check(&fixture->plan, &fixture->error);
}

bool plan_fixture_run(struct plan_fixture *fixture)
{
    if (!plan_fixture_check(fixture)) {
        return false;
    }
    fixture->answer =
        eb_plan_answer(&fixture->plan, 0, fixture->plan.result_count, &fixture->error);
    if (!fixture->answer) {
        return false;
    }
    for (size_t i = 0; i < fixture->plan.counts.query_count; i++) {
        const struct eb_bag_job *job = &fixture->plan.jobs[i];
        eb_bag_pool(eb_bag_ops_find("ref"), job, 0, job->bag_count);
    }
    eb_arena_reset(&fixture->answer_arena, ARENA_BYTES);
    fixture->response =
        eb_lookup_response_decode(&fixture->answer_arena, eb_reply_body(fixture->answer),
            fixture->answer->size - EB_GRPC_PREFIX_BYTES, &fixture->error);
    assert_non_null(fixture->response);
    return true;
}

void plan_fixture_expect_refused(
    struct plan_fixture *fixture, enum eb_status status, const char *part)
{
    assert_false(plan_fixture_check(fixture));
    assert_string_equal(eb_status_name((int)fixture->error.status), eb_status_name((int)status));
    eb_scratch_expect(fixture->error.text, part);
}

void plan_fixture_expect_rows(const struct plan_fixture *fixture, size_t number, uint64_t bags,
    const float *values, size_t count)
{
    const struct eb_wire_result *result = &fixture->response->results[number];
    assert_true(number < fixture->response->result_count);
    assert_int_equal(result->query, number);
    assert_int_equal(result->type, EB_F32);
    assert_int_equal(result->shape_count, 2);
    assert_int_equal(result->shape[0], bags);
    assert_int_equal(result->shape[0] * result->shape[1], count);
    assert_int_equal(result->values_bytes, count * sizeof *values);
    assert_memory_equal(result->values, values, count * sizeof *values);
}
