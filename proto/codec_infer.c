/* The messages of the Open Inference Protocol, except ModelInferRequest. */
#include "proto/codec_infer.h"

#include "proto/field.h"
#include "proto/infer_type.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.fields.h"
#include "inference/open_inference.pb-c.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ModelInferResponse ---- */

/* The parameter of an output that counts its missing indices. */
#define MISSING_PARAMETER "missing"

/* Writes an entry of a map: a key, and a message with one number. */
static void write_missing_entry(struct eb_field_writer *writer, uint64_t missing)
{
    eb_field_put_text(writer, EB_FIELD_INFER_OUTPUT_TENSOR_PARAMETERS_ENTRY_KEY, MISSING_PARAMETER);
    eb_field_put_length(writer, EB_FIELD_INFER_OUTPUT_TENSOR_PARAMETERS_ENTRY_VALUE,
        1 + eb_field_varint_bytes(missing));
    eb_field_put_present(writer, EB_FIELD_INFER_PARAMETER_INT64_PARAM, missing);
}

static void write_missing(struct eb_field_writer *writer, uint64_t missing)
{
    struct eb_field_writer counter = {.out = NULL};
    write_missing_entry(&counter, missing);
    eb_field_put_length(writer, EB_FIELD_INFER_OUTPUT_TENSOR_PARAMETERS, counter.bytes);
    write_missing_entry(writer, missing);
}

static void write_output(struct eb_field_writer *writer, const struct eb_infer_output *output,
    const struct eb_wire_result *result)
{
    static const char suffix[] = "." EB_INFER_OUTPUT;
    const char *end = output->table[0] == '\0' ? suffix + 1 : suffix;
    size_t table_bytes = strlen(output->table);
    eb_field_put_length(writer, EB_FIELD_INFER_OUTPUT_TENSOR_NAME, table_bytes + strlen(end));
    eb_field_put_content(writer, output->table, table_bytes);
    eb_field_put_content(writer, end, strlen(end));
    eb_field_put_text(
        writer, EB_FIELD_INFER_OUTPUT_TENSOR_DATATYPE, eb_infer_type_name(result->type));
    eb_field_put_packed(
        writer, EB_FIELD_INFER_OUTPUT_TENSOR_SHAPE, result->shape, result->shape_count);
    if (result->missing > 0) {
        write_missing(writer, result->missing);
    }
}

/* Counts the bytes of an output tensor once, and keeps the number in result->head_bytes. */
static size_t count_output(const struct eb_infer_output *output, struct eb_wire_result *result)
{
    struct eb_field_writer counter = {.out = NULL};
    assert(!result->like);
    write_output(&counter, output, result);
    result->head_bytes = counter.bytes;
    return counter.bytes;
}

/* Writes the response, or counts its bytes if values_at is NULL. */
static void write_infer_response(struct eb_field_writer *writer,
    const struct eb_infer_request *request, const struct eb_wire_response *response,
    uint8_t **values_at)
{
    char version[sizeof "18446744073709551615"];
    snprintf(version, sizeof version, "%" PRIu64, response->version);
    eb_field_put_text(writer, EB_FIELD_MODEL_INFER_RESPONSE_MODEL_NAME, response->model);
    eb_field_put_text(writer, EB_FIELD_MODEL_INFER_RESPONSE_MODEL_VERSION, version);
    eb_field_put_text(writer, EB_FIELD_MODEL_INFER_RESPONSE_ID, request->id);
    for (size_t i = 0; i < response->result_count; i++) {
        struct eb_wire_result *result = &response->results[i];
        if (values_at) {
            eb_field_put_length(writer, EB_FIELD_MODEL_INFER_RESPONSE_OUTPUTS, result->head_bytes);
            write_output(writer, &request->outputs[i], result);
        } else {
            size_t bytes = count_output(&request->outputs[i], result);
            eb_field_put_length(writer, EB_FIELD_MODEL_INFER_RESPONSE_OUTPUTS, bytes);
            writer->bytes += bytes;
        }
    }
    for (size_t i = 0; i < response->result_count; i++) {
        const struct eb_wire_result *result = &response->results[i];
        eb_field_put_length(
            writer, EB_FIELD_MODEL_INFER_RESPONSE_RAW_OUTPUT_CONTENTS, result->values_bytes);
        if (values_at) {
            values_at[i] = writer->out + writer->bytes;
        }
        eb_field_put_content(writer, NULL, result->values_bytes);
    }
}

size_t eb_infer_response_bytes(
    const struct eb_infer_request *request, const struct eb_wire_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    write_infer_response(&counter, request, response, NULL);
    return counter.bytes;
}

void eb_infer_response_encode(const struct eb_infer_request *request,
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at)
{
    struct eb_field_writer writer = {.out = out};
    write_infer_response(&writer, request, response, values_at);
}

/* ---- servers and models ---- */

#define TYPE_I64 EMBAG__V1__DATA_TYPE__DATA_TYPE_I64

