#include "client/lookup_call.h"

#include "proto/codec.h"
#include "proto/grpc_text.h"

#include <stdlib.h>
#include <string.h>

/* What decoding may take beside four times the message: many small results cost more than their
 * bytes. */
#define ARENA_BYTES_SPARE (16 * 1024 * 1024)

static bool fill_array(const struct embag_integers *in, struct eb_wire_array *out)
{
    if ((in->width != 0 && in->width != 4 && in->width != 8) || in->count > SIZE_MAX / 8 ||
        (in->count > 0 && (in->width == 0 || in->data == NULL))) {
        return false;
    }
    out->data = in->data;
    out->width = in->width;
    out->bytes = in->count * in->width;
    return true;
}

/* The layout that the caller means: arrays that are there but empty leave no trace on the wire. */
static int32_t find_layout(const struct embag_query *query)
{
    enum { UNSPECIFIED, OFFSETS, LENGTHS, PACKED, SEGMENTS };
    if (query->offsets.width != 0) {
        return OFFSETS;
    }
    if (query->lengths.width != 0) {
        return LENGTHS;
    }
    if (query->segment_ids.width != 0 || query->num_segments != 0) {
        return SEGMENTS;
    }
    return query->indices_per_bag != 0 ? PACKED : UNSPECIFIED;
}

/* NULL: all is well; else what is not. What the server can judge is left to the server. */
static const char *fill_query(const struct embag_query *in, struct eb_wire_query *out)
{
    size_t weight_bytes = embag_type_bytes(in->weights_type);
    if (!fill_array(&in->indices, &out->indices) || !fill_array(&in->offsets, &out->offsets) ||
        !fill_array(&in->lengths, &out->lengths) ||
        !fill_array(&in->segment_ids, &out->segment_ids)) {
        return "an array's width is neither 4 nor 8, or its data is NULL";
    }
    if (in->weights_count > 0 && (in->weights == NULL || weight_bytes == 0)) {
        return "weights are NULL or of no type";
    }
    if (in->weights_count > SIZE_MAX / 8) {
        return "there are more weights than memory";
    }
    out->table = in->table != NULL ? in->table : "";
    out->reduction = (int32_t)in->reduction;
    out->missing = (int32_t)in->missing;
    out->layout = find_layout(in);
    out->indices_per_bag = in->indices_per_bag;
    out->num_segments = in->num_segments;
    out->num_bags = in->num_bags;
    out->include_last_offset = in->include_last_offset;
    out->has_default = in->has_default;
    out->default_index = in->default_index;
    if (in->weights_count > 0) {
        out->weights = in->weights;
        out->weights_bytes = in->weights_count * weight_bytes;
        out->weights_type = (int32_t)in->weights_type;
    }
    return NULL;
}

/* A request and where it came from. */
struct request_block {
    struct eb_outgoing outgoing;
    const struct eb_memory *memory;
    size_t taken_bytes;
    uint8_t bytes[];
};

static void release_request(struct eb_outgoing *request)
{
    struct request_block *block = (struct request_block *)request;
    block->memory->give(block->memory->context, block, block->taken_bytes);
}

struct eb_outgoing *eb_lookup_call_outgoing(const struct eb_memory *memory, size_t size)
{
    size_t bytes = size + EB_GRPC_PREFIX_BYTES;
    size_t taken_bytes = sizeof(struct request_block) + bytes;
    struct request_block *block = memory->take(memory->context, taken_bytes);
    if (block == NULL) {
        return NULL;
    }
    block->outgoing = (struct eb_outgoing){
        .bytes = block->bytes, .size = bytes, .holds = 1, .release = release_request};
    block->memory = memory;
    block->taken_bytes = taken_bytes;
    eb_grpc_prefix_write(block->bytes, (uint32_t)size);
    return &block->outgoing;
}

static struct eb_outgoing *encode(
    const struct eb_wire_request *wire, const struct eb_memory *memory, struct eb_error *error)
{
    size_t size = eb_lookup_request_bytes(wire);
    if (size > UINT32_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the request has %zu bytes, more than a gRPC message can", size);
        return NULL;
    }
    struct eb_outgoing *outgoing = eb_lookup_call_outgoing(memory, size);
    if (outgoing == NULL) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the request");
        return NULL;
    }
    eb_lookup_request_encode(wire, outgoing->bytes + EB_GRPC_PREFIX_BYTES);
    return outgoing;
}

/* false: *error says which query is none. */
static bool fill_queries(
    const struct embag_request *request, struct eb_wire_query *queries, struct eb_error *error)
{
    memset(queries, 0, request->query_count * sizeof *queries);
    for (size_t i = 0; i < request->query_count; i++) {
        const char *fault = fill_query(&request->queries[i], &queries[i]);
        if (fault != NULL) {
            eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "queries[%zu]: %s", i, fault);
            return false;
        }
    }
    return true;
}

