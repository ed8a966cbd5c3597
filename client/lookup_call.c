#include "client/lookup_call.h"

#include "client/lookup_layout.h"
#include "proto/codec.h"
#include "proto/grpc_text.h"
#include "proto/link/request_message.h"

#include <stdlib.h>
#include <string.h>

/* Memory that decoding may take in addition to four times the message: many small results take more
 * memory than bytes in the message. */
#define ARENA_BYTES_SPARE (16 * 1024 * 1024)
#define VALUES_ALIGNMENT 16 /* alignment that embag.h promises and that arenas provide */

static bool fill_array(const struct embag_integers *in, struct eb_wire_array *out)
{
    if ((in->width != 0 && in->width != 4 && in->width != 8) || in->count > SIZE_MAX / 8 ||
        (in->count > 0 && (in->width == 0 || !in->data))) {
        return false;
    }
    out->data = in->data;
    out->width = in->width;
    out->bytes = in->count * in->width;
    return true;
}

/* On the wire, parts are numbered from 1, because 0 means that no part is named. */
static bool fill_part(const struct embag_query *in, struct eb_wire_query *out)
{
    out->part = in->has_part ? in->part + 1 : 0;
    return !in->has_part || in->part < UINT32_MAX;
}

static const char array_error[] = "an array has data NULL, or a width other than 4 or 8";

/* Returns whether weights are given. A type without weights also counts as given if there are
 * indices; the server then refuses the request because the weights are missing. */
static bool says_weights(size_t count, enum embag_type type, const struct embag_integers *weighed)
{
    return count > 0 || (type != EMBAG_TYPE_UNSPECIFIED && weighed->count > 0);
}

/* Checks weights that are given. Returns NULL if they are valid, otherwise what is wrong. */
static const char *check_lookup_weights(const void *weights, size_t count, enum embag_type type)
{
    if ((!weights && count > 0) || embag_type_bytes(type) == 0) {
        return "weights are NULL, or weights_type is not a type";
    }
    return count > SIZE_MAX / 8 ? "there are more weights than fit in memory" : NULL;
}

static struct eb_wire_sequence fill_sequence(const struct embag_sequence *in)
{
    return (struct eb_wire_sequence){in->max_len, in->keep_first, in->pad, in->unique};
}

/* Fills in *out. Returns NULL, or a text that says what is wrong. Does not repeat the checks that
 * the server makes. */
static const char *fill_lookup_query(const struct embag_query *in, struct eb_wire_query *out)
{
    if (!fill_array(&in->indices, &out->indices) || !fill_array(&in->offsets, &out->offsets) ||
        !fill_array(&in->lengths, &out->lengths) ||
        !fill_array(&in->segment_ids, &out->segment_ids)) {
        return array_error;
    }
    if (!fill_part(in, out)) {
        return "part is not the number of a part: expected at most 4294967294";
    }
    out->table = in->table ? in->table : "";
    out->reduction = (int32_t)in->reduction;
    out->missing = (int32_t)in->missing;
    out->layout = eb_lookup_layout_find(in);
    out->indices_per_bag = in->indices_per_bag;
    out->num_segments = in->num_segments;
    out->num_bags = in->num_bags;
    out->include_last_offset = in->include_last_offset;
    out->has_default = in->has_default;
    out->default_index = in->default_index;
    out->sequence = fill_sequence(&in->sequence);
    if (!says_weights(in->weights_count, in->weights_type, &in->indices)) {
        return NULL;
    }
    out->weights = in->weights;
    out->weights_bytes = in->weights_count * embag_type_bytes(in->weights_type);
    out->weights_type = (int32_t)in->weights_type;
    return check_lookup_weights(in->weights, in->weights_count, in->weights_type);
}

static bool check_lookup_features(const struct embag_group *group)
{
    bool is_whole = group->feature_count == 0 || group->features;
    for (size_t i = 0; is_whole && i < group->feature_count; i++) {
        is_whole = group->features[i];
    }
    return is_whole;
}

static const char *fill_group(const struct embag_group *in, struct eb_wire_group *out)
{
    if (!check_lookup_features(in)) {
        return "features is NULL or has an element that is NULL";
    }
    if (!fill_array(&in->values, &out->values) || !fill_array(&in->lengths, &out->lengths) ||
        !fill_array(&in->offsets, &out->offsets)) {
        return array_error;
    }
    if (in->lengths.width == 8) {
        return "lengths of a group must be int32 (width 4)";
    }
    out->name = in->name ? in->name : "";
    out->features = in->features;
    out->feature_count = in->feature_count;
    out->bags = in->bags;
    out->reduction = (int32_t)in->reduction;
    out->missing = (int32_t)in->missing;
    out->sequence = fill_sequence(&in->sequence);
    if (!says_weights(in->weights_count, in->weights_type, &in->values)) {
        return NULL;
    }
    out->weights = in->weights;
    out->weights_bytes = in->weights_count * embag_type_bytes(in->weights_type);
    out->weights_type = (int32_t)in->weights_type;
    return check_lookup_weights(in->weights, in->weights_count, in->weights_type);
}

