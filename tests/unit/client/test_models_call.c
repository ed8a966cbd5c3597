#include "client/models_call.h"

#include "proto/codec.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t dims[EMBAG_RANK_MAX + 1] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* Encodes a model with a failed version and a served one, whose table "deep" has `rank` trailing
 * dims. Decodes all but the last `cut_bytes` bytes. */
static struct eb_models_list *read_list_back(size_t rank, size_t cut_bytes, struct eb_error *error)
{
    const struct eb_wire_table tables[] = {
        {.name = "flat",
            .rows = 7,
            .type = EMBAG_I8,
            .storage = "i8",
            .resident_bytes = 7,
            .default_vector = "\xfe",
            .default_vector_bytes = 1,
            .unknown_vector = true,
            .placement = "whole",
            .part = 3},
        {.name = "deep",
            .rows = UINT64_MAX,
            .shape_count = rank,
            .shape = dims,
            .type = EMBAG_BF16,
            .storage = "bf16"},
    };
    static const char *const members[] = {"f"};
    static const uint32_t owned[] = {0, 2, 3};
    static const struct eb_wire_feature_list groups[] = {{"g", 1, members}};
    static const struct eb_wire_feature features[] = {{.name = "f",
        .table = "flat",
        .reduction = EMBAG_MEAN,
        .missing = EMBAG_MISSING_ZERO,
        .has_default = true,
        .default_index = -1,
        .id_map = "modulo",
        .seed = 9,
        .max_ids = 3}};
    const struct eb_wire_version versions[] = {
        {.version = 9, .state = EB_WIRE_STATE_FAILED, .error = "deep.npy: cut off"},
        {.version = 8,
            .state = EB_WIRE_STATE_SERVING,
            .error = "",
            .bytes = 8192,
            .digest = 77,
            .loaded_unix_ms = 1000,
            .load_ms = 3,
            .held = true,
            .parts = 4,
            .owned_part_count = 3,
            .owned_parts = owned,
            .table_count = 2,
            .tables = tables,
            .feature_count = 1,
            .features = features,
            .group_count = 1,
            .groups = groups},
    };
    const struct eb_wire_model models[] = {{.name = "m",
        .served_version = 8,
        .commanded_version = 9,
        .config_error = "broken",
        .version_count = 2,
        .versions = versions}};
    struct eb_wire_model_list wire = {.count = 1, .models = models};
    size_t size = eb_model_list_bytes(&wire);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_model_list_encode(&wire, bytes);
    struct eb_models_list *list = eb_models_call_decode(bytes, size - cut_bytes, error);
    memset(bytes, 0xff, size); /* The list has copied everything it needs. */
    free(bytes);
    return list;
}

static void describes_versions_and_tables(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_models_list *list = read_list_back(EMBAG_RANK_MAX, 0, &error);
    assert_non_null(list);
    assert_int_equal(list->list.count, 1);
    const struct embag_model *model = list->list.models;
    assert_string_equal(model->name, "m");
    assert_int_equal(model->served_version, 8);
    assert_int_equal(model->version_count, 2);
    assert_int_equal(model->versions[0].version, 9);
    assert_false(model->versions[0].serving);
    assert_string_equal(model->versions[0].error, "deep.npy: cut off");
    assert_int_equal(model->versions[0].table_count, 0);
    assert_int_equal(model->versions[0].state, EMBAG_STATE_FAILED);
    assert_true(model->versions[1].serving);
    assert_int_equal(model->versions[1].state, EMBAG_STATE_SERVING);
    assert_int_equal(model->versions[1].bytes, 8192);
    assert_int_equal(model->versions[1].digest, 77);
    assert_int_equal(model->versions[1].loaded_unix_ms, 1000);
    assert_int_equal(model->versions[1].load_ms, 3);
    assert_true(model->versions[1].held);
    assert_int_equal(model->commanded_version, 9);
    assert_string_equal(model->config_error, "broken");
    assert_int_equal(model->versions[1].table_count, 2);
    assert_int_equal(model->versions[0].parts, 0);
    assert_int_equal(model->versions[0].ready_part_count, 0);
    assert_int_equal(model->versions[1].parts, 4);
    assert_int_equal(model->versions[1].ready_part_count, 3);
    assert_int_equal(model->versions[1].ready_parts[0], 0);
    assert_int_equal(model->versions[1].ready_parts[2], 3);
    const struct embag_table *tables = model->versions[1].tables;
    assert_string_equal(tables[0].placement, "whole");
    assert_int_equal(tables[0].part, 2);
    assert_string_equal(tables[1].placement, "");
    assert_int_equal(tables[1].part, -1);
    assert_string_equal(tables[0].name, "flat");
    assert_int_equal(tables[0].rank, 0);
    assert_int_equal(tables[0].resident_bytes, 7);
    assert_int_equal(tables[0].default_vector_bytes, 1);
    assert_memory_equal(tables[0].default_vector, "\xfe", 1);
    assert_true(tables[0].unknown_vector);
    assert_int_equal(tables[1].default_vector_bytes, 0);
    assert_false(tables[1].unknown_vector);
    assert_true(tables[1].rows == UINT64_MAX);
    assert_int_equal(tables[1].rank, EMBAG_RANK_MAX);
    assert_memory_equal(tables[1].shape, dims, sizeof tables[1].shape);
    assert_int_equal(tables[1].type, EMBAG_BF16);
    assert_string_equal(tables[1].storage, "bf16");
    eb_models_call_free(list);
}

static void describes_features_and_groups(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_models_list *list = read_list_back(1, 0, &error);
    assert_non_null(list);
    const struct embag_model_version *version = &list->list.models->versions[1];
    assert_int_equal(list->list.models->versions[0].feature_count, 0);
    assert_int_equal(version->feature_count, 1);
    assert_string_equal(version->features->name, "f");
    assert_string_equal(version->features->table, "flat");
    assert_int_equal(version->features->reduction, EMBAG_MEAN);
    assert_int_equal(version->features->missing, EMBAG_MISSING_ZERO);
    assert_true(version->features->has_default);
    assert_int_equal(version->features->default_index, -1);
    assert_string_equal(version->features->id_map, "modulo");
    assert_int_equal(version->features->seed, 9);
    assert_int_equal(version->features->max_ids, 3);
    assert_int_equal(version->group_count, 1);
    assert_string_equal(version->groups->name, "g");
    assert_int_equal(version->groups->feature_count, 1);
    assert_string_equal(version->groups->features[0], "f");
    eb_models_call_free(list);
}

static void takes_a_server_without_models(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_models_list *list = eb_models_call_decode((const uint8_t *)"", 0, &error);
    assert_non_null(list);
    assert_int_equal(list->list.count, 0);
    eb_models_call_free(list);
    eb_models_call_free(NULL);
}

static void refuses_a_shape_of_too_many_dims(void **state)
{
    (void)state;
    struct eb_error error;
    assert_null(read_list_back(EMBAG_RANK_MAX + 1, 0, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    assert_non_null(strstr(error.text, "\"deep\" has more than 9 dims"));
}

static void refuses_a_list_that_is_cut_off(void **state)
{
    (void)state;
    struct eb_error error;
    assert_null(read_list_back(1, 1, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

EB_TEST_GROUP(models_call)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes_versions_and_tables),
        cmocka_unit_test(describes_features_and_groups),
        cmocka_unit_test(takes_a_server_without_models),
        cmocka_unit_test(refuses_a_shape_of_too_many_dims),
        cmocka_unit_test(refuses_a_list_that_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
