#include "client/settings_call.h"

#include "proto/codec_admin.h"
#include "proto/grpc_text.h"
#include "proto/link/request_message.h"

#include <stdlib.h>
#include <string.h>

/* Memory for decoding a list in addition to eight times the message: a setting takes more memory
 * than bytes in the message. */
#define LIST_BYTES_SPARE ((size_t)1 << 20)
#define RELOAD_BYTES_MAX ((size_t)64 << 10) /* memory for decoding the answer to a reload */

struct eb_outgoing *eb_settings_call_encode(const struct eb_memory *memory, struct eb_error *error)
{
    struct eb_outgoing *outgoing = eb_request_message_create(memory, 0, 0);
    if (!outgoing) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the request");
    }
    return outgoing;
}

static void refuse_settings_memory(struct eb_error *error)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the list of settings");
}

static bool copy_settings(
    struct eb_settings_list *list, const struct eb_wire_setting_list *wire, struct eb_error *error)
{
    struct embag_setting *settings =
        eb_arena_take(&list->arena, (wire->count + 1) * sizeof *settings);
    if (!settings) {
        refuse_settings_memory(error);
        return false;
    }
    for (size_t i = 0; i < wire->count; i++) {
        const struct eb_wire_setting *in = &wire->settings[i];
        settings[i] = (struct embag_setting){
            .name = in->name,
            .value = in->value,
            .origin = (enum embag_setting_origin)in->origin,
            .live = in->live,
            .pending = in->pending,
            .pending_value = in->pending_value,
        };
    }
    list->list = (struct embag_setting_list){wire->count, settings};
    return true;
}

/* Decodes a list. The list may point into the message, so it owns a copy of the message. */
static bool fill_settings(
    struct eb_settings_list *list, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    uint8_t *copy = eb_arena_take(&list->arena, size + 1);
    if (!copy) {
        refuse_settings_memory(error);
        return false;
    }
    memcpy(copy, bytes, size);
    const struct eb_wire_setting_list *wire =
        eb_setting_list_decode(&list->arena, copy, size, error);
    return wire && copy_settings(list, wire, error);
}

struct eb_settings_list *eb_settings_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_settings_list *list = calloc(1, sizeof *list);
    if (!list) {
        refuse_settings_memory(error);
        return NULL;
    }
    eb_arena_init(&list->arena, &eb_memory_heap);
    eb_arena_reset(&list->arena, 8 * size + LIST_BYTES_SPARE);
    if (!fill_settings(list, bytes, size, error)) {
        eb_settings_call_free(list);
        return NULL;
    }
    return list;
}

void eb_settings_call_free(struct eb_settings_list *list)
{
    if (list) {
        eb_arena_deinit(&list->arena);
        free(list);
    }
}

struct embag_reload *eb_settings_call_decode_reload(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct embag_reload *reload = malloc(sizeof *reload);
    if (!reload) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the answer");
        return NULL;
    }
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, RELOAD_BYTES_MAX);
    const struct eb_wire_reload *wire = eb_reload_decode(&arena, bytes, size, error);
    if (wire) {
        *reload = (struct embag_reload){wire->changed, wire->pending};
    } else {
        free(reload);
        reload = NULL;
    }
    eb_arena_deinit(&arena);
    return reload;
}
