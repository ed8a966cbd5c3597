/* LookupRequest, GetModelRequest and the requests without fields. */
#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/codec_query.h"
#include "proto/field.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Largest number of fields of a request, besides QUERY_FIELDS_MAX for each query. Leaves room for
 * fields that a client of a later version sends, and for a small array whose elements come one by
 * one. */
#define OTHER_FIELDS_MAX 4096u
#define QUERY_FIELDS_MAX 64u

/* Arena bytes to decode one query, in addition to a multiple of its size. */
#define QUERY_ARENA_BYTES 2048u
#define ARENA_PER_BYTE 4u
#define ARENA_BYTES_MIN ((size_t)64 << 10)
#define QUERY_BYTES_MIN 2u /* smallest query or feature name on the wire: a tag and a length */

#define PRIORITY_MAX 1u
#define ATTEMPT_MAX 127u /* written in one byte */

/* A request that is being read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    struct eb_guard_limits limits;
    const struct eb_codec_limits *caps;
    struct eb_field_reader message;
    struct eb_field_reader model;
    struct eb_field_reader label;
    struct eb_field_reader traceparent;
    size_t query_count; /* queries in the message */
    size_t group_count; /* groups in the message */
    size_t group_bytes;
    uint32_t unbuilt;     /* bit n: field n, which is not built, is set */
    uint32_t field_count; /* fields of the request and its elements */
    bool is_bad;          /* something was not read, or the guard must explain the failure */
};

/* Arena bytes for pointers, and for rounding up the sizes of names. */
#define NOTES_BYTES 256u
static_assert(
    sizeof(struct eb_wire_query) + sizeof(struct eb_error) + NOTES_BYTES <= QUERY_ARENA_BYTES,
    "a query and its error must fit");
/* There may be as many groups as features, and the arena's cap has no allowance for groups. */
static_assert(
    sizeof(struct eb_wire_group) + sizeof(struct eb_error) + 2 * NOTES_BYTES <= QUERY_ARENA_BYTES,
    "a group with one feature, and its error, must fit");

size_t eb_lookup_request_arena_bytes(size_t size, const struct eb_codec_limits *limits)
{
    size_t query_count = size / QUERY_BYTES_MIN;
    query_count = query_count < limits->queries_max ? query_count : limits->queries_max;
    return ARENA_BYTES_MIN + ARENA_PER_BYTE * size + query_count * QUERY_ARENA_BYTES;
}

static struct eb_guard_limits lookup_request_limits(const struct eb_codec_limits *limits)
{
    uint64_t fields = OTHER_FIELDS_MAX + (uint64_t)limits->queries_max * QUERY_FIELDS_MAX;
    return (struct eb_guard_limits){
        .fields_max = fields < UINT32_MAX ? (uint32_t)fields : UINT32_MAX,
        .name_bytes_max = limits->name_bytes_max,
        .submessages_max = limits->queries_max,
    };
}

/* Declared fields that are not built. A request that sets one is refused. */
static const char *const unbuilt_names[] = {
    [EB_FIELD_LOOKUP_REQUEST_UNNORMALIZED] = "unnormalized",
    [EB_FIELD_LOOKUP_REQUEST_MIN_SEQUENCE] = "min_sequence",
    [EB_FIELD_LOOKUP_REQUEST_SHARD_EPOCH] = "shard_epoch",
};

static bool check_unbuilt(const struct reading *reading)
{
    if (reading->unbuilt == 0) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_UNIMPLEMENTED, "%s is not implemented",
        unbuilt_names[__builtin_ctz(reading->unbuilt)]);
    return false;
}

/* Returns the number of queries and features of all groups. If an upper bound that is cheap to
 * compute is at most `max`, may return that bound instead. */
static size_t count_queries(const struct reading *reading, size_t max)
{
    size_t count_max = reading->query_count + reading->group_bytes / QUERY_BYTES_MIN;
    if (count_max <= max) {
        return count_max;
    }
    struct eb_field_reader message = reading->message;
    struct eb_field_reader group;
    size_t count = reading->query_count;
    for (size_t i = 0; i < reading->group_count; i++) {
        if (eb_codec_find_field(&message, EB_FIELD_LOOKUP_REQUEST_GROUPS, &group)) {
            count += eb_field_reader_count(group, EB_FIELD_FEATURE_GROUP_FEATURES);
        }
    }
    return count;
}