/* The size of a dimension that may have any size. */
#define ANY_SIZE UINT64_MAX

bool eb_infer_version_read(const char *text, uint64_t *version, struct eb_error *error)
{
    bool is_number = true;
    *version = 0;
    for (const char *at = text; *at != '\0' && is_number; at++) {
        is_number = *at >= '0' && *at <= '9' &&
                    !__builtin_mul_overflow(*version, UINT64_C(10), version) &&
                    !__builtin_add_overflow(*version, (uint64_t)(*at - '0'), version);
    }
    if (!is_number || (text[0] != '\0' && *version == 0)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "invalid version \"%s\": expected a number of at least 1, or an empty string for the "
            "served version",
            text);
        return false;
    }
    return true;
}

struct eb_wire_model_query *eb_infer_model_query_decode(
    struct eb_arena *arena, const struct eb_codec_input *input, struct eb_error *error)
{
    /* ModelReadyRequest and ModelConfigRequest have the same two fields. */
    const Inference__ModelMetadataRequest *message = eb_codec_unpack(arena, input, error);
    struct eb_wire_model_query *query =
        message ? eb_codec_take_elements(arena, 1, sizeof *query, error) : NULL;
    if (!query) {
        return NULL;
    }
    query->model = message->name;
    return eb_infer_version_read(message->version, &query->version, error) ? query : NULL;
}

/* The three responses have one field each, with the same number. */
static_assert(
    (int)EB_FIELD_SERVER_LIVE_RESPONSE_LIVE == (int)EB_FIELD_SERVER_READY_RESPONSE_READY &&
        (int)EB_FIELD_SERVER_LIVE_RESPONSE_LIVE == (int)EB_FIELD_MODEL_READY_RESPONSE_READY,
    "the same field");

static void write_flag(struct eb_field_writer *writer, bool flag)
{
    eb_field_put_number(writer, EB_FIELD_SERVER_LIVE_RESPONSE_LIVE, flag);
}

size_t eb_infer_flag_bytes(bool flag)
{
    struct eb_field_writer counter = {.out = NULL};
    write_flag(&counter, flag);
    return counter.bytes;
}

void eb_infer_flag_encode(bool flag, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_flag(&writer, flag);
}

static void write_infer_server(struct eb_field_writer *writer, const struct eb_infer_server *server)
{
    eb_field_put_text(writer, EB_FIELD_SERVER_METADATA_RESPONSE_NAME, server->name);
    eb_field_put_text(writer, EB_FIELD_SERVER_METADATA_RESPONSE_VERSION, server->version);
    for (size_t i = 0; i < server->extension_count; i++) {
        eb_field_put_text(
            writer, EB_FIELD_SERVER_METADATA_RESPONSE_EXTENSIONS, server->extensions[i]);
    }
}

size_t eb_infer_server_bytes(const struct eb_infer_server *server)
{
    struct eb_field_writer counter = {.out = NULL};
    write_infer_server(&counter, server);
    return counter.bytes;
}

void eb_infer_server_encode(const struct eb_infer_server *server, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_infer_server(&writer, server);
}

/* A tensor of a table or feature. */
struct tensor {
    const struct eb_infer_feature *feature;
    const char *suffix;
    int32_t type;
    bool is_input; /* an input has the shape [any]; an output has [any, trailing dimensions] */
};

static void write_name(struct eb_field_writer *writer, uint32_t number, const struct tensor *tensor)
{
    const char *table = tensor->feature->name;
    size_t bytes = strlen(table) + 1 + strlen(tensor->suffix);
    eb_field_put_length(writer, number, bytes);
    eb_field_put_content(writer, table, strlen(table));
    eb_field_put_content(writer, ".", 1);
    eb_field_put_content(writer, tensor->suffix, strlen(tensor->suffix));
}

static void write_shape(
    struct eb_field_writer *writer, uint32_t number, const struct tensor *tensor)
{
    size_t count = tensor->is_input ? 0 : tensor->feature->dim_count;
    const uint64_t *dims = tensor->feature->dims;
    size_t bytes = eb_field_varint_bytes(ANY_SIZE);
    for (size_t i = 0; i < count; i++) {
        bytes += eb_field_varint_bytes(dims[i]);
    }
    eb_field_put_length(writer, number, bytes);
    eb_field_put_varint(writer, ANY_SIZE);
    for (size_t i = 0; i < count; i++) {
        eb_field_put_varint(writer, dims[i]);
    }
}

/* Writes a TensorMetadata. */
static void write_metadata_tensor(struct eb_field_writer *writer, const struct tensor *tensor)
{
    write_name(writer, EB_FIELD_TENSOR_METADATA_NAME, tensor);
    eb_field_put_text(writer, EB_FIELD_TENSOR_METADATA_DATATYPE, eb_infer_type_name(tensor->type));
    write_shape(writer, EB_FIELD_TENSOR_METADATA_SHAPE, tensor);
}

