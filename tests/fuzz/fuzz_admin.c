/* Decodes bytes of a peer as messages of ModelAdmin, GetModel and ListModels, or of a server.
 * Messages that are accepted survive encoding and decoding; messages that are refused get a reason.
 */
#include "proto/codec.h"
#include "proto/codec_admin.h"

#include <assert.h>
#include <string.h>

#define ARENA_BYTES ((size_t)1 << 20)
#define TEXT_BYTES_MAX 65536 /* limit for answers; texts of requests are shorter */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct eb_codec_limits limits = {.name_bytes_max = 255};

static uint8_t encoded[TEXT_BYTES_MAX + 64];

static void check_admin_request(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_model_query *request =
        eb_version_request_decode(arena, data, size, &limits, &error);
    if (!request) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    assert(strlen(request->model) <= limits.name_bytes_max);
    size_t again_bytes = eb_version_request_bytes(request);
    assert(again_bytes <= sizeof encoded);
    eb_version_request_encode(request, encoded);
    const struct eb_wire_model_query *again =
        eb_version_request_decode(arena, encoded, again_bytes, &limits, &error);
    assert(again && strcmp(again->model, request->model) == 0);
    assert(again->version == request->version);
}

static void check_progress(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_progress *progress = eb_version_progress_decode(arena, data, size, &error);
    if (!progress) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    size_t again_bytes = eb_version_progress_bytes(progress);
    assert(again_bytes <= sizeof encoded);
    eb_version_progress_encode(progress, encoded);
    const struct eb_wire_progress *again =
        eb_version_progress_decode(arena, encoded, again_bytes, &error);
    assert(again && strcmp(again->text, progress->text) == 0);
    assert(again->done == progress->done && again->done_bytes == progress->done_bytes);
    assert(again->total_bytes == progress->total_bytes);
}

static void check_reload(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_reload *reload = eb_reload_decode(arena, data, size, &error);
    if (!reload) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    size_t again_bytes = eb_reload_bytes(reload);
    assert(again_bytes <= sizeof encoded);
    eb_reload_encode(reload, encoded);
    const struct eb_wire_reload *again = eb_reload_decode(arena, encoded, again_bytes, &error);
    assert(again && again->changed == reload->changed && again->pending == reload->pending);
}

static void check_settings(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_setting_list *list = eb_setting_list_decode(arena, data, size, &error);
    if (!list) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    size_t again_bytes = eb_setting_list_bytes(list);
    if (again_bytes > sizeof encoded) {
        return;
    }
    eb_setting_list_encode(list, encoded);
    const struct eb_wire_setting_list *again =
        eb_setting_list_decode(arena, encoded, again_bytes, &error);
    assert(again && again->count == list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct eb_wire_setting *one = &list->settings[i];
        const struct eb_wire_setting *other = &again->settings[i];
        assert(strcmp(one->name, other->name) == 0 && strcmp(one->value, other->value) == 0);
        assert(strcmp(one->pending_value, other->pending_value) == 0);
        assert(one->origin == other->origin && one->live == other->live);
        assert(one->pending == other->pending);
    }
}

static void check_version_query(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_model_query *query =
        eb_model_query_decode(arena, data, size, &limits, &error);
    if (query) {
        assert(strlen(query->model) <= limits.name_bytes_max);
    } else {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
    }
    if (!eb_empty_decode(data, size, &error)) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_admin_request(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_progress(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_version_query(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_reload(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_settings(&arena, data, size);
    eb_arena_deinit(&arena);
    return 0;
}