struct eb_outgoing *eb_lookup_call_encode(const struct embag_request *request,
    const struct eb_lookup_label *label, const struct eb_memory *memory, struct eb_error *error)
{
    size_t bytes = 0;
    struct eb_wire_query *queries = NULL;
    if (!__builtin_mul_overflow(request->query_count + 1, sizeof *queries, &bytes)) {
        queries = memory->take(memory->context, bytes);
    }
    if (queries == NULL) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the request");
        return NULL;
    }
    struct eb_outgoing *outgoing = NULL;
    if (fill_queries(request, queries, error)) {
        const struct eb_wire_request wire = {
            .request_id = label->request_id,
            .model = request->model != NULL ? request->model : "",
            .version = request->version,
            .timeout_us = label->timeout_us,
            .is_timed = true,
            .output_type = (int32_t)request->output_type,
            .concat = request->concat,
            .query_count = request->query_count,
            .queries = queries,
        };
        outgoing = encode(&wire, memory, error);
    }
    memory->give(memory->context, queries, bytes);
    return outgoing;
}

void eb_lookup_call_set_timeout(struct eb_outgoing *request, uint64_t timeout_us)
{
    eb_lookup_request_set_timeout(
        request->bytes + EB_GRPC_PREFIX_BYTES, request->size - EB_GRPC_PREFIX_BYTES, timeout_us);
}

struct eb_outgoing *eb_lookup_call_encode_cancel(
    uint64_t request_id, const struct eb_memory *memory)
{
    const struct eb_wire_request wire = {.request_id = request_id, .model = "", .cancel = true};
    struct eb_error unused;
    return encode(&wire, memory, &unused);
}

/* Whether a result's values are as many as its shape says, and its counts as many as the request
 * makes them. */
static bool is_consistent(
    const struct eb_lookup_expected *expected, const struct eb_wire_result *result)
{
    uint64_t bytes = embag_type_bytes((enum embag_type)result->type);
    if (bytes == 0 || result->shape_count > EMBAG_RANK_MAX ||
        result->missing_by_query_count != (expected->concat ? expected->query_count : 0)) {
        return false;
    }
    for (uint32_t i = 0; i < result->shape_count; i++) {
        if (__builtin_mul_overflow(bytes, result->shape[i], &bytes)) {
            return false;
        }
    }
    return bytes == result->values_bytes;
}

static bool copy_result(
    struct eb_arena *arena, const struct eb_wire_result *in, struct embag_result *out)
{
    size_t count = in->missing_by_query_count;
    void *values = eb_arena_take(arena, in->values_bytes + 1);
    uint64_t *missing = count > 0 ? eb_arena_take(arena, count * sizeof *missing) : NULL;
    if (values == NULL || (count > 0 && missing == NULL)) {
        return false;
    }
    if (in->values_bytes > 0) {
        memcpy(values, in->values, in->values_bytes);
    }
    for (size_t i = 0; i < count; i++) {
        missing[i] = in->missing_by_query[i];
    }
    *out = (struct embag_result){
        .query = in->query,
        .type = (enum embag_type)in->type,
        .rank = in->shape_count,
        .missing = in->missing,
        .missing_by_query = missing,
        .values = values,
        .values_bytes = in->values_bytes,
    };
    for (uint32_t i = 0; i < in->shape_count; i++) {
        out->shape[i] = in->shape[i];
    }
    return true;
}

/* Whether the response answers the request: a result per query in order, or one for all. */
static bool check_response(const struct eb_lookup_expected *expected,
    const struct eb_wire_response *response, struct eb_error *error)
{
    if (response->error_code != 0) {
        eb_error_set(error, (enum eb_status)response->error_code, "%s", response->error_message);
        return false;
    }
    bool matches = expected->concat ? response->result_count <= 1
                                    : response->result_count == expected->query_count;
    for (size_t i = 0; matches && i < response->result_count; i++) {
        matches = response->results[i].query == i && is_consistent(expected, &response->results[i]);
    }
    if (!matches) {
        eb_error_set(error, EB_STATUS_INTERNAL, "the server's results do not fit the request");
        return false;
    }
    return true;
}

static bool copy_response(struct eb_lookup_answer *answer, const struct eb_wire_response *response)
{
    size_t name_bytes = strlen(response->model) + 1;
    char *model = eb_arena_take(&answer->arena, name_bytes);
    struct embag_result *results =
        eb_arena_take(&answer->arena, (response->result_count + 1) * sizeof *results);
    if (model == NULL || results == NULL) {
        return false;
    }
    memcpy(model, response->model, name_bytes);
    for (size_t i = 0; i < response->result_count; i++) {
        if (!copy_result(&answer->arena, &response->results[i], &results[i])) {
            return false;
        }
    }
    answer->answer = (struct embag_answer){
        .model = model,
        .version = response->version,
        .result_count = response->result_count,
        .results = results,
    };
    return true;
}

struct eb_lookup_answer *eb_lookup_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_lookup_answer *answer = calloc(1, sizeof *answer);
    if (answer == NULL) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
        return NULL;
    }
    eb_arena_init(&answer->arena, &eb_memory_heap);
    eb_arena_reset(&answer->arena, 4 * size + ARENA_BYTES_SPARE);
    answer->response = eb_lookup_response_decode(&answer->arena, bytes, size, error);
    if (answer->response == NULL) {
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
    if (!check_response(expected, response, error)) {
        return false;
    }
    if (!copy_response(answer, response)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
        return false;
    }
    return true;
}

void eb_lookup_call_free(struct eb_lookup_answer *answer)
{
    if (answer != NULL) {
        eb_arena_deinit(&answer->arena);
        free(answer);
    }
}
