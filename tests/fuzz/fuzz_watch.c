/* Decodes bytes of a peer as the request and as the response of EmbeddingBag.WatchModels. Messages
 * that are refused get a reason. Messages that are accepted are within the limits, and what the
 * encoder makes of them is decoded to the same values. */
#include "proto/codec_watch.h"
#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)1 << 24)
#define NAME_BYTES_MAX 255

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_claims(const struct eb_wire_watch_request *request)
{
    require(request->claim_count <= EB_WATCH_CLAIMS_MAX);
    require(strlen(request->router) <= NAME_BYTES_MAX);
    for (size_t i = 0; i < request->claim_count; i++) {
        size_t name_bytes = strlen(request->claims[i].model);
        require(name_bytes > 0 && name_bytes <= NAME_BYTES_MAX);
        require(request->claims[i].version != 0);
    }
}

static void check_items(const struct eb_wire_holdings *holdings)
{
    size_t error_bytes = 0;
    require(holdings->count <= EB_WATCH_HOLDINGS_MAX);
    for (size_t i = 0; i < holdings->count; i++) {
        const struct eb_wire_holding *item = &holdings->items[i];
        size_t name_bytes = strlen(item->model);
        require(name_bytes > 0 && name_bytes <= NAME_BYTES_MAX);
        require(item->owned_part_count <= EB_WATCH_PARTS_MAX);
        for (size_t k = 0; k < item->owned_part_count; k++) {
            require(item->owned_parts[k] < item->parts);
        }
        error_bytes += strlen(item->error);
    }
    require(error_bytes <= EB_WATCH_ERROR_BYTES_MAX);
}

static void decode_as_request(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_watch_request *request =
        eb_watch_request_decode(arena, data, size, NAME_BYTES_MAX, &error);
    if (!request) {
        require(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    check_claims(request);
    size_t again_bytes = eb_watch_request_bytes(request);
    uint8_t *again = malloc(again_bytes + 1);
    require(again);
    eb_watch_request_encode(request, again);
    const struct eb_wire_watch_request *read =
        eb_watch_request_decode(arena, again, again_bytes, NAME_BYTES_MAX, &error);
    require(read && read->claim_count == request->claim_count && read->level == request->level);
    for (size_t i = 0; i < read->claim_count; i++) {
        require(strcmp(read->claims[i].model, request->claims[i].model) == 0);
        require(read->claims[i].version == request->claims[i].version);
        require(read->claims[i].digest == request->claims[i].digest);
        require(read->claims[i].served == request->claims[i].served);
    }
    free(again);
}

static void decode_as_response(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_holdings *holdings =
        eb_holdings_decode(arena, data, size, NAME_BYTES_MAX, &error);
    if (!holdings) {
        require(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    check_items(holdings);
    size_t again_bytes = eb_holdings_bytes(holdings);
    uint8_t *again = malloc(again_bytes + 1);
    require(again);
    eb_holdings_encode(holdings, again);
    const struct eb_wire_holdings *read =
        eb_holdings_decode(arena, again, again_bytes, NAME_BYTES_MAX, &error);
    require(read && read->count == holdings->count && read->instance == holdings->instance);
    for (size_t i = 0; i < read->count; i++) {
        require(strcmp(read->items[i].model, holdings->items[i].model) == 0);
        require(read->items[i].version == holdings->items[i].version);
        require(read->items[i].state == holdings->items[i].state);
        require(read->items[i].owned_part_count == holdings->items[i].owned_part_count);
    }
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    decode_as_request(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    decode_as_response(&arena, data, size);
    eb_arena_deinit(&arena);
    return 0;
}
