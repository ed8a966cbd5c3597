/* LookupResponse. */
#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/field.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>

/* Offsets of the times in a timed answer: two fields at its start, each with a tag of one byte. */
#define QUEUE_US_AT 1
#define COMPUTE_US_AT (QUEUE_US_AT + EB_FIELD_PADDED_BYTES + 1)

/* Offset of the field `more`, which is written only if it is set, after the times. */
#define MORE_AT (COMPUTE_US_AT + EB_FIELD_PADDED_BYTES + 1)

static_assert(EB_FIELD_LOOKUP_RESPONSE_COMPUTE_US < 16, "tags of larger fields take two bytes");

/* The tail of a plain result has type, shape, missing and the values' length, each with its tag. A
 * result's `tail` must hold the longest forms of these four. */
#define PLAIN_SHAPE_COUNT 2
static_assert((1 + 10) + (2 + PLAIN_SHAPE_COUNT * 10) + (1 + 10) + (1 + 10) <=
                  sizeof((struct eb_wire_result){0}.tail),
    "the tail of a plain result");

static inline void write_missing_by_query(
    struct eb_field_writer *writer, const struct eb_wire_result *result)
{
    size_t count = result->missing_by_query_count;
    if (result->missing_by_query) {
        eb_field_put_packed(
            writer, EB_FIELD_BAG_RESULT_MISSING_BY_QUERY, result->missing_by_query, count);
    } else {
        eb_field_put_zeros(writer, EB_FIELD_BAG_RESULT_MISSING_BY_QUERY, count);
    }
}

/* Writes or counts the fields of a result after its query, except the bytes of its values. For a
 * plain result, considers only the fields that such a result may have. Inlined, as are the
 * functions below, so that the writer is kept in registers and counting costs nothing else. */
static inline __attribute__((always_inline)) void write_tail(
    struct eb_field_writer *writer, const struct eb_wire_result *result, bool is_plain)
{
    assert(result->error_code == 0 || result->values_bytes == 0);
    eb_field_put_enum(writer, EB_FIELD_BAG_RESULT_TYPE, result->type);
    eb_field_put_packed(writer, EB_FIELD_BAG_RESULT_SHAPE, result->shape, result->shape_count);
    eb_field_put_number(writer, EB_FIELD_BAG_RESULT_MISSING, result->missing);
    if (!is_plain) {
        eb_field_put_bytes(writer, EB_FIELD_BAG_RESULT_MISSING_POSITIONS, result->missing_positions,
            result->missing_positions_bytes);
        eb_field_put_number(writer, EB_FIELD_BAG_RESULT_ERROR_CODE, result->error_code);
        if (result->error_message) {
            eb_field_put_text(writer, EB_FIELD_BAG_RESULT_ERROR_MESSAGE, result->error_message);
        }
        write_missing_by_query(writer, result);
        eb_field_put_number(writer, EB_FIELD_BAG_RESULT_UNREACHED, result->unreached);
        eb_field_put_bytes(
            writer, EB_FIELD_BAG_RESULT_LENGTHS, result->lengths, result->lengths_bytes);
        eb_field_put_bytes(
            writer, EB_FIELD_BAG_RESULT_INVERSE, result->inverse, result->inverse_bytes);
    }
    if (result->values_bytes > 0) {
        eb_field_put_length(writer, EB_FIELD_BAG_RESULT_VALUES, result->values_bytes);
    }
}

/* Returns whether the result's bytes fit result->tail, whatever its numbers are. */
static bool is_result_plain(const struct eb_wire_result *result)
{
    return result->shape_count <= PLAIN_SHAPE_COUNT && result->missing_positions_bytes == 0 &&
           result->error_code == 0 && !result->error_message &&
           result->missing_by_query_count == 0 && result->unreached == 0 &&
           result->lengths_bytes == 0 && result->inverse_bytes == 0;
}

/* Makes the tail, or counts it if the result is not plain. */
static void make_tail(struct eb_wire_result *result)
{
    struct eb_field_writer writer = {.out = NULL};
    result->is_tail_kept = is_result_plain(result);
    if (result->is_tail_kept) {
        writer.out = result->tail;
        write_tail(&writer, result, true);
    } else {
        write_tail(&writer, result, false);
    }
    result->tail_bytes = writer.bytes;
}

/* Returns the result that holds the fields of this result: mostly another (`like`), sometimes the
 * result itself. */
