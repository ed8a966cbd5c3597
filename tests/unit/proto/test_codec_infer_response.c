#include "proto/codec_infer.h"

#include "tests/lib/test_group.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint8_t *take_bytes(size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    memset(bytes, 0x5a, size + 1);
    return bytes;
}

/* Checks that nothing was written past the end, and frees the bytes. */
static void give_bytes(uint8_t *bytes, size_t size)
{
    assert_int_equal(bytes[size], 0x5a);
    free(bytes);
}

static void writes_answers_that_protobuf_reads(void **state)
{
    (void)state;
    static const uint64_t shape[] = {3, 300};
    static const uint64_t line[] = {0};
    struct eb_infer_output outputs[] = {{.table = "a.b"}, {.table = ""}, {.table = "c"}};
    struct eb_wire_result results[] = {
        {.type = 3, .shape_count = 2, .shape = shape, .missing = 300, .values_bytes = 1800},
        {.type = 12, .shape_count = 1, .shape = line, .values_bytes = 0},
        {.type = 1, .shape_count = 1, .shape = &shape[0], .values_bytes = 12},
    };
    struct eb_infer_request request = {.id = "an id", .output_count = 3, .outputs = outputs};
    struct eb_wire_response response = {
        .model = "m", .version = UINT64_MAX, .result_count = 3, .results = results};
    uint8_t *values_at[3];
    size_t size = eb_infer_response_bytes(&request, &response);
    uint8_t *bytes = take_bytes(size);
    eb_infer_response_encode(&request, &response, bytes, values_at);
    memset(values_at[0], 1, 1800);
    memset(values_at[2], 3, 12);
    Inference__ModelInferResponse *read =
        inference__model_infer_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_string_equal(read->model_name, "m");
    assert_string_equal(read->model_version, "18446744073709551615");
    assert_string_equal(read->id, "an id");
    assert_int_equal(read->n_parameters, 0);
    assert_int_equal(read->n_outputs, 3);
    assert_string_equal(read->outputs[0]->name, "a.b.pooled");
    assert_string_equal(read->outputs[0]->datatype, "FP16");
    assert_int_equal(read->outputs[0]->n_shape, 2);
    assert_int_equal(read->outputs[0]->shape[1], 300);
    assert_int_equal(read->outputs[0]->n_parameters, 1);
    assert_string_equal(read->outputs[0]->parameters[0]->key, "missing");
    assert_int_equal(read->outputs[0]->parameters[0]->value->int64_param, 300);
    assert_string_equal(read->outputs[1]->name, "pooled");
    assert_string_equal(read->outputs[1]->datatype, "UINT64");
    assert_int_equal(read->outputs[1]->n_shape, 1);
    assert_int_equal(read->outputs[1]->n_parameters, 0);
    /* Every output has raw contents, if only empty ones, so that each is found by its position. */
    assert_int_equal(read->n_raw_output_contents, 3);
    assert_int_equal(read->raw_output_contents[0].len, 1800);
    assert_int_equal(read->raw_output_contents[0].data[1799], 1);
    assert_int_equal(read->raw_output_contents[1].len, 0);
    assert_int_equal(read->raw_output_contents[2].len, 12);
    assert_int_equal(read->raw_output_contents[2].data[0], 3);
    inference__model_infer_response__free_unpacked(read, NULL);
    give_bytes(bytes, size);
}

static const uint64_t dims[] = {4, 500};

static const struct eb_infer_feature features[] = {
    {.name = "a", .type = 4, .weights_type = 1, .dim_count = 2, .dims = dims},
    {.name = "b", .type = 11, .weights_type = 11},
};

static const uint64_t versions[] = {12, 7};

static const struct eb_infer_model model = {
    .name = "m",
    .platform = "embag",
    .version_count = 2,
    .versions = versions,
    .feature_count = 2,
    .features = features,
};

static void expect_tensor(const Inference__ModelMetadataResponse__TensorMetadata *tensor,
    const char *name, const char *datatype, size_t rank)
{
    assert_string_equal(tensor->name, name);
    assert_string_equal(tensor->datatype, datatype);
    assert_int_equal(tensor->n_shape, rank);
    assert_int_equal(tensor->shape[0], -1);
}

