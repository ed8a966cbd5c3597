/* ListModels between the wire and the public structs of embag.h.
 * Thread: pure. Memory: lists on the heap. */
#pragma once

#include "client/embag.h"
#include "proto/arena.h"
#include "proto/status.h"

/* A list and all that its pointers lead to. */
struct eb_models_list {
    struct embag_model_list list; /* first: what the caller gets points here */
    struct eb_arena arena;
};

/* Reads a serialised ListModelsResponse. NULL: *error is set. */
struct eb_models_list *eb_models_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Accepts NULL. */
void eb_models_call_free(struct eb_models_list *list);
