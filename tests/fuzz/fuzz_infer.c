/* Decodes bytes of a peer as messages of the Open Inference Protocol. Every message that the guard
 * passes is valid for protobuf-c too, and the codec accepts no other. Messages that are refused get
 * a reason. In accepted messages, the size of every tensor matches its shape and is within the
 * bytes. */
#include "proto/codec_infer.h"
#include "proto/guard.h"
#include "proto/infer_type.h"

#include "inference/open_inference.pb-c.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct eb_codec_limits limits = {.queries_max = 64, .name_bytes_max = 255};

/* Returns whether the guard passes the message. */
static bool check_infer_guard(const uint8_t *data, size_t size)
{
    struct eb_guard_limits guard_limits = {
        .fields_max = 10000, .name_bytes_max = 275, .submessages_max = 10000};
    struct eb_error error;
    if (!eb_guard_check(
            &inference__model_infer_request__descriptor, data, size, &guard_limits, &error)) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return false;
    }
    Inference__ModelInferRequest *message =
        inference__model_infer_request__unpack(NULL, size, data);
    assert(message);
    inference__model_infer_request__free_unpacked(message, NULL);
    return true;
}

/* Checks a tensor and reads all of its contents. */
static void check_input(const struct eb_infer_input *input)
{
    const struct eb_wire_array *array = &input->array;
    assert(input->rank == 1 || input->rank == 2);
    uint64_t elements = input->dims[0] * (input->rank == 2 ? input->dims[1] : 1);
    assert(array->bytes == elements * array->width);
    unsigned sum = 0;
    for (size_t i = 0; i < array->bytes; i++) {
        sum += ((const uint8_t *)array->data)[i];
    }
    assert(sum <= array->bytes * 255);
    assert(input->type > 0 && strlen(input->table) <= limits.name_bytes_max);
    assert(input->role < EB_INFER_ROLE_COUNT && eb_infer_type_bytes(input->type) > 0);
}

static void check_infer_request(const struct eb_infer_request *infer)
{
    assert(infer->request.infer == infer && infer->request.query_count == 0);
    assert(infer->input_count <= 3 * (size_t)limits.queries_max);
    assert(infer->output_count <= limits.queries_max);
    for (size_t i = 0; i < infer->input_count; i++) {
        check_input(&infer->inputs[i]);
    }
    for (size_t i = 0; i < infer->output_count; i++) {
        assert(strlen(infer->outputs[i].table) <= limits.name_bytes_max);
    }
}

/* Checks the other requests, which protobuf-c unpacks. */
static void check_infer_model_query(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_codec_input input = {&inference__model_metadata_request__descriptor, data, size,
        {.fields_max = 4096, .name_bytes_max = 255}};
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_model_query *query = eb_infer_model_query_decode(arena, &input, &error);
    assert(query ? error.status == EB_STATUS_OK : error.text[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool has_passed = check_infer_guard(data, size);
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, eb_lookup_request_arena_bytes(size, &limits));
    struct eb_decode_failure failure = {.error = {.status = EB_STATUS_OK}};
    const struct eb_infer_request *infer =
        eb_infer_request_decode(&arena, data, size, &limits, &failure);
    if (infer) {
        assert(has_passed);
        check_infer_request(infer);
    } else {
        assert(failure.error.status != EB_STATUS_OK && failure.error.text[0] != 0);
        assert(failure.undecodable == (failure.error.status == EB_STATUS_INTERNAL));
    }
    eb_arena_reset(&arena, eb_lookup_request_arena_bytes(size, &limits));
    check_infer_model_query(&arena, data, size);
    eb_arena_deinit(&arena);
    return 0;
}