static struct eb_outgoing *encode_lookup(
    const struct eb_wire_request *wire, const struct eb_memory *memory, struct eb_error *error)
{
    size_t size = eb_lookup_request_bytes(wire);
    if (size > UINT32_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the request has %zu bytes, more than a gRPC message can have", size);
        return NULL;
    }
    size_t asked_count = wire->query_count + wire->group_count;
    struct eb_outgoing *outgoing =
        eb_request_message_create(memory, asked_count * sizeof(struct eb_lookup_asked), size);
    if (!outgoing) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the request");
        return NULL;
    }
    struct eb_lookup_asked *asked = eb_request_message_notes(outgoing);
    for (size_t i = 0; i < wire->query_count; i++) {
        asked[i] = eb_lookup_check_keep_query(&wire->queries[i]);
    }
    for (size_t i = 0; i < wire->group_count; i++) {
        asked[wire->query_count + i] = eb_lookup_check_keep_group(&wire->groups[i]);
    }
    eb_lookup_request_encode(wire, outgoing->bytes + EB_GRPC_PREFIX_BYTES);
    return outgoing;
}

/* Fills in queries and groups. Returns false with *error set, naming the invalid query or group. */
static bool fill_arrays(
    const struct embag_request *request, struct eb_wire_request *wire, struct eb_error *error)
{
    memset(wire->queries, 0, wire->query_count * sizeof *wire->queries);
    memset(wire->groups, 0, wire->group_count * sizeof *wire->groups);
    for (size_t i = 0; i < wire->query_count; i++) {
        const char *failure = fill_lookup_query(&request->queries[i], &wire->queries[i]);
        if (failure) {
            eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "queries[%zu]: %s", i, failure);
            return false;
        }
    }
    for (size_t i = 0; i < wire->group_count; i++) {
        const char *failure = fill_group(&request->groups[i], &wire->groups[i]);
        if (failure) {
            eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "groups[%zu]: %s", i, failure);
            return false;
        }
    }
    return true;
}

/* Sets *bytes to the size of the codec's structs for queries and groups. Returns false if that
 * overflows. */
static bool measure_arrays(const struct embag_request *request, size_t *bytes)
{
    size_t query_bytes = 0;
    size_t group_bytes = 0;
    return !__builtin_mul_overflow(
               request->query_count + 1, sizeof(struct eb_wire_query), &query_bytes) &&
           !__builtin_mul_overflow(
               request->group_count, sizeof(struct eb_wire_group), &group_bytes) &&
           !__builtin_add_overflow(query_bytes, group_bytes, bytes);
}

static struct eb_wire_request make_wire_request(
    const struct embag_request *request, const struct eb_lookup_label *label, void *arrays)
{
    return (struct eb_wire_request){
        .request_id = label->request_id,
        .model = request->model ? request->model : "",
        .version = request->version,
        .version_label = request->version_label,
        .timeout_us = label->timeout_us,
        .is_timed = true,
        .output_type = (int32_t)request->output_type,
        .concat = request->concat,
        .errors_per_query = request->errors_per_query,
        .report_missing = request->report_missing,
        .priority = (uint32_t)request->priority,
        .traceparent = request->traceparent,
        .traceparent_bytes = request->traceparent ? strlen(request->traceparent) : 0,
        .allow_incomplete = request->allow_incomplete,
        .query_count = request->query_count,
        .queries = arrays,
        .group_count = request->group_count,
        .groups = (struct eb_wire_group *)((struct eb_wire_query *)arrays + request->query_count),
    };
}

struct eb_outgoing *eb_lookup_call_encode(const struct embag_request *request,
    const struct eb_lookup_label *label, const struct eb_memory *memory, struct eb_error *error)
{
    size_t bytes = 0;
    void *arrays = NULL;
    if ((request->query_count > 0 && !request->queries) ||
        (request->group_count > 0 && !request->groups)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "queries or groups are NULL");
        return NULL;
    }
    if (measure_arrays(request, &bytes)) {
        arrays = memory->take(memory->context, bytes);
    }
    if (!arrays) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the request");
        return NULL;
    }
    struct eb_wire_request wire = make_wire_request(request, label, arrays);
    struct eb_outgoing *outgoing = NULL;
    if (fill_arrays(request, &wire, error)) {
        outgoing = encode_lookup(&wire, memory, error);
    }
    memory->give(memory->context, arrays, bytes);
    return outgoing;
}

