/* Which model, and which version of it, a request means, and whether its caller may know: one
 * answer for all methods.
 * Thread: any. Memory: none; what is found is the snapshot's. */
#pragma once

#include "proto/status.h"
#include "server/models/snapshot.h"
#include "server/rpc/auth.h"

enum eb_model_right { EB_MODEL_RIGHT_SEE, EB_MODEL_RIGHT_LOOK_UP };

/* What a request says. */
struct eb_model_choice {
    const struct eb_snapshot *snapshot;
    const struct eb_principal *caller;
    enum eb_model_right right; /* that the caller must have */
    const char *model;         /* empty: the only one, see eb_snapshot_find */
    const char *label;         /* of the version; NULL or empty: none */
    uint64_t version;          /* without a label; 0: the one that is served */
};

/* NULL: *error, NOT_FOUND, or, before it is told whether there is such a model, PERMISSION_DENIED.
 */
const struct eb_snapshot_model *eb_model_choice_find(
    const struct eb_model_choice *choice, struct eb_error *error);
/* The version of that model that answers. NULL: *error, NOT_FOUND. */
struct eb_model_version *eb_model_choice_find_version(const struct eb_model_choice *choice,
    const struct eb_snapshot_model *model, struct eb_error *error);