/* Writes a ModelInput or ModelOutput. */
static void write_config_tensor(struct eb_field_writer *writer, const struct tensor *tensor)
{
    int32_t type = eb_infer_type_number(tensor->type);
    if (tensor->is_input) {
        write_name(writer, EB_FIELD_MODEL_INPUT_NAME, tensor);
        eb_field_put_enum(writer, EB_FIELD_MODEL_INPUT_DATA_TYPE, type);
        write_shape(writer, EB_FIELD_MODEL_INPUT_DIMS, tensor);
        eb_field_put_number(writer, EB_FIELD_MODEL_INPUT_OPTIONAL, true);
    } else {
        write_name(writer, EB_FIELD_MODEL_OUTPUT_NAME, tensor);
        eb_field_put_enum(writer, EB_FIELD_MODEL_OUTPUT_DATA_TYPE, type);
        write_shape(writer, EB_FIELD_MODEL_OUTPUT_DIMS, tensor);
    }
}

typedef void (*write_tensor_fn)(struct eb_field_writer *writer, const struct tensor *tensor);

static void write_tensor(struct eb_field_writer *writer, uint32_t number,
    const struct tensor *tensor, write_tensor_fn write)
{
    struct eb_field_writer counter = {.out = NULL};
    write(&counter, tensor);
    eb_field_put_length(writer, number, counter.bytes);
    write(writer, tensor);
}

static void write_inputs(struct eb_field_writer *writer, uint32_t number,
    const struct eb_infer_model *model, write_tensor_fn write)
{
    for (size_t i = 0; i < model->feature_count; i++) {
        const struct eb_infer_feature *feature = &model->features[i];
        for (unsigned role = 0; role < EB_INFER_ROLE_COUNT; role++) {
            int32_t type = role == EB_INFER_WEIGHTS ? feature->weights_type : TYPE_I64;
            write_tensor(writer, number,
                &(struct tensor){feature, eb_infer_role_suffixes[role], type, .is_input = true},
                write);
        }
    }
}

static void write_outputs(struct eb_field_writer *writer, uint32_t number,
    const struct eb_infer_model *model, write_tensor_fn write)
{
    for (size_t i = 0; i < model->feature_count; i++) {
        const struct eb_infer_feature *feature = &model->features[i];
        write_tensor(writer, number,
            &(struct tensor){feature, EB_INFER_OUTPUT, feature->type, .is_input = false}, write);
    }
}

static void write_metadata(struct eb_field_writer *writer, const struct eb_infer_model *model)
{
    eb_field_put_text(writer, EB_FIELD_MODEL_METADATA_RESPONSE_NAME, model->name);
    for (size_t i = 0; i < model->version_count; i++) {
        char version[sizeof "18446744073709551615"];
        snprintf(version, sizeof version, "%" PRIu64, model->versions[i]);
        eb_field_put_text(writer, EB_FIELD_MODEL_METADATA_RESPONSE_VERSIONS, version);
    }
    eb_field_put_text(writer, EB_FIELD_MODEL_METADATA_RESPONSE_PLATFORM, model->platform);
    write_inputs(writer, EB_FIELD_MODEL_METADATA_RESPONSE_INPUTS, model, write_metadata_tensor);
    write_outputs(writer, EB_FIELD_MODEL_METADATA_RESPONSE_OUTPUTS, model, write_metadata_tensor);
}

size_t eb_infer_metadata_bytes(const struct eb_infer_model *model)
{
    struct eb_field_writer counter = {.out = NULL};
    write_metadata(&counter, model);
    return counter.bytes;
}

void eb_infer_metadata_encode(const struct eb_infer_model *model, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_metadata(&writer, model);
}

static void write_config(struct eb_field_writer *writer, const struct eb_infer_model *model)
{
    eb_field_put_text(writer, EB_FIELD_MODEL_CONFIG_NAME, model->name);
    eb_field_put_text(writer, EB_FIELD_MODEL_CONFIG_PLATFORM, model->platform);
    write_inputs(writer, EB_FIELD_MODEL_CONFIG_INPUT, model, write_config_tensor);
    write_outputs(writer, EB_FIELD_MODEL_CONFIG_OUTPUT, model, write_config_tensor);
    eb_field_put_text(writer, EB_FIELD_MODEL_CONFIG_BACKEND, model->platform);
}

size_t eb_infer_config_bytes(const struct eb_infer_model *model)
{
    struct eb_field_writer counter = {.out = NULL};
    write_config(&counter, model);
    struct eb_field_writer outer = {.out = NULL};
    eb_field_put_length(&outer, EB_FIELD_MODEL_CONFIG_RESPONSE_CONFIG, counter.bytes);
    return outer.bytes + counter.bytes;
}

void eb_infer_config_encode(const struct eb_infer_model *model, uint8_t *out)
{
    struct eb_field_writer counter = {.out = NULL};
    write_config(&counter, model);
    struct eb_field_writer writer = {.out = out};
    eb_field_put_length(&writer, EB_FIELD_MODEL_CONFIG_RESPONSE_CONFIG, counter.bytes);
    write_config(&writer, model);
}
