/* LookupResponse. */
#include "proto/codec.h"
#include "proto/field.h"
#include "proto/unpack.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>

#define QUEUE_US_FIELD 13
#define COMPUTE_US_FIELD 14

/* Where the times of a timed answer lie: two fields at its start, each with a tag of one byte. */
#define QUEUE_US_AT 1
#define COMPUTE_US_AT (QUEUE_US_AT + EB_FIELD_PADDED_BYTES + 1)

/* Behind them, where it is set, that more is to come. */
#define MORE_FIELD 5
#define MORE_AT (COMPUTE_US_AT + EB_FIELD_PADDED_BYTES + 1)

static_assert(COMPUTE_US_FIELD < 16, "tags of larger fields take two bytes");

#define QUERY_FIELD 1
#define TYPE_FIELD 2
#define SHAPE_FIELD 3
#define MISSING_FIELD 4
#define MISSING_POSITIONS_FIELD 7
#define ERROR_CODE_FIELD 9
#define ERROR_MESSAGE_FIELD 10
#define MISSING_BY_QUERY_FIELD 11
#define VALUES_FIELD 15

/* All fields of a result, but for the bytes of its values. */
static void write_result_head(struct eb_field_writer *writer, const struct eb_wire_result *result)
{
    assert(result->error_code == 0 || result->values_bytes == 0);
    eb_field_put_number(writer, QUERY_FIELD, result->query);
    eb_field_put_enum(writer, TYPE_FIELD, result->type);
    eb_field_put_packed(writer, SHAPE_FIELD, result->shape, result->shape_count);
    eb_field_put_number(writer, MISSING_FIELD, result->missing);
    eb_field_put_bytes(writer, MISSING_POSITIONS_FIELD, result->missing_positions,
        result->missing_positions_bytes);
    eb_field_put_number(writer, ERROR_CODE_FIELD, result->error_code);
    if (result->error_message) {
        eb_field_put_text(writer, ERROR_MESSAGE_FIELD, result->error_message);
    }
    eb_field_put_packed(
        writer, MISSING_BY_QUERY_FIELD, result->missing_by_query, result->missing_by_query_count);
    if (result->values_bytes > 0) {
        eb_field_put_length(writer, VALUES_FIELD, result->values_bytes);
    }
}

static size_t result_bytes(const struct eb_wire_result *result)
{
    struct eb_field_writer counter = {.out = NULL};
    write_result_head(&counter, result);
    return counter.bytes + result->values_bytes;
}

static void write_before_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    if (response->is_timed) {
        eb_field_put_padded(writer, QUEUE_US_FIELD, response->queue_us);
        eb_field_put_padded(writer, COMPUTE_US_FIELD, response->compute_us);
        eb_field_put_number(writer, MORE_FIELD, response->more);
    }
    eb_field_put_number(writer, 1, response->request_id);
    eb_field_put_text(writer, 2, response->model);
    eb_field_put_number(writer, 3, response->version);
    if (!response->is_timed) {
        eb_field_put_number(writer, MORE_FIELD, response->more);
        eb_field_put_number(writer, QUEUE_US_FIELD, response->queue_us);
        eb_field_put_number(writer, COMPUTE_US_FIELD, response->compute_us);
    }
}

static void write_after_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    eb_field_put_number(writer, 6, response->error_code);
    eb_field_put_text(writer, 7, response->error_message);
    eb_field_put_number(writer, 9, response->retry_after_ms);
}

size_t eb_lookup_response_bytes(const struct eb_wire_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    write_before_results(&counter, response);
    for (size_t i = 0; i < response->result_count; i++) {
        size_t size = result_bytes(&response->results[i]);
        eb_field_put_length(&counter, 4, size);
        counter.bytes += size;
    }
    write_after_results(&counter, response);
    return counter.bytes;
}

void eb_lookup_response_encode(
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at)
{
    struct eb_field_writer writer = {.out = out};
    write_before_results(&writer, response);
    for (size_t i = 0; i < response->result_count; i++) {
        const struct eb_wire_result *result = &response->results[i];
        eb_field_put_length(&writer, 4, result_bytes(result));
        write_result_head(&writer, result);
        values_at[i] = out + writer.bytes;
        eb_field_put_content(&writer, result->values, result->values_bytes);
    }
    write_after_results(&writer, response);
}

void eb_lookup_response_set_times(uint8_t *message, uint32_t queue_us, uint32_t compute_us)
{
    assert(message[0] == QUEUE_US_FIELD << 3);
    eb_field_set_padded(message + QUEUE_US_AT, queue_us);
    eb_field_set_padded(message + COMPUTE_US_AT, compute_us);
}

void eb_lookup_response_set_last(uint8_t *message)
{
    assert(message[MORE_AT - 1] == MORE_FIELD << 3);
    message[MORE_AT] = 0;
}

static struct eb_wire_result translate_result(const Embag__V1__BagResult *result)
{
    bool has_values = result->error_code == 0;
    return (struct eb_wire_result){
        .query = result->query,
        .type = (int32_t)result->type,
        .shape_count = (uint32_t)result->n_shape,
        .shape = result->shape,
        .missing = result->missing,
        .missing_by_query_count = result->n_missing_by_query,
        .missing_by_query = result->missing_by_query,
        .missing_positions = result->missing_positions.data,
        .missing_positions_bytes = result->missing_positions.len,
        .error_code = result->error_code,
        .error_message = result->error_message,
        .values = has_values ? result->values.data : NULL,
        .values_bytes = has_values ? result->values.len : 0,
    };
}

struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    const struct eb_unpack_input input = {
        &embag__v1__lookup_response__descriptor, bytes, size, eb_unpack_answer_limits};
    const Embag__V1__LookupResponse *message = eb_unpack_message(arena, &input, error);
    struct eb_wire_response *response =
        message ? eb_unpack_take(arena, 1, sizeof *response, error) : NULL;
    struct eb_wire_result *results =
        response ? eb_unpack_take(arena, message->n_results, sizeof *results, error) : NULL;
    if (!results) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_results; i++) {
        results[i] = translate_result(message->results[i]);
    }
    *response = (struct eb_wire_response){
        .request_id = message->request_id,
        .model = message->model,
        .version = message->version,
        .error_code = message->error_code,
        .error_message = message->error_message,
        .retry_after_ms = message->retry_after_ms,
        .more = message->more,
        .queue_us = message->queue_us,
        .compute_us = message->compute_us,
        .result_count = message->n_results,
        .results = results,
    };
    return response;
}
