/* Calls about models, lists and commands, between the wire and the public structs of embag.h.
 * Thread: pure. Memory: requests from the eb_memory given, lists and progress on the heap. */
#pragma once

#include "client/embag.h"
#include "proto/arena.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* A list and all that its pointers lead to. */
struct eb_models_list {
    struct embag_model_list list; /* first: what the caller gets points here */
    struct eb_arena arena;
};

/* How far a command has come. */
struct eb_models_progress {
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done; /* and text says what is the case */
    char text[EB_ERROR_TEXT_BYTES];
};

/* Serialises a VersionRequest behind its gRPC prefix. Without a model (NULL) and a version it is
 * also a ListModelsRequest, which has no fields. NULL: *error says that there is no memory. */
struct eb_outgoing *eb_models_call_encode(
    const char *model, uint64_t version, const struct eb_memory *memory, struct eb_error *error);

/* Reads a serialised ListModelsResponse. NULL: *error is set. */
struct eb_models_list *eb_models_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Accepts NULL. */
void eb_models_call_free(struct eb_models_list *list);

/* Reads a serialised VersionProgress, to be freed. NULL: *error is set. */
struct eb_models_progress *eb_models_call_decode_progress(
    const uint8_t *bytes, size_t size, struct eb_error *error);
