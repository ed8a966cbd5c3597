/* embag: lists, loads, unloads and serves the versions of a server's models. For callers who may
 * use ModelAdmin: over the unix socket of the server's setting admin_listen, or on its data port if
 * admin_on_data_port allows it. For others all calls here end with PERMISSION_DENIED.
 * Thread, memory: as in embag.h. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

enum embag_version_verb {
    EMBAG_VERSION_LOAD = 0,   /* kept until unloaded; version 0: those that model.yaml selects */
    EMBAG_VERSION_UNLOAD = 1, /* refused for a version that is served or has a label */
    EMBAG_VERSION_SERVE = 2   /* overrides model.yaml; version 0: model.yaml decides again */
};

struct embag_version_command {
    enum embag_version_verb verb;
    const char *model;
    uint64_t version;
    uint64_t timeout_us; /* 0: as long as it takes */
    /* Reports progress while a version is loaded. Called on the client's thread, so it must not
     * block. total_bytes is 0 until it is known. May be NULL. */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context; /* passed to on_progress */
};

/* Runs a command. Returns EMBAG_OK when the command is done and every later lookup sees it;
 * outcome->text then describes the new state. Otherwise outcome says why not, and the versions that
 * were served are still served; after DEADLINE_EXCEEDED, CANCELLED or UNAVAILABLE the server may
 * continue the command. A command is never sent twice. outcome may be NULL. */
enum embag_status embag_command_version(struct embag_client *client,
    const struct embag_version_command *command, struct embag_error *outcome);

/* Lists the versions of a model, without their tables. If model is NULL or empty, lists those of
 * all models. */
enum embag_status embag_list_versions(struct embag_client *client, const char *model,
    struct embag_model_list **list, struct embag_error *error);

#ifdef __cplusplus
}
#endif