static const struct eb_wire_result *find_pattern(const struct eb_wire_result *result)
{
    return result->like ? result->like : result;
}

/* Prepares a result to be written; to be called once. Returns the size of the written result. */
static size_t prepare_result(struct eb_wire_result *result)
{
    if (!result->like) {
        make_tail(result);
    }
    const struct eb_wire_result *pattern = find_pattern(result);
    struct eb_field_writer head = {.out = NULL, .bytes = pattern->tail_bytes};
    eb_field_put_number(&head, EB_FIELD_BAG_RESULT_QUERY, result->query);
    result->head_bytes = head.bytes;
    return head.bytes + pattern->values_bytes;
}

/* Copies a tail. Most have ten bytes or somewhat more. */
static void copy_tail(uint8_t *out, const uint8_t *tail, size_t bytes)
{
    if (bytes >= 8 && bytes <= 16) {
        memcpy(out, tail, 8);
        memcpy(out + bytes - 8, tail + bytes - 8, 8);
    } else {
        memcpy(out, tail, bytes);
    }
}

/* Writes a result at out + bytes. Returns the offset of its end. */
static size_t write_result(
    uint8_t *out, size_t bytes, const struct eb_wire_result *result, uint8_t **values_at)
{
    struct eb_field_writer writer = {.out = out, .bytes = bytes};
    assert(out); /* lets a compiler leave out the code that only counts */
    const struct eb_wire_result *pattern = find_pattern(result);
    eb_field_put_length(
        &writer, EB_FIELD_LOOKUP_RESPONSE_RESULTS, result->head_bytes + pattern->values_bytes);
    eb_field_put_number(&writer, EB_FIELD_BAG_RESULT_QUERY, result->query);
    if (pattern->is_tail_kept) {
        copy_tail(out + writer.bytes, pattern->tail, pattern->tail_bytes);
        writer.bytes += pattern->tail_bytes;
    } else {
        write_tail(&writer, pattern, false);
    }
    *values_at = out + writer.bytes;
    eb_field_put_content(
        &writer, result == pattern ? pattern->values : NULL, pattern->values_bytes);
    return writer.bytes;
}

static inline __attribute__((always_inline)) void write_before_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    if (response->is_timed) {
        eb_field_put_padded(writer, EB_FIELD_LOOKUP_RESPONSE_QUEUE_US, response->queue_us);
        eb_field_put_padded(writer, EB_FIELD_LOOKUP_RESPONSE_COMPUTE_US, response->compute_us);
        eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_MORE, response->more);
    }
    eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_REQUEST_ID, response->request_id);
    eb_field_put_text(writer, EB_FIELD_LOOKUP_RESPONSE_MODEL, response->model);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_VERSION, response->version);
    eb_field_put_fixed64(writer, EB_FIELD_LOOKUP_RESPONSE_DIGEST, response->digest);
    if (!response->is_timed) {
        eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_MORE, response->more);
        eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_QUEUE_US, response->queue_us);
        eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_COMPUTE_US, response->compute_us);
    }
}

static inline __attribute__((always_inline)) void write_after_results(
    struct eb_field_writer *writer, const struct eb_wire_response *response)
{
    eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_ERROR_CODE, response->error_code);
    eb_field_put_text(writer, EB_FIELD_LOOKUP_RESPONSE_ERROR_MESSAGE, response->error_message);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_RETRY_AFTER_MS, response->retry_after_ms);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_RESPONSE_INCOMPLETE, response->incomplete);
}

size_t eb_lookup_response_bytes(const struct eb_wire_response *response)
{
    struct eb_field_writer counter = {.out = NULL};
    struct eb_wire_result *results = response->results;
    size_t count = response->result_count;
    write_before_results(&counter, response);
    for (size_t i = 0; i < count; i++) {
        size_t size = prepare_result(&results[i]);
        eb_field_put_length(&counter, EB_FIELD_LOOKUP_RESPONSE_RESULTS, size);
        counter.bytes += size;
    }
    write_after_results(&counter, response);
    return counter.bytes;
}

void eb_lookup_response_encode(
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at)
{
    struct eb_field_writer writer = {.out = out};
    const struct eb_wire_result *results = response->results;
    size_t count = response->result_count;
    write_before_results(&writer, response);
    for (size_t i = 0; i < count; i++) {
        writer.bytes = write_result(out, writer.bytes, &results[i], &values_at[i]);
    }
    write_after_results(&writer, response);
}

