#include "proto/codec.h"
#include "tests/lib/test_group.h"
#include "tests/unit/proto/lender.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t shape[] = {16, 300};

static const struct eb_wire_table tables[] = {
    {.name = "users",
        .rows = UINT64_MAX,
        .shape_count = 2,
        .shape = shape,
        .type = 4,
        .storage = "bf16",
        .keyed = true,
        .resident_bytes = 1 << 30,
        .digest = UINT64_MAX - 1,
        .missing = 4,
        .has_default = true,
        .default_index = INT64_MIN,
        .has_unknown_row = true,
        .placement = "whole",
        .part = 4096},
    {.name = "flags",
        .rows = 0,
        .type = 5,
        .storage = "i8",
        .default_vector = "\x00\x07\xff",
        .default_vector_bytes = 3,
        .unknown_vector = true},
};

static const char *const labels[] = {"stable", "canary"};

static const struct eb_wire_feature features[] = {
    {.name = "clicks",
        .table = "users",
        .reduction = 2,
        .missing = 3,
        .has_default = true,
        .default_index = -1,
        .id_map = "hash_modulo",
        .seed = UINT64_MAX,
        .max_ids = 50},
    {.name = "plain", .table = "flags", .id_map = "none"},
};

static const char *const members[] = {"plain", "clicks", "plain"};

static const struct eb_wire_feature_list groups[] = {{"ranking", 3, members}};

static const struct eb_wire_version versions[] = {
    {.version = 1, .state = EB_WIRE_STATE_FAILED, .error = "users.npy: cut off"},
    {.version = 2,
        .state = EB_WIRE_STATE_SERVING,
        .error = "",
        .label_count = 2,
        .labels = labels,
        .bytes = 4096,
        .digest = UINT64_MAX - 1,
        .loaded_unix_ms = UINT64_C(1) << 41,
        .load_ms = 17,
        .held = true,
        .table_count = 2,
        .tables = tables,
        .feature_count = 2,
        .features = features,
        .group_count = 1,
        .groups = groups},
};

static const struct eb_wire_model models[] = {
    {.name = "dlrm",
        .served_version = 2,
        .commanded_version = 1,
        .config_error = "versions.keep: 0 is not in 1..64",
        .version_count = 2,
        .versions = versions},
    {.name = "empty", .config_error = ""},
};

static const struct eb_wire_model_list list = {2, models};

static const struct eb_wire_limit limits[] = {{"queries_max", 4096}, {"drain_timeout_ms", 0}};

static const struct eb_wire_server server = {.version = "0.1.0",
    .build = "gcc 12, Release",
    .isa = "avx512",
    .limit_count = 2,
    .limits = limits,
    .loops = 2,
    .threads = 8,
    .role = "server",
    .instance = UINT64_C(0x8070605040302010)};

static void assert_has_features(const struct eb_wire_version *version)
{
    assert_int_equal(version->feature_count, 2);
    const struct eb_wire_feature *feature = version->features;
    assert_string_equal(feature->name, "clicks");
    assert_string_equal(feature->table, "users");
    assert_int_equal(feature->reduction, 2);
    assert_int_equal(feature->missing, 3);
    assert_true(feature->has_default);
    assert_true(feature->default_index == -1);
    assert_string_equal(feature->id_map, "hash_modulo");
    assert_true(feature->seed == UINT64_MAX);
    assert_int_equal(feature->max_ids, 50);
    assert_string_equal(feature[1].name, "plain");
    assert_false(feature[1].has_default);
    assert_int_equal(version->group_count, 1);
    assert_string_equal(version->groups->name, "ranking");
    assert_int_equal(version->groups->feature_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(version->groups->features[i], members[i]);
    }
}

