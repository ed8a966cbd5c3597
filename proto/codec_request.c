/* LookupRequest, GetModelRequest and the requests without fields. */
#include "proto/codec.h"
#include "proto/codec_group.h"
#include "proto/codec_query.h"
#include "proto/field.h"
#include "proto/unpack.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <inttypes.h>

/* Fields of a request beside those of its queries: room for those that a client of a later version
 * sends, and for a small array whose elements come one by one. */
#define OTHER_FIELDS_MAX 4096u
#define QUERY_FIELDS_MAX 64u

/* What decoding one query takes from the arena beyond a multiple of its bytes. */
#define QUERY_ARENA_BYTES 2048u
#define ARENA_PER_BYTE 4u
#define ARENA_BYTES_MIN ((size_t)64 << 10)
#define QUERY_BYTES_MIN 2u /* on the wire: tag and length */

#define PRIORITY_MAX 1u
#define TIMEOUT_US_FIELD 9

#define QUERIES_FIELD 4
#define GROUPS_FIELD 8

static const enum eb_codec_kind kinds[EB_CODEC_FIELDS_END] = {
    [1] = EB_CODEC_NUMBER,
    [2] = EB_CODEC_NAME,
    [3] = EB_CODEC_NUMBER,
    [QUERIES_FIELD] = EB_CODEC_BYTES,
    [5] = EB_CODEC_NUMBER,
    [6] = EB_CODEC_NUMBER,
    [7] = EB_CODEC_NUMBER,
    [GROUPS_FIELD] = EB_CODEC_BYTES,
    [9] = EB_CODEC_NUMBER,
    [10] = EB_CODEC_NUMBER,
    [11] = EB_CODEC_NUMBER,
    [12] = EB_CODEC_NUMBER,
    [13] = EB_CODEC_NUMBER,
    [14] = EB_CODEC_NUMBER,
    [15] = EB_CODEC_NUMBER,
    [16] = EB_CODEC_NAME,
    [17] = EB_CODEC_NUMBER,
    [18] = EB_CODEC_NAME,
    [19] = EB_CODEC_NUMBER,
};

/* A request that is read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    struct eb_guard_limits limits;
    struct eb_codec_fields fields;
    uint32_t field_count; /* of the request and its elements */
    bool is_faulty;       /* something was not read, or the guard has the word */
};

/* Pointers, and names as they are rounded. */
#define NOTES_BYTES 256u
static_assert(
    sizeof(struct eb_wire_query) + sizeof(struct eb_error) + NOTES_BYTES <= QUERY_ARENA_BYTES,
    "a query, and the fault that is found in it, must fit");
/* A group may be there for every feature, and counts for none. */
static_assert(
    sizeof(struct eb_wire_group) + sizeof(struct eb_error) + 2 * NOTES_BYTES <= QUERY_ARENA_BYTES,
    "so must a group with one feature");

size_t eb_lookup_request_arena_bytes(size_t size, const struct eb_codec_limits *limits)
{
    size_t query_count = size / QUERY_BYTES_MIN;
    query_count = query_count < limits->queries_max ? query_count : limits->queries_max;
    return ARENA_BYTES_MIN + ARENA_PER_BYTE * size + query_count * QUERY_ARENA_BYTES;
}

static struct eb_guard_limits request_limits(const struct eb_codec_limits *limits)
{
    uint64_t fields = OTHER_FIELDS_MAX + (uint64_t)limits->queries_max * QUERY_FIELDS_MAX;
    return (struct eb_guard_limits){
        .fields_max = fields < UINT32_MAX ? (uint32_t)fields : UINT32_MAX,
        .name_bytes_max = limits->name_bytes_max,
        .submessages_max = limits->queries_max,
    };
}

/* Declared, and refused where set until they are built. */
static bool check_unbuilt(const struct eb_codec_fields *fields, struct eb_error *error)
{
    static const struct {
        const char *field;
        uint32_t number;
    } unbuilt[] = {
        {"unnormalized", 13},
        {"min_sequence", 14},
        {"shard_epoch", 15},
        {"traceparent", 16},
        {"version_label", 18},
        {"allow_incomplete", 19},
    };
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        if (eb_codec_fields_value(fields, unbuilt[i].number) != 0) {
            eb_error_set(error, EB_STATUS_UNIMPLEMENTED, "%s is not implemented", unbuilt[i].field);
            return false;
        }
    }
    return true;
}

/* Queries, and features of all groups. */
static size_t count_queries(const struct eb_codec_fields *fields)
{
    struct eb_field_reader message = fields->message;
    size_t count = fields->counts[QUERIES_FIELD];
    for (uint32_t i = 0; i < fields->counts[GROUPS_FIELD]; i++) {
        count += eb_field_reader_count(
            eb_codec_fields_next(&message, GROUPS_FIELD), EB_CODEC_GROUP_FEATURES_FIELD);
    }
    return count;
}

