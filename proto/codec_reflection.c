#include "proto/codec_reflection.h"

#include "proto/codec_common.h"
#include "proto/field.h"

#include "grpc/reflection/v1/reflection.fields.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

#include <assert.h>

/* Largest accepted number of fields, including unknown ones. The message declares six fields, and
 * one of the six is a message of two fields. */
#define REQUEST_FIELDS_MAX 64

static_assert((int)EB_REFLECTION_FILE == (int)EB_FIELD_SERVER_REFLECTION_REQUEST_FILE_BY_FILENAME,
    "eb_reflection_question has the field numbers");
static_assert(
    (int)EB_REFLECTION_SYMBOL == (int)EB_FIELD_SERVER_REFLECTION_REQUEST_FILE_CONTAINING_SYMBOL,
    "eb_reflection_question has the field numbers");
static_assert((int)EB_REFLECTION_EXTENSION ==
                  (int)EB_FIELD_SERVER_REFLECTION_REQUEST_FILE_CONTAINING_EXTENSION,
    "eb_reflection_question has the field numbers");
static_assert((int)EB_REFLECTION_EXTENSION_NUMBERS ==
                  (int)EB_FIELD_SERVER_REFLECTION_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE,
    "eb_reflection_question has the field numbers");
static_assert((int)EB_REFLECTION_SERVICES == (int)EB_FIELD_SERVER_REFLECTION_REQUEST_LIST_SERVICES,
    "eb_reflection_question has the field numbers");

/* Returns the name that the request asks for. */
static const char *find_reflection_name(
    const Grpc__Reflection__V1__ServerReflectionRequest *message)
{
    switch ((enum eb_reflection_question)message->message_request_case) {
    case EB_REFLECTION_FILE: return message->file_by_filename;
    case EB_REFLECTION_SYMBOL: return message->file_containing_symbol;
    case EB_REFLECTION_EXTENSION: return message->file_containing_extension->containing_type;
    case EB_REFLECTION_EXTENSION_NUMBERS: return message->all_extension_numbers_of_type;
    case EB_REFLECTION_SERVICES:
    case EB_REFLECTION_NONE: break;
    }
    return "";
}

struct eb_wire_reflection_request *eb_reflection_request_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {&grpc__reflection__v1__server_reflection_request__descriptor,
        bytes, size,
        {.fields_max = REQUEST_FIELDS_MAX, .name_bytes_max = EB_REFLECTION_NAME_BYTES_MAX}};
    const Grpc__Reflection__V1__ServerReflectionRequest *message =
        eb_codec_unpack(arena, &input, error);
    struct eb_wire_reflection_request *request =
        message ? eb_codec_take_elements(arena, 1, sizeof *request, error) : NULL;
    if (request) {
        *request = (struct eb_wire_reflection_request){.host = message->host,
            .question = (enum eb_reflection_question)message->message_request_case,
            .name = find_reflection_name(message)};
    }
    return request;
}

static void write_error(struct eb_field_writer *writer, const struct eb_error *error)
{
    eb_field_put_number(writer, EB_FIELD_ERROR_RESPONSE_ERROR_CODE, (uint64_t)error->status);
    eb_field_put_text(writer, EB_FIELD_ERROR_RESPONSE_ERROR_MESSAGE, error->text);
}

static void write_files(struct eb_field_writer *writer, const struct eb_schema_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        eb_field_put_bytes(writer, EB_FIELD_FILE_DESCRIPTOR_RESPONSE_FILE_DESCRIPTOR_PROTO,
            files->files[i].bytes, files->files[i].size);
    }
}

static void write_services(
    struct eb_field_writer *writer, const struct eb_wire_reflection_response *response)
{
    for (size_t i = 0; i < response->service_count; i++) {
        struct eb_field_writer counter = {.out = NULL};
        eb_field_put_text(&counter, EB_FIELD_SERVICE_RESPONSE_NAME, response->services[i]);
        eb_field_put_length(writer, EB_FIELD_LIST_SERVICE_RESPONSE_SERVICE, counter.bytes);
        eb_field_put_text(writer, EB_FIELD_SERVICE_RESPONSE_NAME, response->services[i]);
    }
}

/* Writes the fields of the inner message that holds the answer. Returns its field number. */
static uint32_t write_content(
    struct eb_field_writer *writer, const struct eb_wire_reflection_response *response)
{
    if (response->error) {
        write_error(writer, response->error);
        return EB_FIELD_SERVER_REFLECTION_RESPONSE_ERROR_RESPONSE;
    }
    if (response->files) {
        write_files(writer, response->files);
        return EB_FIELD_SERVER_REFLECTION_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    }
    if (response->base_type) {
        eb_field_put_text(
            writer, EB_FIELD_EXTENSION_NUMBER_RESPONSE_BASE_TYPE_NAME, response->base_type);
        return EB_FIELD_SERVER_REFLECTION_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    }
    write_services(writer, response);
    return EB_FIELD_SERVER_REFLECTION_RESPONSE_LIST_SERVICES_RESPONSE;
}

static void write_reflection_response(
    struct eb_field_writer *writer, const struct eb_wire_reflection_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    uint32_t number = write_content(&counter, response);
    eb_field_put_text(writer, EB_FIELD_SERVER_REFLECTION_RESPONSE_VALID_HOST, response->host);
    eb_field_put_length(
        writer, EB_FIELD_SERVER_REFLECTION_RESPONSE_ORIGINAL_REQUEST, response->request_bytes);
    eb_field_put_content(writer, response->request, response->request_bytes);
    eb_field_put_length(writer, number, counter.bytes);
    (void)write_content(writer, response);
}

size_t eb_reflection_response_bytes(const struct eb_wire_reflection_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    write_reflection_response(&counter, response);
    return counter.bytes;
}

void eb_reflection_response_encode(const struct eb_wire_reflection_response *response, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_reflection_response(&writer, response);
}