static void assert_is_dlrm(const struct eb_wire_model *model)
{
    assert_string_equal(model->name, "dlrm");
    assert_int_equal(model->served_version, 2);
    assert_int_equal(model->commanded_version, 1);
    assert_string_equal(model->config_error, "versions.keep: 0 is not in 1..64");
    assert_int_equal(model->version_count, 2);
    assert_int_equal(model->versions[0].version, 1);
    assert_int_equal(model->versions[0].state, EB_WIRE_STATE_FAILED);
    assert_string_equal(model->versions[0].error, "users.npy: cut off");
    assert_int_equal(model->versions[0].table_count, 0);
    const struct eb_wire_version *version = &model->versions[1];
    assert_int_equal(version->state, EB_WIRE_STATE_SERVING);
    assert_string_equal(version->error, "");
    assert_int_equal(version->bytes, 4096);
    assert_true(version->digest == UINT64_MAX - 1);
    assert_int_equal(version->loaded_unix_ms, UINT64_C(1) << 41);
    assert_int_equal(version->load_ms, 17);
    assert_true(version->held);
    assert_int_equal(model->versions[0].digest, 0);
    assert_false(model->versions[0].held);
    assert_int_equal(model->versions[0].label_count, 0);
    assert_int_equal(version->label_count, 2);
    assert_string_equal(version->labels[0], "stable");
    assert_string_equal(version->labels[1], "canary");
    assert_int_equal(version->table_count, 2);
    const struct eb_wire_table *table = version->tables;
    assert_string_equal(table->name, "users");
    assert_true(table->rows == UINT64_MAX);
    assert_int_equal(table->shape_count, 2);
    assert_memory_equal(table->shape, shape, sizeof shape);
    assert_int_equal(table->type, 4);
    assert_string_equal(table->storage, "bf16");
    assert_true(table->keyed);
    assert_int_equal(table->resident_bytes, 1 << 30);
    assert_true(table->digest == UINT64_MAX - 1);
    assert_int_equal(table->missing, 4);
    assert_true(table->has_default);
    assert_true(table->default_index == INT64_MIN);
    assert_true(table->has_unknown_row);
    assert_int_equal(table->unknown_row, 0);
    assert_int_equal(table->default_vector_bytes, 0);
    assert_false(table->unknown_vector);
    assert_string_equal(table->placement, "whole");
    assert_int_equal(table->part, 4096);
    assert_string_equal(table[1].placement, "");
    assert_int_equal(table[1].part, 0);
    assert_false(table[1].has_default || table[1].has_unknown_row);
    assert_int_equal(table[1].default_vector_bytes, 3);
    assert_memory_equal(table[1].default_vector, "\x00\x07\xff", 3);
    assert_true(table[1].unknown_vector);
    assert_has_features(version);
    assert_int_equal(model->versions[0].feature_count, 0);
    assert_string_equal(table[1].name, "flags");
    assert_int_equal(table[1].shape_count, 0);
    assert_false(table[1].keyed);
}

static void carries_a_list_of_models(void **state)
{
    (void)state;
    size_t size = eb_model_list_bytes(&list);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_model_list_encode(&list, bytes);
    size_t fail_at = 0;
    bool decoded = false;
    while (!decoded) {
        struct lender lender;
        lender_init(&lender, ++fail_at);
        struct eb_arena arena;
        eb_arena_init(&arena, &lender.memory);
        eb_arena_reset(&arena, (size_t)1 << 20);
        struct eb_error error = {.status = EB_STATUS_OK};
        const struct eb_wire_model_list *read = eb_model_list_decode(&arena, bytes, size, &error);
        decoded = read;
        if (decoded) {
            assert_int_equal(read->count, 2);
            assert_is_dlrm(&read->models[0]);
            assert_string_equal(read->models[1].name, "empty");
            assert_int_equal(read->models[1].version_count, 0);
        } else {
            assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        }
        eb_arena_deinit(&arena);
        assert_int_equal(lender.lent_bytes, 0);
    }
    assert_int_equal(fail_at, 2);
    free(bytes);
}