void eb_lookup_call_expect(const struct embag_request *request, struct eb_outgoing *outgoing,
    struct eb_lookup_expected *expected)
{
    *expected = (struct eb_lookup_expected){
        .query_count = request->query_count,
        .group_count = request->group_count,
        .asked = outgoing ? eb_request_message_notes(outgoing) : NULL,
        .version = request->version,
        .output_type = request->output_type,
        .concat = request->concat,
        .errors_per_query = request->errors_per_query,
        .report_missing = request->report_missing,
        .allow_incomplete = request->allow_incomplete,
    };
}

static size_t round_up(size_t bytes)
{
    return (bytes + VALUES_ALIGNMENT - 1) / VALUES_ALIGNMENT * VALUES_ALIGNMENT;
}

/* Returns the bytes of the response that still lie in its message. */
static size_t count_borrowed(const struct eb_wire_response *response)
{
    size_t bytes = 0;
    for (size_t i = 0; i < response->result_count; i++) {
        bytes += round_up(response->results[i].values_bytes) +
                 round_up(response->results[i].missing_positions_bytes) +
                 round_up(response->results[i].lengths_bytes) +
                 round_up(response->results[i].inverse_bytes);
    }
    return bytes;
}

/* Copies a field to *room and moves *room past it. Returns NULL if there is no field. */
static const void *copy_borrowed(const uint8_t *bytes, size_t size, uint8_t **room)
{
    uint8_t *copy = *room;
    if (size == 0) {
        return NULL;
    }
    memcpy(copy, bytes, size);
    *room += round_up(size);
    return copy;
}

static void copy_result(const struct eb_wire_result *in, struct embag_result *out, uint8_t **room)
{
    bool has_failed = in->error_code != 0;
    *out = (struct embag_result){
        .query = in->query,
        .status = (enum embag_status)eb_status_of_number(in->error_code),
        .message = in->error_message,
    };
    if (has_failed) {
        return;
    }
    out->type = (enum embag_type)in->type;
    out->rank = in->shape_count;
    memcpy(out->shape, in->shape, in->shape_count * sizeof *in->shape);
    out->missing = in->missing;
    out->unreached = in->unreached;
    out->missing_by_query_count = in->missing_by_query_count;
    out->missing_by_query = in->missing_by_query_count > 0 ? in->missing_by_query : NULL;
    out->missing_positions =
        copy_borrowed(in->missing_positions, in->missing_positions_bytes, room);
    out->lengths_count = in->lengths_bytes / sizeof *out->lengths;
    out->lengths = copy_borrowed(in->lengths, in->lengths_bytes, room);
    out->inverse_count = in->inverse_bytes / sizeof *out->inverse;
    out->inverse = copy_borrowed(in->inverse, in->inverse_bytes, room);
    out->values_bytes = in->values_bytes;
    out->values = in->values_bytes > 0 ? copy_borrowed(in->values, in->values_bytes, room) : *room;
}

/* Makes the public structs. Texts and numbers are in the answer's arena already. */
static bool copy_response(struct eb_lookup_answer *answer, const struct eb_wire_response *response)
{
    struct embag_result *results =
        eb_arena_take(&answer->arena, (response->result_count + 1) * sizeof *results);
    uint8_t *room = eb_arena_take(&answer->arena, count_borrowed(response) + 1);
    if (!results || !room) {
        return false;
    }
    for (size_t i = 0; i < response->result_count; i++) {
        copy_result(&response->results[i], &results[i], &room);
    }
    answer->answer = (struct embag_answer){
        .model = response->model,
        .version = response->version,
        .result_count = response->result_count,
        .results = results,
        .queue_us = response->queue_us,
        .compute_us = response->compute_us,
        .incomplete = response->incomplete,
    };
    return true;
}

struct eb_lookup_answer *eb_lookup_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_lookup_answer *answer = calloc(1, sizeof *answer);
    if (!answer) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the answer");
        return NULL;
    }
    eb_arena_init(&answer->arena, &eb_memory_heap);
    eb_arena_reset(&answer->arena, 4 * size + ARENA_BYTES_SPARE);
    answer->response = eb_lookup_response_decode(&answer->arena, bytes, size, error);
    if (!answer->response) {
        eb_lookup_call_free(answer);
        return NULL;
    }
    return answer;
}

bool eb_lookup_call_check(struct eb_lookup_answer *answer,
    const struct eb_lookup_expected *expected, struct eb_error *error)
{
    const struct eb_wire_response *response = answer->response;
    answer->response = NULL;
    if (!eb_lookup_check_response(expected, response, error)) {
        return false;
    }
    if (!copy_response(answer, response)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the answer");
        return false;
    }
    return true;
}

void eb_lookup_call_free(struct eb_lookup_answer *answer)
{
    if (answer) {
        eb_arena_deinit(&answer->arena);
        free(answer);
    }
}