void eb_lookup_response_set_times(uint8_t *message, uint32_t queue_us, uint32_t compute_us)
{
    assert(message[0] == EB_FIELD_LOOKUP_RESPONSE_QUEUE_US << 3);
    eb_field_set_padded(message + QUEUE_US_AT, queue_us);
    eb_field_set_padded(message + COMPUTE_US_AT, compute_us);
}

void eb_lookup_response_set_last(uint8_t *message)
{
    assert(message[MORE_AT - 1] == EB_FIELD_LOOKUP_RESPONSE_MORE << 3);
    message[MORE_AT] = 0;
}

/* ---- decoding: by hand, because protobuf-c would copy the values ---- */

/* An answer that is being read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    uint32_t field_count; /* fields of the response and its results */
};

/* Sets a general error, which is replaced if the guard finds a more exact one. Always returns
 * false. */
static bool fail_response(const struct reading *reading)
{
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "LookupResponse cannot be decoded");
    return false;
}

/* Takes the numbers of a repeated field, whose occurrences have been counted. Returns NULL if the
 * arena is exhausted. */
static const uint64_t *read_result_numbers(struct reading *reading, struct eb_field_reader message,
    uint32_t number, uint32_t field_count, size_t *count)
{
    static const uint64_t none;
    size_t bytes = 0;
    *count = 0;
    if (field_count == 0) {
        return &none;
    }
    const int64_t *numbers =
        eb_codec_read_integers(message, number, &bytes, reading->arena, reading->error);
    *count = bytes / sizeof *numbers;
    return (const uint64_t *)numbers;
}

/* What is left to be read of a result once its fields have been taken. */
struct left_fields {
    struct eb_field_reader text; /* of its error */
    uint32_t shape_count;        /* fields with numbers of its shape */
    uint32_t missing_by_query_count;
};

/* Takes a field of a result, but only counts those of repeated numbers and texts. Returns false if
 * the guard refuses the field; unknown fields pass. */
static bool take_result_field(
    const struct eb_field *field, struct eb_wire_result *out, struct left_fields *left)
{
    size_t bytes = eb_field_reader_bytes(&field->data);
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_QUERY):
        out->query = (uint32_t)field->varint;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_TYPE): out->type = eb_codec_enum_of(field); return true;
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_MISSING): out->missing = field->varint; return true;
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_UNREACHED): out->unreached = field->varint; return true;
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_MISSING_POSITIONS):
        out->missing_positions = field->data.at;
        out->missing_positions_bytes = bytes;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_ERROR_CODE):
        out->error_code = (uint32_t)field->varint;
        return true;
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_ERROR_MESSAGE):
        return eb_codec_take_name(field, &eb_codec_answer_limits, &left->text);
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_LENGTHS):
        out->lengths = field->data.at;
        out->lengths_bytes = bytes;
        return true;
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_INVERSE):
        out->inverse = field->data.at;
        out->inverse_bytes = bytes;
        return true;
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_VALUES):
        out->values = field->data.at;
        out->values_bytes = bytes;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_SHAPE):
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_SHAPE):
        left->shape_count++;
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_NUMBER(EB_FIELD_BAG_RESULT_MISSING_BY_QUERY):
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_MISSING_BY_QUERY):
        left->missing_by_query_count++;
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_FOUND):
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_WEIGHT_SUM):
    case EB_TAG_BYTES(EB_FIELD_BAG_RESULT_WEIGHT_SQUARE_SUM): return true;
    default: return field->number > EB_FIELD_BAG_RESULT_VALUES;
    }
}

static bool read_result(
    struct reading *reading, struct eb_field_reader message, struct eb_wire_result *result)
{
    struct eb_field_reader rest = message;
    struct left_fields left = {.shape_count = 0};
    size_t shape_count = 0;
    uint32_t count = 0;
    *result = (struct eb_wire_result){.query = 0};
    for (; rest.at < rest.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&rest, &field) || !take_result_field(&field, result, &left)) {
            return fail_response(reading);
        }
    }
    if (!eb_codec_count_fields(&eb_codec_answer_limits, count, &reading->field_count)) {
        return fail_response(reading);
    }
    if (result->error_code != 0) {
        result->values = NULL;
        result->values_bytes = 0;
    }
    result->error_message =
        left.text.at ? eb_codec_keep_text(left.text, reading->arena, reading->error) : "";
    result->shape = read_result_numbers(
        reading, message, EB_FIELD_BAG_RESULT_SHAPE, left.shape_count, &shape_count);
    result->shape_count = (uint32_t)shape_count;
    result->missing_by_query =
        read_result_numbers(reading, message, EB_FIELD_BAG_RESULT_MISSING_BY_QUERY,
            left.missing_by_query_count, &result->missing_by_query_count);
    return result->error_message && result->shape && result->missing_by_query;
}