static void writes_metadata_that_protobuf_reads(void **state)
{
    (void)state;
    size_t size = eb_infer_metadata_bytes(&model);
    uint8_t *bytes = take_bytes(size);
    eb_infer_metadata_encode(&model, bytes);
    Inference__ModelMetadataResponse *read =
        inference__model_metadata_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_string_equal(read->name, "m");
    assert_string_equal(read->platform, "embag");
    assert_int_equal(read->n_versions, 2);
    assert_string_equal(read->versions[0], "12");
    assert_string_equal(read->versions[1], "7");
    assert_int_equal(read->n_inputs, 6);
    expect_tensor(read->inputs[0], "a.indices", "INT64", 1);
    expect_tensor(read->inputs[1], "a.offsets", "INT64", 1);
    expect_tensor(read->inputs[2], "a.per_sample_weights", "FP32", 1);
    expect_tensor(read->inputs[5], "b.per_sample_weights", "INT64", 1);
    assert_int_equal(read->n_outputs, 2);
    expect_tensor(read->outputs[0], "a.pooled", "BF16", 3);
    assert_int_equal(read->outputs[0]->shape[1], 4);
    assert_int_equal(read->outputs[0]->shape[2], 500);
    expect_tensor(read->outputs[1], "b.pooled", "INT64", 1);
    inference__model_metadata_response__free_unpacked(read, NULL);
    give_bytes(bytes, size);
}

static void writes_a_configuration_that_protobuf_reads(void **state)
{
    (void)state;
    size_t size = eb_infer_config_bytes(&model);
    uint8_t *bytes = take_bytes(size);
    eb_infer_config_encode(&model, bytes);
    Inference__ModelConfigResponse *read =
        inference__model_config_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_non_null(read->config);
    assert_string_equal(read->config->name, "m");
    assert_string_equal(read->config->platform, "embag");
    assert_string_equal(read->config->backend, "embag");
    assert_int_equal(read->config->max_batch_size, 0);
    assert_int_equal(read->config->n_input, 6);
    assert_string_equal(read->config->input[3]->name, "b.indices");
    assert_int_equal(read->config->input[3]->data_type, INFERENCE__DATA_TYPE__TYPE_INT64);
    assert_int_equal(read->config->input[3]->n_dims, 1);
    assert_int_equal(read->config->input[3]->dims[0], -1);
    assert_true(read->config->input[3]->optional);
    assert_int_equal(read->config->n_output, 2);
    assert_string_equal(read->config->output[0]->name, "a.pooled");
    assert_int_equal(read->config->output[0]->data_type, INFERENCE__DATA_TYPE__TYPE_BF16);
    assert_int_equal(read->config->output[0]->n_dims, 3);
    assert_int_equal(read->config->output[0]->dims[2], 500);
    inference__model_config_response__free_unpacked(read, NULL);
    give_bytes(bytes, size);
}

static void writes_what_a_server_says_of_itself(void **state)
{
    (void)state;
    static const char *const extensions[] = {"one", "two"};
    struct eb_infer_server server = {
        .name = "n", .version = "v", .extension_count = 2, .extensions = extensions};
    size_t size = eb_infer_server_bytes(&server);
    uint8_t *bytes = take_bytes(size);
    eb_infer_server_encode(&server, bytes);
    Inference__ServerMetadataResponse *read =
        inference__server_metadata_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_string_equal(read->name, "n");
    assert_string_equal(read->version, "v");
    assert_int_equal(read->n_extensions, 2);
    assert_string_equal(read->extensions[1], "two");
    inference__server_metadata_response__free_unpacked(read, NULL);
    give_bytes(bytes, size);
    for (int flag = 0; flag <= 1; flag++) {
        uint8_t flag_bytes[2];
        eb_infer_flag_encode(flag, flag_bytes);
        Inference__ModelReadyResponse *ready =
            inference__model_ready_response__unpack(NULL, eb_infer_flag_bytes(flag), flag_bytes);
        assert_non_null(ready);
        assert_int_equal(ready->ready, flag);
        inference__model_ready_response__free_unpacked(ready, NULL);
    }
}

static void reads_versions_that_are_numbers(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "00", "-1", "+1", " 1", "1 ", "1.0", "x",
        "18446744073709551616", "99999999999999999999"};
    struct eb_error error;
    uint64_t version;
    assert_true(eb_infer_version_read("", &version, &error));
    assert_int_equal(version, 0);
    assert_true(eb_infer_version_read("007", &version, &error));
    assert_int_equal(version, 7);
    assert_true(eb_infer_version_read("18446744073709551615", &version, &error));
    assert_true(version == UINT64_MAX);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(eb_infer_version_read(wrong[i], &version, &error));
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
    }
}

EB_TEST_GROUP(codec_infer_response)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_answers_that_protobuf_reads),
        cmocka_unit_test(writes_metadata_that_protobuf_reads),
        cmocka_unit_test(writes_a_configuration_that_protobuf_reads),
        cmocka_unit_test(writes_what_a_server_says_of_itself),
        cmocka_unit_test(reads_versions_that_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
