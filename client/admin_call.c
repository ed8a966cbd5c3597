#include "client/admin_call.h"

#include "client/lookup_call.h"
#include "proto/codec_admin.h"
#include "proto/grpc_text.h"

#include <stdio.h>
#include <stdlib.h>

/* Of one message: what it is decoded into, and its text, which answers bound. */
#define ARENA_BYTES ((size_t)128 << 10)

struct eb_outgoing *eb_admin_call_encode(
    const char *model, uint64_t version, const struct eb_memory *memory, struct eb_error *error)
{
    const struct eb_wire_model_query request = {model ? model : "", version};
    struct eb_outgoing *outgoing =
        eb_lookup_call_outgoing(memory, eb_version_request_bytes(&request));
    if (!outgoing) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the request");
        return NULL;
    }
    eb_version_request_encode(&request, outgoing->bytes + EB_GRPC_PREFIX_BYTES);
    return outgoing;
}

/* false: *error is set. */
static bool read_progress(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    struct eb_admin_progress *progress, struct eb_error *error)
{
    const struct eb_wire_progress *wire = eb_version_progress_decode(arena, bytes, size, error);
    if (!wire) {
        return false;
    }
    progress->done_bytes = wire->done_bytes;
    progress->total_bytes = wire->total_bytes;
    progress->done = wire->done;
    snprintf(progress->text, sizeof progress->text, "%s", wire->text);
    return true;
}

struct eb_admin_progress *eb_admin_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_admin_progress *progress = malloc(sizeof *progress);
    if (!progress) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
        return NULL;
    }
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const bool is_good = read_progress(&arena, bytes, size, progress, error);
    eb_arena_deinit(&arena);
    if (!is_good) {
        free(progress);
        return NULL;
    }
    return progress;
}
