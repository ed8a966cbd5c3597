/* Finds the model, and its version, that a request asks for, and checks whether the caller may see
 * the model. All methods use this.
 * Thread: any. Memory: none; the results belong to the snapshot. */
#pragma once

#include "proto/status.h"
#include "server/models/snapshot.h"
#include "server/rpc/auth.h"

enum eb_model_right { EB_MODEL_RIGHT_SEE, EB_MODEL_RIGHT_LOOK_UP };

/* The model and version that a request asks for. */
struct eb_model_choice {
    const struct eb_snapshot *snapshot;
    const struct eb_principal *caller;
    enum eb_model_right right; /* right that the caller must have */
    const char *model;         /* name; empty for the only model, see eb_snapshot_find */
    const char *label;         /* label of the version; NULL or empty if there is none */
    uint64_t version;          /* number, if there is no label; 0 for the version that is served */
    bool is_router;            /* versions may be there that are not complete */
};

/* Returns the model. Returns NULL with *error set: PERMISSION_DENIED if the caller lacks the right
 * to the model, even if there is no model of that name; else NOT_FOUND. */
const struct eb_snapshot_model *eb_model_choice_find(
    const struct eb_model_choice *choice, struct eb_error *error);
/* Returns the version of that model that answers the request. Returns NULL with *error set:
 * UNAVAILABLE if a router waits until the version is complete; else NOT_FOUND. */
struct eb_model_version *eb_model_choice_find_version(const struct eb_model_choice *choice,
    const struct eb_snapshot_model *model, struct eb_error *error);