static bool read_results(
    struct reading *reading, struct eb_field_reader message, struct eb_wire_response *response)
{
    struct eb_field_reader bytes;
    response->results = eb_codec_take_elements(
        reading->arena, response->result_count, sizeof *response->results, reading->error);
    bool is_sound = response->results;
    for (size_t i = 0;
         is_sound && eb_codec_find_field(&message, EB_FIELD_LOOKUP_RESPONSE_RESULTS, &bytes); i++) {
        is_sound = read_result(reading, bytes, &response->results[i]);
    }
    return is_sound;
}

/* The texts of an answer. */
struct texts {
    struct eb_field_reader model;
    struct eb_field_reader error;
};

/* Takes a field of an answer. Leaves texts in *texts, for the caller to copy. Only counts results.
 * Returns false if the guard refuses the field; unknown fields pass. */
static bool take_response_field(
    const struct eb_field *field, struct eb_wire_response *out, struct texts *texts)
{
    uint64_t value = field->varint;
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_REQUEST_ID): out->request_id = value; return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_RESPONSE_MODEL):
        return eb_codec_take_name(field, &eb_codec_answer_limits, &texts->model);
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_VERSION): out->version = value; return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_RESPONSE_RESULTS): out->result_count++; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_MORE): out->more = value != 0; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_ERROR_CODE):
        out->error_code = (uint32_t)value;
        return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_RESPONSE_ERROR_MESSAGE):
        return eb_codec_take_name(field, &eb_codec_answer_limits, &texts->error);
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_RETRY_AFTER_MS):
        out->retry_after_ms = (uint32_t)value;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_QUEUE_US):
        out->queue_us = (uint32_t)value;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_COMPUTE_US):
        out->compute_us = (uint32_t)value;
        return true;
    case EB_TAG_FIXED64(EB_FIELD_LOOKUP_RESPONSE_DIGEST):
        memcpy(&out->digest, field->data.at, sizeof out->digest);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_SEQUENCE):
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_SHARD_EPOCH): return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_RESPONSE_INCOMPLETE):
        out->incomplete = value != 0;
        return true;
    default: return field->number > EB_FIELD_LOOKUP_RESPONSE_MAX;
    }
}

static struct eb_wire_response *read_response(
    struct reading *reading, struct eb_field_reader message)
{
    struct eb_field_reader rest = message;
    struct texts texts = {.model = {.at = NULL}};
    uint32_t count = 0;
    bool is_sound = true;
    struct eb_wire_response *response =
        eb_codec_take_elements(reading->arena, 1, sizeof *response, reading->error);
    if (!response) {
        return NULL;
    }
    *response = (struct eb_wire_response){.request_id = 0};
    for (; rest.at < rest.end && is_sound; count++) {
        struct eb_field field;
        is_sound =
            !eb_field_reader_read(&rest, &field) && take_response_field(&field, response, &texts);
    }
    if (!is_sound ||
        !eb_codec_count_fields(&eb_codec_answer_limits, count, &reading->field_count)) {
        (void)fail_response(reading);
        return NULL;
    }
    response->model = eb_codec_keep_text(texts.model, reading->arena, reading->error);
    response->error_message = eb_codec_keep_text(texts.error, reading->arena, reading->error);
    bool is_whole =
        response->model && response->error_message && read_results(reading, message, response);
    return is_whole ? response : NULL;
}

/* The guard would accept every answer that is read to its end, so it is not called then. Otherwise
 * the guard checks all bytes, and an error that the guard finds takes precedence. */
struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct reading reading = {.arena = arena, .error = error};
    struct eb_wire_response *response = read_response(&reading, eb_field_reader_of(bytes, size));
    if (!response) {
        (void)eb_guard_check(
            &embag__v1__lookup_response__descriptor, bytes, size, &eb_codec_answer_limits, error);
    }
    return response;
}