/* What concerns the request as a whole. */
static bool check_request(const struct eb_codec_fields *fields,
    const struct eb_codec_limits *limits, struct eb_error *error)
{
    const size_t count = count_queries(fields);
    const uint32_t priority = (uint32_t)eb_codec_fields_value(fields, 17);
    const int32_t output_type = eb_codec_fields_enum(fields, 5);
    if (count > limits->queries_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%zu queries and features of groups are more than a request may have, %" PRIu32, count,
            limits->queries_max);
        return false;
    }
    if (priority > PRIORITY_MAX) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "priority = %" PRIu32 ": priority is 0 (interactive) or 1 (batch)", priority);
        return false;
    }
    if (!eb_codec_form_is_value(&embag__v1__data_type__descriptor, output_type)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "output_type = %" PRId32 " is no value of DataType", output_type);
        return false;
    }
    return true;
}

/* The fault, to be kept as long as the request. NULL: it is no query's, but the whole request's. */
static const struct eb_error *keep_fault(struct reading *reading, const struct eb_error *fault)
{
    reading->is_faulty = true;
    if (fault->status != EB_STATUS_INVALID_ARGUMENT) {
        *reading->error = *fault;
        return NULL;
    }
    struct eb_error *kept = eb_unpack_take(reading->arena, 1, sizeof *kept, reading->error);
    if (kept) {
        *kept = *fault;
    }
    return kept;
}

/* The place of an element, which reports to `fault`. */
static struct eb_codec_place place_of(
    struct reading *reading, const char *list, size_t index, struct eb_error *fault)
{
    return (struct eb_codec_place){
        .list = list,
        .index = index,
        .name = "",
        .arena = reading->arena,
        .error = fault,
        .limits = &reading->limits,
        .field_count = &reading->field_count,
    };
}

/* Reads queries up to the first faulty one, or all of them with errors_per_query, and keeps their
 * faults: the caller reports the first fault of all, and one that only the tables can tell may come
 * before it. false: the error is set. */
static bool read_queries(struct reading *reading, struct eb_wire_request *request)
{
    struct eb_error fault;
    struct eb_field_reader message = reading->fields.message;
    const size_t count = reading->fields.counts[QUERIES_FIELD];
    request->queries =
        eb_unpack_take(reading->arena, count, sizeof *request->queries, reading->error);
    if (!request->queries) {
        return false;
    }
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        struct eb_codec_place place = place_of(reading, "queries", i, &fault);
        struct eb_wire_query *query = &request->queries[i];
        request->query_count = i + 1;
        if (eb_codec_query_read(&place, eb_codec_fields_next(&message, QUERIES_FIELD), query)) {
            continue;
        }
        query->fault = keep_fault(reading, &fault);
        if (!query->fault) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    return true;
}

/* As read_queries, unless a query has ended the request. */
static bool read_groups(struct reading *reading, struct eb_wire_request *request)
{
    struct eb_error fault;
    struct eb_field_reader message = reading->fields.message;
    const size_t count = reading->fields.counts[GROUPS_FIELD];
    request->groups =
        eb_unpack_take(reading->arena, count, sizeof *request->groups, reading->error);
    if (!request->groups) {
        return false;
    }
    bool goes_on = !reading->is_faulty || request->errors_per_query;
    for (size_t i = 0; i < count && goes_on; i++) {
        struct eb_codec_place place = place_of(reading, "groups", i, &fault);
        struct eb_wire_group *group = &request->groups[i];
        request->group_count = i + 1;
        if (eb_codec_group_read(&place, eb_codec_fields_next(&message, GROUPS_FIELD), group)) {
            continue;
        }
        group->fault = keep_fault(reading, &fault);
        if (!group->fault) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    return true;
}

/* The fields of the request itself. */
static bool read_fields(struct reading *reading, struct eb_field_reader message)
{
    const struct eb_codec_rules rules = {kinds, &reading->limits, &reading->field_count};
    const uint32_t *counts = reading->fields.counts;
    if (eb_codec_fields_init(&reading->fields, message, &rules) &&
        (uint64_t)counts[QUERIES_FIELD] + counts[GROUPS_FIELD] <= reading->limits.submessages_max) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "LookupRequest cannot be read");
    return false;
}

/* NULL: the error is set, unless the guard knows better. */
static struct eb_wire_request *read_request(
    struct reading *reading, struct eb_field_reader message, const struct eb_codec_limits *limits)
{
    const struct eb_codec_fields *fields = &reading->fields;
    if (!read_fields(reading, message) || !check_unbuilt(fields, reading->error) ||
        !check_request(fields, limits, reading->error)) {
        return NULL;
    }
    struct eb_wire_request *request =
        eb_unpack_take(reading->arena, 1, sizeof *request, reading->error);
    const char *model =
        request ? eb_codec_fields_text(fields, 2, reading->arena, reading->error) : NULL;
    if (!model) {
        return NULL;
    }
    *request = (struct eb_wire_request){
        .request_id = eb_codec_fields_value(fields, 1),
        .model = model,
        .version = eb_codec_fields_value(fields, 3),
        .timeout_us = eb_codec_fields_value(fields, 9),
        .output_type = eb_codec_fields_enum(fields, 5),
        .concat = eb_codec_fields_value(fields, 6) != 0,
        .partial = eb_codec_fields_value(fields, 7) != 0,
        .cancel = eb_codec_fields_value(fields, 10) != 0,
        .errors_per_query = eb_codec_fields_value(fields, 11) != 0,
        .report_missing = eb_codec_fields_value(fields, 12) != 0,
        .priority = (uint32_t)eb_codec_fields_value(fields, 17),
    };
    return read_queries(reading, request) && read_groups(reading, request) ? request : NULL;
}

