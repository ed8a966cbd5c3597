/* Encodes calls about models (lists and commands), and decodes their answers into the public
 * structs of embag.h.
 * Thread: pure. Memory: requests come from the given eb_memory, the rest from the heap. */
#pragma once

#include "client/embag.h"
#include "proto/arena.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* A list and everything that its pointers lead to. */
struct eb_models_list {
    struct embag_model_list list; /* first: the caller gets a pointer to this */
    struct eb_arena arena;
};

/* The progress of a command. */
struct eb_models_progress {
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done; /* the command has ended; `text` is its outcome */
    char text[EB_ERROR_TEXT_BYTES];
};

/* Returns a serialised VersionRequest that begins with its gRPC prefix. With model NULL and version
 * 0 it is also a ListModelsRequest, which has no fields. Returns NULL with *error set if out of
 * memory. */
struct eb_outgoing *eb_models_call_encode(
    const char *model, uint64_t version, const struct eb_memory *memory, struct eb_error *error);

/* Decodes a serialised ListModelsResponse. Returns NULL with *error set. */
struct eb_models_list *eb_models_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Accepts NULL. */
void eb_models_call_free(struct eb_models_list *list);

/* Decodes a serialised VersionProgress; the caller frees it. Returns NULL with *error set. */
struct eb_models_progress *eb_models_call_decode_progress(
    const uint8_t *bytes, size_t size, struct eb_error *error);
