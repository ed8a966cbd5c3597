/* LookupResponse. */
#include "proto/codec.h"
#include "proto/codec_fields.h"
#include "proto/field.h"
#include "proto/field_reader.h"
#include "proto/unpack.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>

#define REQUEST_ID_FIELD 1
#define MODEL_FIELD 2
#define VERSION_FIELD 3
#define RESULTS_FIELD 4
#define ERROR_CODE_OF_ALL_FIELD 6
#define ERROR_MESSAGE_OF_ALL_FIELD 7
#define RETRY_AFTER_MS_FIELD 9
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

/* All fields of a result, but for the bytes of its values. Inlined, so that where it only counts it
 * does nothing else. */
static inline __attribute__((always_inline)) void write_result_head(
    struct eb_field_writer *writer, const struct eb_wire_result *result)
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

/* Writes a result at out + bytes. Returns where it ends. Its writer, which no other function has
 * seen, can be kept in registers. */
static size_t write_result(
    uint8_t *out, size_t bytes, const struct eb_wire_result *result, uint8_t **values_at)
{
    struct eb_field_writer writer = {.out = out, .bytes = bytes};
    eb_field_put_length(&writer, RESULTS_FIELD, result->head_bytes + result->values_bytes);
    write_result_head(&writer, result);
    *values_at = out + writer.bytes;
    eb_field_put_content(&writer, result->values, result->values_bytes);
    return writer.bytes;
}

static size_t count_head(const struct eb_wire_result *result)
{
    struct eb_field_writer counter = {.out = NULL};
    write_result_head(&counter, result);
    return counter.bytes;
}

static void write_before_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    if (response->is_timed) {
        eb_field_put_padded(writer, QUEUE_US_FIELD, response->queue_us);
        eb_field_put_padded(writer, COMPUTE_US_FIELD, response->compute_us);
        eb_field_put_number(writer, MORE_FIELD, response->more);
    }
    eb_field_put_number(writer, REQUEST_ID_FIELD, response->request_id);
    eb_field_put_text(writer, MODEL_FIELD, response->model);
    eb_field_put_number(writer, VERSION_FIELD, response->version);
    if (!response->is_timed) {
        eb_field_put_number(writer, MORE_FIELD, response->more);
        eb_field_put_number(writer, QUEUE_US_FIELD, response->queue_us);
        eb_field_put_number(writer, COMPUTE_US_FIELD, response->compute_us);
    }
}

static void write_after_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    eb_field_put_number(writer, ERROR_CODE_OF_ALL_FIELD, response->error_code);
    eb_field_put_text(writer, ERROR_MESSAGE_OF_ALL_FIELD, response->error_message);
    eb_field_put_number(writer, RETRY_AFTER_MS_FIELD, response->retry_after_ms);
}

