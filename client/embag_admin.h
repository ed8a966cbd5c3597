/* embag: which versions of its models a server has and serves. For those who may call ModelAdmin:
 * over the unix socket of the server's setting admin_listen, or wherever admin_on_data_port lets
 * them; else all calls here end with PERMISSION_DENIED.
 * Thread, memory: as embag.h says. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

enum embag_version_verb {
    EMBAG_VERSION_LOAD = 0,   /* and keep until it is unloaded; version 0: as model.yaml says */
    EMBAG_VERSION_UNLOAD = 1, /* neither what is served nor what has a label */
    EMBAG_VERSION_SERVE = 2   /* whatever model.yaml says; version 0: as that says again */
};

struct embag_version_command {
    enum embag_version_verb verb;
    const char *model;
    uint64_t version;
    uint64_t timeout_us; /* 0: as long as it takes */
    /* Now and then while a version is loaded, on the client's thread, which it holds up; may be
     * NULL. total_bytes is 0 until it is known. */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context; /* handed back */
};

/* Returns when the command is done and every later lookup sees it: outcome->text then says what is
 * the case. Else it says why not, and what was served still is; after DEADLINE_EXCEEDED, CANCELLED
 * or UNAVAILABLE the server may go on with it. Never sent twice. outcome may be NULL. */
enum embag_status embag_command_version(struct embag_client *client,
    const struct embag_version_command *command, struct embag_error *outcome);

/* Lists the versions of a model, or of all where model is NULL or empty, without their tables. */
enum embag_status embag_list_versions(struct embag_client *client, const char *model,
    struct embag_model_list **list, struct embag_error *error);

#ifdef __cplusplus
}
#endif