/* Checks the request as a whole. */
static bool check_request(const struct reading *reading, const struct eb_wire_request *request)
{
    struct eb_error *error = reading->error;
    uint32_t count_max = reading->caps->queries_max;
    size_t count = count_queries(reading, count_max);
    if (request->version != 0 && reading->label.at < reading->label.end) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "version and version_label are both given: give only one");
        return false;
    }
    if (count > count_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%zu queries and features of groups; a request may have at most %" PRIu32, count,
            count_max);
        return false;
    }
    if (request->priority > PRIORITY_MAX) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "priority = %" PRIu32 ": expected 0 (interactive) or 1 (batch)", request->priority);
        return false;
    }
    if (!eb_codec_is_value(&embag__v1__data_type__descriptor, request->output_type)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "output_type = %" PRId32 " is not a value of DataType", request->output_type);
        return false;
    }
    return true;
}

/* Stores a query's error in the arena. Returns NULL with the request's error set if the error
 * concerns the whole request, or if the arena is exhausted. */
static const struct eb_error *keep_lookup_error(
    struct reading *reading, const struct eb_error *error)
{
    reading->is_bad = true;
    if (error->status != EB_STATUS_INVALID_ARGUMENT) {
        *reading->error = *error;
        return NULL;
    }
    struct eb_error *kept = eb_codec_take_elements(reading->arena, 1, sizeof *kept, reading->error);
    if (kept) {
        *kept = *error;
    }
    return kept;
}

/* Returns the position for the elements of a list, with errors to be stored in *error. The caller
 * still has to set the index and the name. */
static struct eb_codec_position position_of_query(
    struct reading *reading, const char *list, struct eb_error *error)
{
    return (struct eb_codec_position){
        .list = list,
        .arena = reading->arena,
        .error = error,
        .limits = &reading->limits,
        .field_count = &reading->field_count,
        .known = reading->caps->known,
        .known_count = reading->caps->known_count,
    };
}

/* Reads queries up to the first with an error, or all of them with errors_per_query. Stores each
 * error in its query, because the caller reports the first error of all, and an earlier query may
 * have an error that only the tables can reveal. Returns false with the request's error set if the
 * request as a whole fails. */
static bool read_queries(struct reading *reading, struct eb_wire_request *request)
{
    struct eb_error error;
    struct eb_field_reader message = reading->message;
    size_t count = reading->query_count;
    struct eb_codec_position position = position_of_query(reading, "queries", &error);
    struct eb_wire_query *queries =
        eb_codec_take_elements(reading->arena, count, sizeof *queries, reading->error);
    if (!queries) {
        return false;
    }
    request->queries = queries;
    bool goes_on = true;
    while (goes_on && !eb_codec_query_read_all(&position, &message, queries, count)) {
        struct eb_wire_query *query = &queries[position.index++];
        query->error = keep_lookup_error(reading, &error);
        if (!query->error) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    request->query_count = position.index;
    return true;
}

/* Does the same as read_queries for groups. Reads none if a query has an error, unless
 * errors_per_query is set. */
static bool read_lookup_groups(struct reading *reading, struct eb_wire_request *request)
{
    struct eb_error error;
    struct eb_field_reader message = reading->message;
    struct eb_field_reader bytes;
    size_t count = reading->group_count;
    struct eb_codec_position position = position_of_query(reading, "groups", &error);
    request->groups =
        eb_codec_take_elements(reading->arena, count, sizeof *request->groups, reading->error);
    if (!request->groups) {
        return false;
    }
    bool goes_on = !reading->is_bad || request->errors_per_query;
    for (size_t i = 0; goes_on && i < count &&
                       eb_codec_find_field(&message, EB_FIELD_LOOKUP_REQUEST_GROUPS, &bytes);
         i++) {
        position.index = i;
        struct eb_wire_group *group = &request->groups[i];
        request->group_count = i + 1;
        if (eb_codec_group_read(&position, bytes, group)) {
            continue;
        }
        group->error = keep_lookup_error(reading, &error);
        if (!group->error) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    return true;
}

/* Notes whether a field that is not built is set. Always returns true. */
static bool take_unbuilt(struct reading *reading, const struct eb_field *field, bool is_set)
{
    uint32_t bit = UINT32_C(1) << field->number;
    reading->unbuilt = is_set ? reading->unbuilt | bit : reading->unbuilt & ~bit;
    return true;
}

/* Takes a field of the request itself. If several have the same number, the last one is used.
 * Returns false if the guard refuses the field; unknown fields pass. */
static bool take_lookup_field(
    struct reading *reading, const struct eb_field *field, struct eb_wire_request *out)
{
    uint64_t value = field->varint;
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_REQUEST_ID): out->request_id = value; return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_REQUEST_MODEL):
        return eb_codec_take_name(field, &reading->limits, &reading->model);
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_VERSION): out->version = value; return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_REQUEST_QUERIES): reading->query_count++; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_OUTPUT_TYPE):
        out->output_type = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_CONCAT): out->concat = value != 0; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_PARTIAL): out->partial = value != 0; return true;
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_REQUEST_GROUPS):
        reading->group_count++;
        reading->group_bytes += eb_field_reader_bytes(&field->data);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_TIMEOUT_US): out->timeout_us = value; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_CANCEL): out->cancel = value != 0; return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_ERRORS_PER_QUERY):
        out->errors_per_query = value != 0;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_REPORT_MISSING):
        out->report_missing = value != 0;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_PRIORITY):
        out->priority = (uint32_t)value;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_ALLOW_INCOMPLETE):
        out->allow_incomplete = value != 0;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_ATTEMPT):
        out->attempt = (uint32_t)value;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_UNNORMALIZED):
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_MIN_SEQUENCE):
    case EB_TAG_NUMBER(EB_FIELD_LOOKUP_REQUEST_SHARD_EPOCH):
        return take_unbuilt(reading, field, value != 0);
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_REQUEST_VERSION_LABEL):
        return eb_codec_take_name(field, &reading->limits, &reading->label);
    case EB_TAG_BYTES(EB_FIELD_LOOKUP_REQUEST_TRACEPARENT):
        return eb_codec_take_name(field, &reading->limits, &reading->traceparent);
    default: return field->number > EB_FIELD_LOOKUP_REQUEST_MAX;
    }
}

