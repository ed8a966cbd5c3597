/* ModelInferResponse. */
#include "proto/codec_infer.h"
#include "proto/field.h"
#include "proto/infer_type.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define OUTPUTS_FIELD 5
#define RAW_FIELD 6

/* "missing" of an output. */
#define MISSING_PARAMETER "missing"
#define MISSING_FORM_FIELD 2

/* An entry of a map: a key, and a message of one number. */
static void write_missing_entry(struct eb_field_writer *writer, uint64_t missing)
{
    eb_field_put_text(writer, 1, MISSING_PARAMETER);
    eb_field_put_length(writer, 2, 1 + eb_field_varint_bytes(missing));
    eb_field_put_present(writer, MISSING_FORM_FIELD, missing);
}

static void write_missing(struct eb_field_writer *writer, uint64_t missing)
{
    struct eb_field_writer counter = {.out = NULL};
    write_missing_entry(&counter, missing);
    eb_field_put_length(writer, 4, counter.bytes);
    write_missing_entry(writer, missing);
}

static void write_output(struct eb_field_writer *writer, const struct eb_infer_output *output,
    const struct eb_wire_result *result)
{
    static const char suffix[] = "." EB_INFER_OUTPUT;
    const char *end = output->table[0] == '\0' ? suffix + 1 : suffix;
    const size_t table_bytes = strlen(output->table);
    eb_field_put_length(writer, 1, table_bytes + strlen(end));
    eb_field_put_content(writer, output->table, table_bytes);
    eb_field_put_content(writer, end, strlen(end));
    eb_field_put_text(writer, 2, eb_infer_type_name(result->type));
    eb_field_put_packed(writer, 3, result->shape, result->shape_count);
    if (result->missing > 0) {
        write_missing(writer, result->missing);
    }
}

/* Counts the output, once. */
static size_t count_output(const struct eb_infer_output *output, struct eb_wire_result *result)
{
    struct eb_field_writer counter = {.out = NULL};
    assert(!result->like);
    write_output(&counter, output, result);
    result->head_bytes = counter.bytes;
    return counter.bytes;
}

/* values_at: NULL where bytes are counted. */
static void write_infer_response(struct eb_field_writer *writer,
    const struct eb_infer_request *request, const struct eb_wire_response *response,
    uint8_t **values_at)
{
    char version[sizeof "18446744073709551615"];
    snprintf(version, sizeof version, "%" PRIu64, response->version);
    eb_field_put_text(writer, 1, response->model);
    eb_field_put_text(writer, 2, version);
    eb_field_put_text(writer, 3, request->id);
    for (size_t i = 0; i < response->result_count; i++) {
        struct eb_wire_result *result = &response->results[i];
        if (values_at) {
            eb_field_put_length(writer, OUTPUTS_FIELD, result->head_bytes);
            write_output(writer, &request->outputs[i], result);
        } else {
            const size_t bytes = count_output(&request->outputs[i], result);
            eb_field_put_length(writer, OUTPUTS_FIELD, bytes);
            writer->bytes += bytes;
        }
    }
    for (size_t i = 0; i < response->result_count; i++) {
        const struct eb_wire_result *result = &response->results[i];
        eb_field_put_length(writer, RAW_FIELD, result->values_bytes);
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
