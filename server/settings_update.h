/* Reads the settings of a running server again, and hands those that take effect at once to its
 * loops, executor and model manager. Watches the settings file. Answers requests about settings.
 * Thread: main's; each loop takes over its limits on its own thread, between two requests. Memory:
 * each change is on the heap until every loop has taken it over. */
#pragma once

#include "proto/net/file_watch.h"
#include "server/config_live.h"
#include "server/rpc/settings_request.h"

#include <uv.h>

struct eb_executor;
struct eb_loop;
struct eb_mailbox;

/* The modules of the server that need settings, borrowed. */
struct eb_settings_subjects {
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
    struct eb_manager *manager;
    struct eb_mailbox *mailbox; /* main's, open until the loops have drained */
    uv_loop_t *uv;              /* main's */
};

struct eb_settings_update {
    struct eb_config_live live;
    struct eb_settings_subjects subjects;
    /* Called after a reload that a request or a change of the file has caused. May be NULL. */
    void (*on_reload)(void *context, bool is_good);
    void *context;
    struct eb_file_watch watch; /* of the file; private */
};

/* Reads all settings again and applies them, all or nothing. Running loops take them over soon
 * afterwards. Returns false if a setting is wrong: a log line says which, and nothing has changed.
 * Must not be called once the loops are being ended. */
bool eb_settings_update_reload(struct eb_settings_update *update);
/* Watches the settings file if watch_settings is set, and reloads when it has changed, even if it
 * changed between its reading at start and this call. Returns 0 or a negative libuv code. */
int eb_settings_update_watch(struct eb_settings_update *update);
/* Stops watching. The struct must stay in place until main's loop has closed its handles. Does
 * nothing if nothing is watched. */
void eb_settings_update_stop(struct eb_settings_update *update);
/* Returns the path of the file if a request to its file system is still unanswered, so that main's
 * loop cannot end; otherwise NULL. */
const char *eb_settings_update_left(const struct eb_settings_update *update);
/* Carries out the request. A reload is done when every loop has taken over the settings. If
 * `is_stopping`, refuses the request. */
void eb_settings_update_ask(
    struct eb_settings_update *update, struct eb_settings_request *request, bool is_stopping);
