/* Between serialised messages of embag.v1.ModelAdmin and the plain structs of message.h, as codec.h
 * does it for the others. Its list of models is codec.h's.
 * Thread: pure. Memory: decoding takes from the arena given; encoding writes into the caller's
 * buffer. */
#pragma once

#include "proto/codec.h"

/* VersionProgress; its string is as those of message.h are. */
struct eb_wire_progress {
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done;
    const char *text;
};

/* VersionRequest, from a peer. NULL: *error is INTERNAL, INVALID_ARGUMENT or RESOURCE_EXHAUSTED, as
 * codec.h's decoders say. */
struct eb_wire_model_query *eb_version_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error);
size_t eb_version_request_bytes(const struct eb_wire_model_query *request);
void eb_version_request_encode(const struct eb_wire_model_query *request, uint8_t *out);

/* VersionProgress, from a server. NULL: *error is set. */
struct eb_wire_progress *eb_version_progress_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
size_t eb_version_progress_bytes(const struct eb_wire_progress *progress);
void eb_version_progress_encode(const struct eb_wire_progress *progress, uint8_t *out);