/* Reads the fields of the request itself. */
static bool read_lookup_fields(struct reading *reading, struct eb_wire_request *out)
{
    struct eb_field_reader message = reading->message;
    struct eb_field_reader query;
    uint32_t count = 0;
    bool is_sound = true;
    for (; message.at < message.end && is_sound; count++) {
        struct eb_field field;
        /* Most fields are queries. */
        if (eb_field_reader_take_next(&message, EB_FIELD_LOOKUP_REQUEST_QUERIES, &query)) {
            reading->query_count++;
            continue;
        }
        is_sound =
            !eb_field_reader_read(&message, &field) && take_lookup_field(reading, &field, out);
    }
    if (is_sound && eb_codec_count_fields(&reading->limits, count, &reading->field_count) &&
        reading->query_count + reading->group_count <= reading->limits.submessages_max) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "LookupRequest cannot be decoded");
    return false;
}

/* Returns NULL with the error set, unless the guard must explain the failure. */
static struct eb_wire_request *read_lookup_request(struct reading *reading)
{
    struct eb_wire_request *request =
        eb_codec_take_elements(reading->arena, 1, sizeof *request, reading->error);
    if (!request) {
        return NULL;
    }
    memset(request, 0, sizeof *request);
    if (!read_lookup_fields(reading, request) || !check_unbuilt(reading) ||
        !check_request(reading, request)) {
        return NULL;
    }
    request->traceparent = (const char *)reading->traceparent.at;
    request->traceparent_bytes = eb_field_reader_bytes(&reading->traceparent);
    request->model = eb_codec_keep_text(reading->model, reading->arena, reading->error);
    request->version_label = eb_codec_keep_text(reading->label, reading->arena, reading->error);
    return request->model && request->version_label && read_queries(reading, request) &&
                   read_lookup_groups(reading, request)
               ? request
               : NULL;
}

/* The guard would accept every request that is read to its end without an error, so it is not
 * called then. After an error, the guard checks the whole message, and an error that the guard
 * finds takes precedence. */
struct eb_wire_request *eb_lookup_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    struct reading reading = {
        .arena = arena,
        .error = &failure->error,
        .limits = lookup_request_limits(limits),
        .caps = limits,
        .message = eb_field_reader_of(bytes, size),
    };
    struct eb_wire_request *request = read_lookup_request(&reading);
    if ((!request || reading.is_bad) && !eb_guard_check(&embag__v1__lookup_request__descriptor,
                                            bytes, size, &reading.limits, &failure->error)) {
        request = NULL;
    }
    if (!request) {
        failure->request_id = eb_guard_find_varint(bytes, size, EB_FIELD_LOOKUP_REQUEST_REQUEST_ID);
        failure->cancel = eb_guard_find_varint(bytes, size, EB_FIELD_LOOKUP_REQUEST_CANCEL) != 0;
        failure->undecodable = failure->error.status == EB_STATUS_INTERNAL;
        failure->traceparent = (const char *)reading.traceparent.at;
        failure->traceparent_bytes = eb_field_reader_bytes(&reading.traceparent);
    }
    return request;
}

