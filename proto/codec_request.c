/* LookupRequest, GetModelRequest and the requests without fields. */
#include "proto/codec.h"
#include "proto/codec_form.h"
#include "proto/codec_group.h"
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

/* Pointers, and what protobuf-c notes of fields while it scans. */
#define NOTES_BYTES 256u
static_assert(sizeof(Embag__V1__BagQuery) + sizeof(struct eb_wire_query) + sizeof(struct eb_error) +
                      NOTES_BYTES <=
                  QUERY_ARENA_BYTES,
    "both forms of a query, the fault that is found in it, and notes must fit");
/* A group may be there for every feature, and counts for none. */
static_assert(sizeof(Embag__V1__FeatureGroup) + sizeof(struct eb_wire_group) +
                      sizeof(struct eb_error) + 2 * NOTES_BYTES <=
                  QUERY_ARENA_BYTES,
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

static bool check_enums(const struct eb_codec_place *place, const Embag__V1__BagQuery *query)
{
    const struct eb_codec_enum enums[] = {
        {"reduction", (int)query->reduction, &embag__v1__reduction__descriptor},
        {"missing", (int)query->missing, &embag__v1__missing__descriptor},
        {"weights_type", (int)query->weights_type, &embag__v1__data_type__descriptor},
        {"layout", (int)query->layout, &embag__v1__bag_layout__descriptor},
    };
    return eb_codec_form_check_enums(place, enums, sizeof enums / sizeof *enums);
}

static struct eb_wire_array form_of_repeated(const char *field, const int64_t *values, size_t count)
{
    return (struct eb_wire_array){values, count * sizeof *values, sizeof *values, field};
}

static bool choose_arrays(
    const struct eb_codec_place *place, const Embag__V1__BagQuery *query, struct eb_wire_query *out)
{
    const struct eb_wire_array indices[] = {
        eb_codec_form_of_bytes("indices_i64", query->indices_i64, 8),
        eb_codec_form_of_bytes("indices_i32", query->indices_i32, 4),
        form_of_repeated("indices", query->indices, query->n_indices),
    };
    const struct eb_wire_array offsets[] = {
        eb_codec_form_of_bytes("offsets_i64", query->offsets_i64, 8),
        eb_codec_form_of_bytes("offsets_i32", query->offsets_i32, 4),
        form_of_repeated("offsets", query->offsets, query->n_offsets),
    };
    const struct eb_wire_array lengths[] = {
        eb_codec_form_of_bytes("lengths_i32", query->lengths_i32, 4),
        eb_codec_form_of_bytes("lengths_i64", query->lengths_i64, 8),
    };
    const struct eb_wire_array segment_ids[] = {
        eb_codec_form_of_bytes("segment_ids_i64", query->segment_ids_i64, 8),
        eb_codec_form_of_bytes("segment_ids_i32", query->segment_ids_i32, 4),
        form_of_repeated("segment_ids", query->segment_ids, query->n_segment_ids),
    };
    return eb_codec_form_choose(place, indices, 3, &out->indices) &&
           eb_codec_form_choose(place, offsets, 3, &out->offsets) &&
           eb_codec_form_choose(place, lengths, 2, &out->lengths) &&
           eb_codec_form_choose(place, segment_ids, 3, &out->segment_ids);
}

/* Fills in out->layout from the fields that are there, which must agree with it where it is said.
 */
static bool choose_layout(const struct eb_codec_place *place, struct eb_wire_query *out)
{
    const char *packed = out->indices_per_bag != 0 ? "indices_per_bag" : NULL;
    const char *segments = out->num_segments != 0 ? "num_segments" : out->segment_ids.field;
    const struct {
        int32_t layout;
        const char *field; /* that says so; NULL: none does */
    } layouts[] = {
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS, out->offsets.field},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS, out->lengths.field},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_PACKED, packed},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, segments},
    };
    const char *said_by = out->layout != 0 ? "layout" : NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!layouts[i].field) {
            continue;
        }
        if (said_by && out->layout != layouts[i].layout) {
            return eb_codec_form_refuse(
                place, "%s and %s say two layouts", said_by, layouts[i].field);
        }
        out->layout = layouts[i].layout;
        said_by = layouts[i].field;
    }
    if (out->include_last_offset && said_by &&
        out->layout != EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS) {
        return eb_codec_form_refuse(place, "include_last_offset and %s say two layouts", said_by);
    }
    return true;
}