/* Lets the arena run out of memory at every point at which it can. */
static void refuses_a_list_that_is_cut_off_or_outgrows_its_arena(void **state)
{
    (void)state;
    size_t size = eb_model_list_bytes(&list);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_model_list_encode(&list, bytes);
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    size_t cap = 0;
    eb_arena_reset(&arena, cap);
    struct eb_error error;
    while (!eb_model_list_decode(&arena, bytes, size, &error)) {
        assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        cap += 16;
        eb_arena_reset(&arena, cap);
    }
    assert_in_range(cap, 512, 8192);
    assert_null(eb_model_list_decode(&arena, bytes, size - 1, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    eb_arena_deinit(&arena);
    free(bytes);
}

static void encodes_a_model_that_protobuf_reads(void **state)
{
    (void)state;
    size_t size = eb_model_bytes(models);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_model_encode(models, bytes);
    Embag__V1__Model *unpacked = embag__v1__model__unpack(NULL, size, bytes);
    assert_non_null(unpacked);
    assert_int_equal(embag__v1__model__get_packed_size(unpacked), size);
    assert_int_equal(unpacked->versions[1]->state, EMBAG__V1__MODEL_VERSION__STATE__STATE_SERVING);
    assert_true(unpacked->versions[1]->digest == UINT64_MAX - 1);
    assert_int_equal(unpacked->versions[1]->tables[0]->type, EMBAG__V1__DATA_TYPE__DATA_TYPE_BF16);
    embag__v1__model__free_unpacked(unpacked, NULL);
    free(bytes);
}

static void reads_a_server(void **state)
{
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    size_t size = eb_server_bytes(&server);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_server_encode(&server, bytes);
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, UINT64_C(1) << 20);
    const struct eb_wire_server *read = eb_server_decode(&arena, bytes, size, &error);
    assert_non_null(read);
    assert_string_equal(read->version, server.version);
    assert_string_equal(read->build, server.build);
    assert_string_equal(read->isa, server.isa);
    assert_int_equal(read->loops, server.loops);
    assert_int_equal(read->threads, server.threads);
    assert_string_equal(read->role, server.role);
    assert_true(read->instance == server.instance);
    assert_int_equal(read->limit_count, server.limit_count);
    for (size_t i = 0; i < server.limit_count; i++) {
        assert_string_equal(read->limits[i].name, server.limits[i].name);
        assert_true(read->limits[i].value == server.limits[i].value);
    }
    assert_null(eb_server_decode(&arena, bytes, size - 1, &error));
    /* An old server tells nothing. */
    read = eb_server_decode(&arena, bytes, 0, &error);
    assert_non_null(read);
    assert_string_equal(read->role, "");
    assert_true(read->instance == 0);
    assert_int_equal(read->limit_count, 0);
    eb_arena_deinit(&arena);
    free(bytes);
}

static void encodes_the_server_as_protobuf_reads_it(void **state)
{
    (void)state;
    size_t size = eb_server_bytes(&server);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_server_encode(&server, bytes);
    Embag__V1__Server *read = embag__v1__server__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(embag__v1__server__get_packed_size(read), size);
    assert_string_equal(read->version, "0.1.0");
    assert_string_equal(read->build, "gcc 12, Release");
    assert_string_equal(read->isa, "avx512");
    assert_int_equal(read->loops, 2);
    assert_int_equal(read->threads, 8);
    assert_string_equal(read->role, "server");
    assert_true(read->instance == server.instance);
    assert_int_equal(read->n_limits, 2);
    assert_string_equal(read->limits[0]->name, "queries_max");
    assert_int_equal(read->limits[0]->value, 4096);
    assert_string_equal(read->limits[1]->name, "drain_timeout_ms");
    assert_int_equal(read->limits[1]->value, 0);
    embag__v1__server__free_unpacked(read, NULL);
    free(bytes);
}

EB_TEST_GROUP(codec_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_a_list_of_models),
        cmocka_unit_test(refuses_a_list_that_is_cut_off_or_outgrows_its_arena),
        cmocka_unit_test(encodes_a_model_that_protobuf_reads),
        cmocka_unit_test(encodes_the_server_as_protobuf_reads_it),
        cmocka_unit_test(reads_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