/* What has been read without fault to its end has nothing that the guard refuses; where there is a
 * fault, the guard, which looks at all bytes, comes first. */
struct eb_wire_request *eb_lookup_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    struct reading reading;
    reading.arena = arena;
    reading.error = &failure->error;
    reading.limits = request_limits(limits);
    reading.field_count = 0;
    reading.is_faulty = false;
    struct eb_wire_request *request =
        read_request(&reading, eb_field_reader_of(bytes, size), limits);
    if ((!request || reading.is_faulty) && !eb_guard_check(&embag__v1__lookup_request__descriptor,
                                               bytes, size, &reading.limits, &failure->error)) {
        request = NULL;
    }
    if (!request) {
        failure->request_id = eb_guard_find_varint(bytes, size, 1);
        failure->cancel = eb_guard_find_varint(bytes, size, 10) != 0;
        failure->undecodable = failure->error.status == EB_STATUS_INTERNAL;
    }
    return request;
}

struct eb_wire_model_query *eb_model_query_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error)
{
    const struct eb_unpack_input input = {
        &embag__v1__get_model_request__descriptor, bytes, size, request_limits(limits)};
    const Embag__V1__GetModelRequest *message = eb_unpack_message(arena, &input, error);
    struct eb_wire_model_query *query =
        message ? eb_unpack_take(arena, 1, sizeof *query, error) : NULL;
    if (query) {
        *query = (struct eb_wire_model_query){message->model, message->version};
    }
    return query;
}

bool eb_empty_decode(const uint8_t *bytes, size_t size, struct eb_error *error)
{
    const struct eb_guard_limits limits = {.fields_max = OTHER_FIELDS_MAX};
    return eb_guard_check(&embag__v1__list_models_request__descriptor, bytes, size, &limits, error);
}

static size_t query_bytes(const struct eb_wire_query *query)
{
    struct eb_field_writer counter = {.out = NULL};
    eb_codec_query_write(&counter, query);
    return counter.bytes;
}

static size_t group_bytes(const struct eb_wire_group *group)
{
    struct eb_field_writer counter = {.out = NULL};
    eb_codec_group_write(&counter, group);
    return counter.bytes;
}

static uint32_t clamp_timeout(uint64_t timeout_us)
{
    return timeout_us < UINT32_MAX ? (uint32_t)timeout_us : UINT32_MAX;
}

static void write_request(struct eb_field_writer *writer, const struct eb_wire_request *request)
{
    eb_field_put_number(writer, 1, request->request_id);
    eb_field_put_text(writer, 2, request->model);
    eb_field_put_number(writer, 3, request->version);
    for (size_t i = 0; i < request->query_count; i++) {
        eb_field_put_length(writer, 4, query_bytes(&request->queries[i]));
        eb_codec_query_write(writer, &request->queries[i]);
    }
    eb_field_put_enum(writer, 5, request->output_type);
    eb_field_put_number(writer, 6, request->concat);
    eb_field_put_number(writer, 7, request->partial);
    for (size_t i = 0; i < request->group_count; i++) {
        eb_field_put_length(writer, 8, group_bytes(&request->groups[i]));
        eb_codec_group_write(writer, &request->groups[i]);
    }
    eb_field_put_number(writer, TIMEOUT_US_FIELD, request->is_timed ? 0 : request->timeout_us);
    eb_field_put_number(writer, 10, request->cancel);
    eb_field_put_number(writer, 11, request->errors_per_query);
    eb_field_put_number(writer, 12, request->report_missing);
    eb_field_put_number(writer, 17, request->priority);
    if (request->is_timed) {
        eb_field_put_padded(writer, TIMEOUT_US_FIELD, clamp_timeout(request->timeout_us));
    }
}

size_t eb_lookup_request_bytes(const struct eb_wire_request *request)
{
    struct eb_field_writer counter = {.out = NULL};
    write_request(&counter, request);
    return counter.bytes;
}

void eb_lookup_request_encode(const struct eb_wire_request *request, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_request(&writer, request);
}

void eb_lookup_request_set_timeout(uint8_t *message, size_t size, uint64_t timeout_us)
{
    uint8_t *at = message + size - EB_FIELD_PADDED_BYTES;
    assert(at[-1] == TIMEOUT_US_FIELD << 3);
    eb_field_set_padded(at, clamp_timeout(timeout_us));
}
