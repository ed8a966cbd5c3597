/* Decodes bytes of a peer as requests of the health, reflection and ORCA services, and looks up the
 * names in them. Requests that are refused get a reason; requests that are accepted can be
 * answered. */
#include "proto/codec_health.h"
#include "proto/codec_orca.h"
#include "proto/codec_reflection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)1 << 20)
#define NAME_BYTES_MAX 255

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_health(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    const char *name = eb_health_request_decode(arena, data, size, NAME_BYTES_MAX, &error);
    if (!name) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    assert(strlen(name) <= NAME_BYTES_MAX);
}

static void check_builtin_answer(const struct eb_wire_reflection_response *response)
{
    size_t answer_bytes = eb_reflection_response_bytes(response);
    uint8_t *answer = malloc(answer_bytes + 1);
    assert(answer);
    eb_reflection_response_encode(response, answer);
    free(answer);
}

static void check_reflection(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    struct eb_schema_files files;
    const struct eb_wire_reflection_request *request =
        eb_reflection_request_decode(arena, data, size, &error);
    if (!request) {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
        return;
    }
    bool is_symbol = request->question == EB_REFLECTION_SYMBOL;
    bool is_found = is_symbol ? eb_schema_find_symbol(request->name, &files)
                              : eb_schema_find_file(request->name, &files);
    assert(is_found == (files.count > 0));
    (void)eb_schema_has_message(request->name);
    check_builtin_answer(&(struct eb_wire_reflection_response){.host = request->host,
        .request = data,
        .request_bytes = size,
        .files = is_found ? &files : NULL});
}

static void check_orca(struct eb_arena *arena, const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    uint64_t interval_ms = UINT64_MAX;
    if (eb_orca_request_decode(arena, data, size, &interval_ms, &error)) {
        assert(interval_ms <= EB_ORCA_INTERVAL_MS_MAX);
    } else {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_health(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_reflection(&arena, data, size);
    eb_arena_reset(&arena, ARENA_BYTES);
    check_orca(&arena, data, size);
    eb_arena_deinit(&arena);
    return 0;
}