static bool choose_weights(
    const struct eb_codec_place *place, const Embag__V1__BagQuery *query, struct eb_wire_query *out)
{
    out->weights = query->weights.data;
    out->weights_bytes = query->weights.len;
    out->weights_type = (int32_t)query->weights_type;
    if (query->n_weights_f32 == 0) {
        return true;
    }
    if (query->weights.len > 0) {
        return eb_codec_form_refuse(place, "weights and weights_f32 are two forms of one array");
    }
    if (query->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        query->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_F32) {
        return eb_codec_form_refuse(
            place, "weights_f32 is not of weights_type = %d", (int)query->weights_type);
    }
    out->weights = query->weights_f32;
    out->weights_bytes = query->n_weights_f32 * sizeof *query->weights_f32;
    out->weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F32;
    return true;
}

static bool translate_query(
    const struct eb_codec_place *place, const Embag__V1__BagQuery *query, struct eb_wire_query *out)
{
    *out = (struct eb_wire_query){
        .table = query->table,
        .reduction = (int32_t)query->reduction,
        .missing = (int32_t)query->missing,
        .layout = (int32_t)query->layout,
        .indices_per_bag = query->indices_per_bag,
        .num_segments = query->num_segments,
        .num_bags = query->num_bags,
        .include_last_offset = query->include_last_offset,
        .has_default = query->default_row_case == EMBAG__V1__BAG_QUERY__DEFAULT_ROW_DEFAULT_INDEX,
        .default_index = query->default_index,
    };
    if (query->table[0] == 0) {
        return eb_codec_form_refuse(place, "table is empty");
    }
    return check_enums(place, query) && choose_arrays(place, query, out) &&
           choose_layout(place, out) && choose_weights(place, query, out);
}

/* Declared, and refused where set until they are built. */
static bool check_unbuilt(const Embag__V1__LookupRequest *message, struct eb_error *error)
{
    const struct {
        const char *field;
        bool is_set;
    } unbuilt[] = {
        {"unnormalized", message->unnormalized},
        {"min_sequence", message->min_sequence != 0},
        {"shard_epoch", message->shard_epoch != 0},
        {"traceparent", message->traceparent[0] != 0},
        {"version_label", message->version_label[0] != 0},
        {"allow_incomplete", message->allow_incomplete},
    };
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        if (unbuilt[i].is_set) {
            eb_error_set(error, EB_STATUS_UNIMPLEMENTED, "%s is not implemented", unbuilt[i].field);
            return false;
        }
    }
    return true;
}

/* What concerns the request as a whole. */
static bool check_request(const Embag__V1__LookupRequest *message,
    const struct eb_codec_limits *limits, struct eb_error *error)
{
    size_t count = message->n_queries;
    for (size_t i = 0; i < message->n_groups; i++) {
        count += message->groups[i]->n_features;
    }
    if (count > limits->queries_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%zu queries and features of groups are more than a request may have, %" PRIu32, count,
            limits->queries_max);
        return false;
    }
    if (message->priority > PRIORITY_MAX) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "priority = %" PRIu32 ": priority is 0 (interactive) or 1 (batch)", message->priority);
        return false;
    }
    if (!eb_codec_form_is_value(&embag__v1__data_type__descriptor, (int)message->output_type)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "output_type = %d is no value of DataType",
            (int)message->output_type);
        return false;
    }
    return true;
}

/* The fault, to be kept as long as the request. NULL: *error says that the arena is exhausted. */
static const struct eb_error *keep_fault(
    struct eb_arena *arena, const struct eb_error *fault, struct eb_error *error)
{
    struct eb_error *kept = eb_unpack_take(arena, 1, sizeof *kept, error);
    if (kept) {
        *kept = *fault;
    }
    return kept;
}

/* Translates queries up to the first faulty one, or all of them with errors_per_query, and keeps
 * their faults: the caller reports the first fault of all, and one that only the tables can tell
 * may come before it. false: *error is set, the arena is exhausted. */
