/* LookupResponse. */
#include "proto/codec.h"
#include "proto/codec_fields.h"
#include "proto/field.h"
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

static const enum eb_codec_kind response_kinds[EB_CODEC_FIELDS_END] = {
    [REQUEST_ID_FIELD] = EB_CODEC_NUMBER,
    [MODEL_FIELD] = EB_CODEC_NAME,
    [VERSION_FIELD] = EB_CODEC_NUMBER,
    [RESULTS_FIELD] = EB_CODEC_BYTES,
    [MORE_FIELD] = EB_CODEC_NUMBER,
    [ERROR_CODE_OF_ALL_FIELD] = EB_CODEC_NUMBER,
    [ERROR_MESSAGE_OF_ALL_FIELD] = EB_CODEC_NAME,
    [8] = EB_CODEC_NUMBER,
    [RETRY_AFTER_MS_FIELD] = EB_CODEC_NUMBER,
    [10] = EB_CODEC_FIXED64,
    [11] = EB_CODEC_NUMBER,
    [12] = EB_CODEC_NUMBER,
    [QUEUE_US_FIELD] = EB_CODEC_NUMBER,
    [COMPUTE_US_FIELD] = EB_CODEC_NUMBER,
};

static const enum eb_codec_kind result_kinds[EB_CODEC_FIELDS_END] = {
    [QUERY_FIELD] = EB_CODEC_NUMBER,
    [TYPE_FIELD] = EB_CODEC_NUMBER,
    [SHAPE_FIELD] = EB_CODEC_INTEGERS,
    [MISSING_FIELD] = EB_CODEC_NUMBER,
    [5] = EB_CODEC_BYTES,
    [6] = EB_CODEC_BYTES,
    [MISSING_POSITIONS_FIELD] = EB_CODEC_BYTES,
    [8] = EB_CODEC_BYTES,
    [ERROR_CODE_FIELD] = EB_CODEC_NUMBER,
    [ERROR_MESSAGE_FIELD] = EB_CODEC_NAME,
    [MISSING_BY_QUERY_FIELD] = EB_CODEC_INTEGERS,
    [VALUES_FIELD] = EB_CODEC_BYTES,
};

/* An answer that is read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    uint32_t field_count; /* of the response and its results */
};

static bool read_fields(struct reading *reading, struct eb_field_reader message,
    const enum eb_codec_kind *kinds, struct eb_codec_fields *fields)
{
    const struct eb_codec_rules rules = {kinds, &eb_unpack_answer_limits, &reading->field_count};
    if (eb_codec_fields_init(fields, message, &rules)) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "LookupResponse cannot be read");
    return false;
}

/* Takes the numbers of a repeated field. NULL: the arena is exhausted. */
static const uint64_t *read_numbers(
    struct reading *reading, const struct eb_codec_fields *fields, uint32_t number, size_t *count)
{
    size_t bytes = 0;
    const int64_t *numbers =
        eb_codec_fields_integers(fields, number, &bytes, reading->arena, reading->error);
    *count = bytes / sizeof *numbers;
    return (const uint64_t *)numbers;
}

static bool read_result(
    struct reading *reading, struct eb_field_reader message, struct eb_wire_result *result)
{
    struct eb_codec_fields fields;
    size_t shape_count = 0;
    if (!read_fields(reading, message, result_kinds, &fields)) {
        return false;
    }
    *result = (struct eb_wire_result){
        .query = (uint32_t)eb_codec_fields_value(&fields, QUERY_FIELD),
        .type = eb_codec_fields_enum(&fields, TYPE_FIELD),
        .missing = eb_codec_fields_value(&fields, MISSING_FIELD),
        .missing_positions = eb_codec_fields_bytes(&fields, MISSING_POSITIONS_FIELD),
        .missing_positions_bytes = eb_codec_fields_value(&fields, MISSING_POSITIONS_FIELD),
        .error_code = (uint32_t)eb_codec_fields_value(&fields, ERROR_CODE_FIELD),
        .error_message =
            eb_codec_fields_text(&fields, ERROR_MESSAGE_FIELD, reading->arena, reading->error),
    };
    if (result->error_code == 0) {
        result->values = eb_codec_fields_bytes(&fields, VALUES_FIELD);
        result->values_bytes = eb_codec_fields_value(&fields, VALUES_FIELD);
    }
    result->shape = read_numbers(reading, &fields, SHAPE_FIELD, &shape_count);
    result->shape_count = (uint32_t)shape_count;
    result->missing_by_query =
        read_numbers(reading, &fields, MISSING_BY_QUERY_FIELD, &result->missing_by_query_count);
    return result->error_message && result->shape && result->missing_by_query;
}

static bool read_results(struct reading *reading, const struct eb_codec_fields *fields,
    struct eb_wire_response *response)
{
    struct eb_field_reader message = fields->message;
    response->result_count = fields->counts[RESULTS_FIELD];
    response->results = eb_unpack_take(
        reading->arena, response->result_count, sizeof *response->results, reading->error);
    bool is_sound = response->results != NULL;
    for (size_t i = 0; is_sound && i < response->result_count; i++) {
        is_sound = read_result(
            reading, eb_codec_fields_next(&message, RESULTS_FIELD), &response->results[i]);
    }
    return is_sound;
}

static struct eb_wire_response *read_response(
    struct reading *reading, struct eb_field_reader message)
{
    struct eb_codec_fields fields;
    if (!read_fields(reading, message, response_kinds, &fields)) {
        return NULL;
    }
    struct eb_wire_response *response =
        eb_unpack_take(reading->arena, 1, sizeof *response, reading->error);
    if (!response) {
        return NULL;
    }
    *response = (struct eb_wire_response){
        .request_id = eb_codec_fields_value(&fields, REQUEST_ID_FIELD),
        .model = eb_codec_fields_text(&fields, MODEL_FIELD, reading->arena, reading->error),
        .version = eb_codec_fields_value(&fields, VERSION_FIELD),
        .error_code = (uint32_t)eb_codec_fields_value(&fields, ERROR_CODE_OF_ALL_FIELD),
        .error_message = eb_codec_fields_text(
            &fields, ERROR_MESSAGE_OF_ALL_FIELD, reading->arena, reading->error),
        .retry_after_ms = (uint32_t)eb_codec_fields_value(&fields, RETRY_AFTER_MS_FIELD),
        .more = eb_codec_fields_value(&fields, MORE_FIELD) != 0,
        .queue_us = (uint32_t)eb_codec_fields_value(&fields, QUEUE_US_FIELD),
        .compute_us = (uint32_t)eb_codec_fields_value(&fields, COMPUTE_US_FIELD),
    };
    const bool is_whole =
        response->model && response->error_message && read_results(reading, &fields, response);
    return is_whole ? response : NULL;
}

/* What has been read to its end has nothing that the guard refuses; else the guard, which looks at
 * all bytes, comes first. */
struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct reading reading = {.arena = arena, .error = error};
    struct eb_wire_response *response = read_response(&reading, eb_field_reader_of(bytes, size));
    if (!response) {
        (void)eb_guard_check(
            &embag__v1__lookup_response__descriptor, bytes, size, &eb_unpack_answer_limits, error);
    }
    return response;
}
