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

/* Decodes a VersionRequest from a peer. Returns NULL with *error set to INTERNAL, INVALID_ARGUMENT
 * or RESOURCE_EXHAUSTED, as codec.h's decoders do. */
struct eb_wire_model_query *eb_version_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error);
size_t eb_version_request_bytes(const struct eb_wire_model_query *request);
void eb_version_request_encode(const struct eb_wire_model_query *request, uint8_t *out);

/* Decodes a VersionProgress from a server. Returns NULL with *error set. */
struct eb_wire_progress *eb_version_progress_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
size_t eb_version_progress_bytes(const struct eb_wire_progress *progress);
void eb_version_progress_encode(const struct eb_wire_progress *progress, uint8_t *out);