static bool translate_queries(struct eb_arena *arena, const Embag__V1__LookupRequest *message,
    struct eb_wire_request *request, struct eb_error *error)
{
    struct eb_error fault;
    request->queries = eb_unpack_take(arena, message->n_queries, sizeof *request->queries, error);
    if (!request->queries) {
        return false;
    }
    bool goes_on = true;
    for (size_t i = 0; i < message->n_queries && goes_on; i++) {
        const Embag__V1__BagQuery *query = message->queries[i];
        const struct eb_codec_place place = {"queries", i, query->table, &fault};
        request->query_count = i + 1;
        if (translate_query(&place, query, &request->queries[i])) {
            continue;
        }
        request->queries[i].fault = keep_fault(arena, &fault, error);
        if (!request->queries[i].fault) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    return true;
}

/* As translate_queries, unless a query has ended the request. */
static bool translate_groups(struct eb_arena *arena, const Embag__V1__LookupRequest *message,
    struct eb_wire_request *request, struct eb_error *error)
{
    struct eb_error fault;
    request->groups = eb_unpack_take(arena, message->n_groups, sizeof *request->groups, error);
    if (!request->groups) {
        return false;
    }
    size_t queries = request->query_count;
    bool goes_on =
        queries == 0 || !request->queries[queries - 1].fault || request->errors_per_query;
    for (size_t i = 0; i < message->n_groups && goes_on; i++) {
        const Embag__V1__FeatureGroup *group = message->groups[i];
        const struct eb_codec_place place = {"groups", i, group->name, &fault};
        request->group_count = i + 1;
        if (eb_codec_group_translate(&place, group, &request->groups[i])) {
            continue;
        }
        request->groups[i].fault = keep_fault(arena, &fault, error);
        if (!request->groups[i].fault) {
            return false;
        }
        goes_on = request->errors_per_query;
    }
    return true;
}

static struct eb_wire_request *translate_request(struct eb_arena *arena,
    const Embag__V1__LookupRequest *message, const struct eb_codec_limits *limits,
    struct eb_error *error)
{
    if (!check_unbuilt(message, error) || !check_request(message, limits, error)) {
        return NULL;
    }
    struct eb_wire_request *request = eb_unpack_take(arena, 1, sizeof *request, error);
    if (!request) {
        return NULL;
    }
    *request = (struct eb_wire_request){
        .request_id = message->request_id,
        .model = message->model,
        .version = message->version,
        .timeout_us = message->timeout_us,
        .output_type = (int32_t)message->output_type,
        .concat = message->concat,
        .partial = message->partial,
        .cancel = message->cancel,
        .errors_per_query = message->errors_per_query,
        .report_missing = message->report_missing,
        .priority = message->priority,
    };
    return translate_queries(arena, message, request, error) &&
                   translate_groups(arena, message, request, error)
               ? request
               : NULL;
}

struct eb_wire_request *eb_lookup_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    const struct eb_unpack_input input = {
        &embag__v1__lookup_request__descriptor, bytes, size, request_limits(limits)};
    const Embag__V1__LookupRequest *message = eb_unpack_message(arena, &input, &failure->error);
    struct eb_wire_request *request =
        message ? translate_request(arena, message, limits, &failure->error) : NULL;
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

static void write_query(struct eb_field_writer *writer, const struct eb_wire_query *query)
{
    eb_field_put_text(writer, 1, query->table);
    eb_field_put_enum(writer, 2, query->reduction);
    eb_field_put_enum(writer, 3, query->missing);
    eb_codec_form_put(writer, &query->indices, 4, 5);
    eb_codec_form_put(writer, &query->offsets, 7, 8);
    eb_field_put_number(writer, 10, query->indices_per_bag);
    eb_codec_form_put(writer, &query->segment_ids, 11, 12);
    eb_field_put_number(writer, 14, query->num_segments);
    eb_field_put_number(writer, 15, query->include_last_offset);
    eb_field_put_bytes(writer, 16, query->weights, query->weights_bytes);
    eb_field_put_enum(writer, 17, query->weights_type);
    if (query->has_default) {
        eb_field_put_present(writer, 19, (uint64_t)query->default_index);
    }
    eb_field_put_enum(writer, 20, query->layout);
    eb_field_put_number(writer, 21, query->num_bags);
    eb_codec_form_put(writer, &query->lengths, 23, 22);
}

static size_t query_bytes(const struct eb_wire_query *query)
{
    struct eb_field_writer counter = {.out = NULL};
    write_query(&counter, query);
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
        write_query(writer, &request->queries[i]);
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