struct eb_wire_model_query *eb_model_query_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__get_model_request__descriptor, bytes, size, lookup_request_limits(limits)};
    const Embag__V1__GetModelRequest *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_model_query *query =
        message ? eb_codec_take_elements(arena, 1, sizeof *query, error) : NULL;
    if (query) {
        *query = (struct eb_wire_model_query){message->model, message->version};
    }
    return query;
}

bool eb_empty_decode(const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_guard_limits limits = {.fields_max = OTHER_FIELDS_MAX};
    return eb_guard_check(&embag__v1__list_models_request__descriptor, bytes, size, &limits, error);
}

static size_t query_bytes(const struct eb_wire_query *query)
{
    struct eb_field_writer counter = {.out = NULL};
    eb_codec_query_write(&counter, query);
    return counter.bytes;
}

static size_t measure_request_group(const struct eb_wire_group *group)
{
    struct eb_field_writer counter = {.out = NULL};
    eb_codec_group_write(&counter, group);
    return counter.bytes;
}

static uint32_t clamp_timeout(uint64_t timeout_us)
{
    return timeout_us < UINT32_MAX ? (uint32_t)timeout_us : UINT32_MAX;
}

static uint8_t clamp_attempt(uint32_t attempt)
{
    return attempt < ATTEMPT_MAX ? (uint8_t)attempt : ATTEMPT_MAX;
}

static void write_lookup_request(
    struct eb_field_writer *writer, const struct eb_wire_request *request)
{
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_REQUEST_ID, request->request_id);
    eb_field_put_text(writer, EB_FIELD_LOOKUP_REQUEST_MODEL, request->model);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_VERSION, request->version);
    for (size_t i = 0; i < request->query_count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_LOOKUP_REQUEST_QUERIES, query_bytes(&request->queries[i]));
        eb_codec_query_write(writer, &request->queries[i]);
    }
    eb_field_put_enum(writer, EB_FIELD_LOOKUP_REQUEST_OUTPUT_TYPE, request->output_type);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_CONCAT, request->concat);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_PARTIAL, request->partial);
    for (size_t i = 0; i < request->group_count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_LOOKUP_REQUEST_GROUPS, measure_request_group(&request->groups[i]));
        eb_codec_group_write(writer, &request->groups[i]);
    }
    eb_field_put_number(
        writer, EB_FIELD_LOOKUP_REQUEST_TIMEOUT_US, request->is_timed ? 0 : request->timeout_us);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_CANCEL, request->cancel);
    eb_field_put_number(
        writer, EB_FIELD_LOOKUP_REQUEST_ERRORS_PER_QUERY, request->errors_per_query);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_REPORT_MISSING, request->report_missing);
    eb_field_put_bytes(writer, EB_FIELD_LOOKUP_REQUEST_TRACEPARENT, request->traceparent,
        request->traceparent_bytes);
    eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_PRIORITY, request->priority);
    if (request->version_label) {
        eb_field_put_text(writer, EB_FIELD_LOOKUP_REQUEST_VERSION_LABEL, request->version_label);
    }
    eb_field_put_number(
        writer, EB_FIELD_LOOKUP_REQUEST_ALLOW_INCOMPLETE, request->allow_incomplete);
    if (!request->is_timed) {
        eb_field_put_number(writer, EB_FIELD_LOOKUP_REQUEST_ATTEMPT, request->attempt);
    } else {
        eb_field_put_present(
            writer, EB_FIELD_LOOKUP_REQUEST_ATTEMPT, clamp_attempt(request->attempt));
        eb_field_put_padded(
            writer, EB_FIELD_LOOKUP_REQUEST_TIMEOUT_US, clamp_timeout(request->timeout_us));
    }
}

size_t eb_lookup_request_bytes(const struct eb_wire_request *request)
{
    struct eb_field_writer counter = {.out = NULL};
    write_lookup_request(&counter, request);
    return counter.bytes;
}

void eb_lookup_request_encode(const struct eb_wire_request *request, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_lookup_request(&writer, request);
}

void eb_lookup_request_set_timeout(uint8_t *message, size_t size, uint64_t timeout_us)
{
    uint8_t *at = message + size - EB_FIELD_PADDED_BYTES;
    assert(at[-1] == EB_FIELD_LOOKUP_REQUEST_TIMEOUT_US << 3);
    eb_field_set_padded(at, clamp_timeout(timeout_us));
}

void eb_lookup_request_set_attempt(uint8_t *message, size_t size, uint32_t attempt)
{
    uint8_t *at = message + size - EB_FIELD_PADDED_BYTES - 2; /* the timeout's tag is between */
    assert(at[1] == EB_FIELD_LOOKUP_REQUEST_TIMEOUT_US << 3);
    assert(at[0] <= ATTEMPT_MAX);
    at[0] = clamp_attempt(attempt);
}