size_t eb_lookup_response_bytes(const struct eb_wire_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    write_before_results(&counter, response);
    for (size_t i = 0; i < response->result_count; i++) {
        struct eb_wire_result *result = &response->results[i];
        result->head_bytes = count_head(result);
        const size_t size = result->head_bytes + result->values_bytes;
        eb_field_put_length(&counter, RESULTS_FIELD, size);
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
        writer.bytes = write_result(out, writer.bytes, &response->results[i], &values_at[i]);
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

/* ---- decoding: by hand, for protobuf-c would copy the values ---- */

/* What a result holds of a variable number, as it is counted before it is kept. */
struct result_counts {
    size_t shape;
    size_t missing_by_query;
};

/* All fields of a result but its lists of numbers, which are counted. */
static bool read_result_field(struct eb_arena *arena, const struct eb_field *field,
    struct eb_wire_result *result, struct result_counts *counts, struct eb_error *error)
{
    switch (field->number) {
    case QUERY_FIELD: result->query = (uint32_t)field->varint; break;
    case TYPE_FIELD: result->type = (int32_t)field->varint; break;
    case SHAPE_FIELD: counts->shape += eb_field_reader_count(field); break;
    case MISSING_FIELD: result->missing = field->varint; break;
    case MISSING_POSITIONS_FIELD:
        result->missing_positions = field->data.at;
        result->missing_positions_bytes = eb_field_reader_bytes(&field->data);
        break;
    case ERROR_CODE_FIELD: result->error_code = (uint32_t)field->varint; break;
    case ERROR_MESSAGE_FIELD:
        result->error_message = eb_codec_fields_keep(field->data, arena, error);
        return result->error_message != NULL;
    case MISSING_BY_QUERY_FIELD: counts->missing_by_query += eb_field_reader_count(field); break;
    case VALUES_FIELD:
        result->values = field->data.at;
        result->values_bytes = eb_field_reader_bytes(&field->data);
        break;
    default: break;
    }
    return true;
}

/* The result's lists, side by side in memory of their own. */
static bool keep_numbers(struct eb_arena *arena, struct eb_field_reader reader,
    const struct result_counts *counts, struct eb_wire_result *result, struct eb_error *error)
{
    uint64_t *shape =
        eb_unpack_take(arena, counts->shape + counts->missing_by_query, sizeof *shape, error);
    struct eb_field field;
    if (!shape) {
        return false;
    }
    uint64_t *missing = shape + counts->shape;
    result->shape = shape;
    result->shape_count = (uint32_t)counts->shape;
    result->missing_by_query = missing;
    result->missing_by_query_count = counts->missing_by_query;
    while (eb_field_reader_next(&reader, &field)) {
        if (field.number == SHAPE_FIELD) {
            shape = eb_field_reader_numbers(&field, shape);
        } else if (field.number == MISSING_BY_QUERY_FIELD) {
            missing = eb_field_reader_numbers(&field, missing);
        }
    }
    return true;
}

static bool read_result(struct eb_arena *arena, const struct eb_field_reader *bytes,
    struct eb_wire_result *result, struct eb_error *error)
{
    struct eb_field_reader reader = *bytes;
    struct eb_field field;
    struct result_counts counts = {0};
    *result = (struct eb_wire_result){.error_message = ""};
    while (eb_field_reader_next(&reader, &field)) {
        if (!read_result_field(arena, &field, result, &counts, error)) {
            return false;
        }
    }
    if (result->error_code != 0) {
        result->values = NULL;
        result->values_bytes = 0;
    }
    return keep_numbers(arena, *bytes, &counts, result, error);
}

/* All fields of a response but its results, which are counted. */
static bool read_response_field(struct eb_arena *arena, const struct eb_field *field,
    struct eb_wire_response *response, struct eb_error *error)
{
    switch (field->number) {
    case REQUEST_ID_FIELD: response->request_id = field->varint; break;
    case MODEL_FIELD:
        response->model = eb_codec_fields_keep(field->data, arena, error);
        return response->model != NULL;
    case VERSION_FIELD: response->version = field->varint; break;
    case RESULTS_FIELD: response->result_count++; break;
    case MORE_FIELD: response->more = field->varint != 0; break;
    case ERROR_CODE_OF_ALL_FIELD: response->error_code = (uint32_t)field->varint; break;
    case ERROR_MESSAGE_OF_ALL_FIELD:
        response->error_message = eb_codec_fields_keep(field->data, arena, error);
        return response->error_message != NULL;
    case RETRY_AFTER_MS_FIELD: response->retry_after_ms = (uint32_t)field->varint; break;
    case QUEUE_US_FIELD: response->queue_us = (uint32_t)field->varint; break;
    case COMPUTE_US_FIELD: response->compute_us = (uint32_t)field->varint; break;
    default: break;
    }
    return true;
}

static bool read_results(struct eb_arena *arena, struct eb_field_reader reader,
    struct eb_wire_response *response, struct eb_error *error)
{
    struct eb_wire_result *result =
        eb_unpack_take(arena, response->result_count, sizeof *result, error);
    struct eb_field field;
    response->results = result;
    while (result && eb_field_reader_next(&reader, &field)) {
        if (field.number == RESULTS_FIELD && !read_result(arena, &field.data, result++, error)) {
            return false;
        }
    }
    return result != NULL;
}

struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    if (!eb_guard_check(&embag__v1__lookup_response__descriptor, bytes, size,
            &eb_unpack_answer_limits, error)) {
        return NULL;
    }
    struct eb_wire_response *response = eb_unpack_take(arena, 1, sizeof *response, error);
    if (!response) {
        return NULL;
    }
    struct eb_field_reader reader = eb_field_reader_of(bytes, size);
    struct eb_field field;
    *response = (struct eb_wire_response){.model = "", .error_message = ""};
    while (eb_field_reader_next(&reader, &field)) {
        if (!read_response_field(arena, &field, response, error)) {
            return NULL;
        }
    }
    reader = eb_field_reader_of(bytes, size);
    return read_results(arena, reader, response, error) ? response : NULL;
}
