/* Encodes calls about a server's settings, and decodes their answers into the public structs of
 * embag_admin.h.
 * Thread: pure. Memory: requests come from the given eb_memory, the rest from the heap. */
#pragma once

#include "client/embag_admin.h"
#include "proto/arena.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* A list and everything that its pointers lead to. */
struct eb_settings_list {
    struct embag_setting_list list;
    struct eb_arena arena;
};

/* Returns a serialised message without fields, which serves as ListSettingsRequest and as
 * ReloadSettingsRequest, preceded by its gRPC prefix. Returns NULL with *error set if out of
 * memory. */
struct eb_outgoing *eb_settings_call_encode(const struct eb_memory *memory, struct eb_error *error);

/* Decodes a serialised ListSettingsResponse. Returns NULL with *error set if that fails. */
struct eb_settings_list *eb_settings_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Accepts NULL. */
void eb_settings_call_free(struct eb_settings_list *list);

/* Decodes a serialised ReloadSettingsResponse; the caller frees the result. Returns NULL with
 * *error set if that fails. */
struct embag_reload *eb_settings_call_decode_reload(
    const uint8_t *bytes, size_t size, struct eb_error *error);
