/* embag: lists, loads, unloads and serves the versions of a server's models, and lists and reloads
 * its settings. For callers who may use ModelAdmin: over the unix socket of the server's setting
 * admin_listen, or on its data port if admin_on_data_port allows it. For others all calls here end
 * with PERMISSION_DENIED. Thread, memory: as in embag.h. */
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

enum embag_setting_origin {
    EMBAG_ORIGIN_DEFAULT = 0,
    EMBAG_ORIGIN_FILE = 1,
    EMBAG_ORIGIN_ENVIRONMENT = 2,
    EMBAG_ORIGIN_FLAG = 3
};

/* A setting of a server. */
struct embag_setting {
    const char *name;  /* as in the file of settings */
    const char *value; /* in force; empty: not set */
    enum embag_setting_origin origin;
    bool live;                 /* a change takes effect at a reload; otherwise at the next start */
    bool pending;              /* another value was read, which takes effect at the next start */
    const char *pending_value; /* that value; empty: not set */
};

struct embag_setting_list {
    size_t count;
    const struct embag_setting *settings;
};

/* Lists all settings of the server. The caller frees the list. */
enum embag_status embag_list_settings(
    struct embag_client *client, struct embag_setting_list **list, struct embag_error *error);
/* Accepts NULL. */
void embag_setting_list_free(struct embag_setting_list *list);

/* The outcome of a reload. */
struct embag_reload {
    uint32_t changed; /* settings whose value has changed */
    uint32_t pending; /* settings whose value will change at the next start */
};

/* Makes the server read its settings again. Returns EMBAG_OK when the changed settings apply to
 * every later call, and FAILED_PRECONDITION if something is wrong with one of them; then nothing
 * has changed. The request is never sent twice. reload may be NULL. */
enum embag_status embag_reload_settings(
    struct embag_client *client, struct embag_reload *reload, struct embag_error *error);

#ifdef __cplusplus
}
#endif
