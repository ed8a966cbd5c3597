/* Runs guard and codec on bytes of a peer. Every message that the guard passes is valid for
 * protobuf-c too, and the codec accepts no other. Messages that are refused get a reason. A request
 * without an error survives encoding and decoding, and a known list of features does not change the
 * result. */
#include "proto/codec.h"
#include "proto/guard.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct eb_codec_limits limits = {.queries_max = 64, .name_bytes_max = 255};

/* Returns whether the guard passes the message. */
static bool check_request_guard(const uint8_t *data, size_t size)
{
    struct eb_guard_limits guard_limits = {
        .fields_max = 10000, .name_bytes_max = 255, .submessages_max = 1000};
    struct eb_error error;
    if (!eb_guard_check(
            &embag__v1__lookup_request__descriptor, data, size, &guard_limits, &error)) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return false;
    }
    Embag__V1__LookupRequest *message = embag__v1__lookup_request__unpack(NULL, size, data);
    assert(message);
    embag__v1__lookup_request__free_unpacked(message, NULL);
    return true;
}

/* Returns the number of errors, and checks that each has a reason. */
static size_t count_errors(const struct eb_wire_request *request)
{
    size_t count = 0;
    size_t queries = request->query_count;
    for (size_t i = 0; i < queries + request->group_count; i++) {
        const struct eb_error *error =
            i < queries ? request->queries[i].error : request->groups[i - queries].error;
        assert(!error || (error->status == EB_STATUS_INVALID_ARGUMENT && error->text[0] != 0));
        count += error ? 1 : 0;
    }
    return count;
}

static void check_round_trip(struct eb_arena *arena, const struct eb_wire_request *request)
{
    size_t errors = count_errors(request);
    assert(errors <= 1 || request->errors_per_query);
    if (errors > 0) {
        return;
    }
    size_t size = eb_lookup_request_bytes(request);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    assert(bytes);
    eb_lookup_request_encode(request, bytes);
    struct eb_decode_failure failure;
    const struct eb_wire_request *again =
        eb_lookup_request_decode(arena, bytes, size, &limits, &failure);
    assert(again && count_errors(again) == 0);
    assert(again->query_count == request->query_count);
    assert(again->group_count == request->group_count);
    assert(eb_lookup_request_bytes(again) == size);
    free(bytes);
}

static size_t count_text_bytes(const struct eb_wire_group *group)
{
    size_t bytes = 0;
    for (size_t i = 0; i < group->feature_count; i++) {
        bytes += strlen(group->features[i]);
    }
    return bytes;
}

static void check_same_features(
    const struct eb_wire_group *group, const struct eb_wire_group *expected)
{
    assert(group->feature_count == expected->feature_count);
    assert(group->run_bytes == expected->run_bytes && group->run == expected->run);
    for (size_t i = 0; i < group->feature_count; i++) {
        assert(strcmp(group->features[i], expected->features[i]) == 0);
    }
}

/* Decodes the same bytes again, with the first group's list of features known. */
static void check_known(
    struct eb_arena *arena, const struct eb_wire_request *request, const uint8_t *data, size_t size)
{
    const struct eb_wire_group *first = request->groups;
    if (request->group_count == 0 || count_errors(request) > 0 || !first->run) {
        return;
    }
    struct eb_known_features known = {.run = first->run,
        .run_bytes = first->run_bytes,
        .text_bytes = count_text_bytes(first),
        .count = first->feature_count,
        .names = first->features};
    struct eb_codec_limits with_known = limits;
    with_known.known = &known;
    with_known.known_count = 1;
    struct eb_decode_failure failure;
    const struct eb_wire_request *again =
        eb_lookup_request_decode(arena, data, size, &with_known, &failure);
    assert(again && count_errors(again) == 0 && again->groups[0].known == &known);
    assert(again->group_count == request->group_count);
    for (size_t i = 0; i < request->group_count; i++) {
        check_same_features(&again->groups[i], &request->groups[i]);
    }
    assert(eb_lookup_request_bytes(again) == eb_lookup_request_bytes(request));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool has_passed = check_request_guard(data, size);
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    /* Room for three messages, because those that are decoded again use the same arena. */
    eb_arena_reset(&arena, 3 * eb_lookup_request_arena_bytes(2 * size, &limits));
    struct eb_decode_failure failure = {.error = {.status = EB_STATUS_OK}};
    const struct eb_wire_request *request =
        eb_lookup_request_decode(&arena, data, size, &limits, &failure);
    if (request) {
        assert(has_passed);
        check_round_trip(&arena, request);
        check_known(&arena, request, data, size);
    } else {
        assert(failure.error.status != EB_STATUS_OK && failure.error.text[0] != 0);
        assert(failure.undecodable == (failure.error.status == EB_STATUS_INTERNAL));
    }
    eb_arena_deinit(&arena);
    return 0;
}
