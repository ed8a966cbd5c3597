/* Translates between serialised messages of embag.v1.ModelAdmin and the plain structs of message.h.
 * The list of models is in codec.h.
 * Thread: pure. Memory: decoding takes from the given arena; encoding writes into the caller's
 * buffer. */
#pragma once

#include "proto/codec.h"

/* A decoded VersionProgress. The rules of message.h apply to its string. */
struct eb_wire_progress {
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done;
    const char *text;
};

/* A decoded ReloadSettingsResponse. */
struct eb_wire_reload {
    uint32_t changed;
    uint32_t pending;
};

/* A decoded Setting. */
struct eb_wire_setting {
    const char *name;
    const char *value; /* "" if not set */
    int32_t origin;    /* number of a Setting.Origin */
    bool live;
    bool pending;
    const char *pending_value;
};

struct eb_wire_setting_list {
    size_t count;
    const struct eb_wire_setting *settings;
};

/* Decodes a VersionRequest from a peer. Returns NULL with *error set to INTERNAL, INVALID_ARGUMENT
 * or RESOURCE_EXHAUSTED, as codec.h's decoders do. */
struct eb_wire_model_query *eb_version_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error);
size_t eb_version_request_bytes(const struct eb_wire_model_query *request);
void eb_version_request_encode(const struct eb_wire_model_query *request, uint8_t *out);

/* Decodes a ReloadSettingsResponse from a server. Returns NULL with *error set. */
struct eb_wire_reload *eb_reload_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
size_t eb_reload_bytes(const struct eb_wire_reload *reload);
void eb_reload_encode(const struct eb_wire_reload *reload, uint8_t *out);

/* Decodes a ListSettingsResponse from a server. Returns NULL with *error set. */
struct eb_wire_setting_list *eb_setting_list_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
size_t eb_setting_list_bytes(const struct eb_wire_setting_list *list);
void eb_setting_list_encode(const struct eb_wire_setting_list *list, uint8_t *out);

/* Decodes a VersionProgress from a server. Returns NULL with *error set. */
struct eb_wire_progress *eb_version_progress_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
size_t eb_version_progress_bytes(const struct eb_wire_progress *progress);
void eb_version_progress_encode(const struct eb_wire_progress *progress, uint8_t *out);
