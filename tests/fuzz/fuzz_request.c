/* Guard and codec on bytes of a peer: whatever passes the guard is a message for protobuf-c too,
 * the codec takes nothing else, what is refused is refused with a reason, and a request without a
 * fault survives being encoded and decoded again. */
#include "proto/codec.h"
#include "proto/guard.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct eb_codec_limits limits = {.queries_max = 64, .name_bytes_max = 255};

/* Returns whether the guard lets it pass. */
static bool check_guard(const uint8_t *data, size_t size)
{
    const struct eb_guard_limits guard_limits = {
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

/* Counts the faults, which have a reason each. */
static size_t count_faults(const struct eb_wire_request *request)
{
    size_t count = 0;
    size_t queries = request->query_count;
    for (size_t i = 0; i < queries + request->group_count; i++) {
        const struct eb_error *fault =
            i < queries ? request->queries[i].fault : request->groups[i - queries].fault;
        assert(!fault || (fault->status == EB_STATUS_INVALID_ARGUMENT && fault->text[0] != 0));
        count += fault != NULL;
    }
    return count;
}

static void check_round_trip(struct eb_arena *arena, const struct eb_wire_request *request)
{
    size_t faults = count_faults(request);
    assert(faults <= 1 || request->errors_per_query);
    if (faults > 0) {
        return;
    }
    size_t size = eb_lookup_request_bytes(request);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    assert(bytes);
    eb_lookup_request_encode(request, bytes);
    struct eb_decode_failure failure;
    const struct eb_wire_request *again =
        eb_lookup_request_decode(arena, bytes, size, &limits, &failure);
    assert(again && count_faults(again) == 0);
    assert(again->query_count == request->query_count);
    assert(again->group_count == request->group_count);
    assert(eb_lookup_request_bytes(again) == size);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool has_passed = check_guard(data, size);
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    /* Twice the room: the round trip decodes into the same arena. */
    eb_arena_reset(&arena, 2 * eb_lookup_request_arena_bytes(2 * size, &limits));
    struct eb_decode_failure failure = {.error = {.status = EB_STATUS_OK}};
    const struct eb_wire_request *request =
        eb_lookup_request_decode(&arena, data, size, &limits, &failure);
    if (request) {
        assert(has_passed);
        check_round_trip(&arena, request);
    } else {
        assert(failure.error.status != EB_STATUS_OK && failure.error.text[0] != 0);
        assert(failure.undecodable == (failure.error.status == EB_STATUS_INTERNAL));
    }
    eb_arena_deinit(&arena);
    return 0;
}
