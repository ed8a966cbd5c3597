/* Keeps the models of a repository in memory while they change on disk: scans for changes, has
 * versions loaded and freed in the background, decides which are served (models/version_policy.h),
 * and hands snapshots of them to the loops. A version is published once all of it is in memory; one
 * that fails to load leaves those before as they were.
 *
 * Thread: all on the thread of the loop it was created on, which runs nothing else during
 * eb_manager_load. Memory: on the heap from create to destroy. */
#pragma once

#include "server/publish/command_queue.h"
#include "server/publish/publisher.h"

struct eb_manager;

/* X(NAME, text): how changes on disk are noticed. */
#define EB_MANAGER_WATCH_LIST(X)                                                                   \
    X(AUTO, "auto") /* at once where the system tells, and by looking every poll_ms */             \
    X(POLL, "poll") /* by looking every poll_ms */                                                 \
    X(OFF, "off")   /* on command, or at the next start */

#define X(name, text) EB_MANAGER_WATCH_##name,
enum eb_manager_watch { EB_MANAGER_WATCH_LIST(X) EB_MANAGER_WATCH_COUNT };
#undef X
/* By number, ended by NULL. */
extern const char *const eb_manager_watch_names[EB_MANAGER_WATCH_COUNT + 1];

struct eb_manager_options {
    const char *directory;
    struct eb_table_options tables;
    enum eb_manager_watch watch;
    uint64_t poll_ms;
    uint64_t load_bytes_per_s;  /* of what is loaded in the background */
    uint64_t kept_versions_max; /* as in struct eb_registry */
    uint64_t kept_bytes_max;
    /* Load progress. During eb_manager_load it names the file that is being read, later the
     * version's directory. When a load ends after the start it is called once with path NULL and
     * zeroes. May be NULL. */
    void (*on_loading)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* The readers are being given this snapshot. May be NULL. */
    void (*on_serving)(void *context, const struct eb_snapshot *snapshot);
    /* A scan of the repository is over; `failure` is NULL, or why it failed. May be NULL. */
    void (*on_scanned)(void *context, const char *failure);
    void *context;
};

/* Makes a manager without models, and starts its background thread. Returns 0, or a negative libuv
 * code and *manager is NULL. */
int eb_manager_create(
    struct eb_manager **manager, const struct eb_manager_options *options, uv_loop_t *loop);
/* Loads the initial version of every model, the one that is to be served or else the next one that
 * loads, and those that have a label, and runs the loop until that is done. A model of which
 * nothing loads is named in the log, and waits until it does. Called once, before the start. false:
 * *failure says why the directory cannot be read, that there is no model, or, if no model has a
 * version that loads, why the first one has none; the manager can only be stopped then. */
bool eb_manager_load(struct eb_manager *manager, struct eb_failure *failure);
/* Returns the snapshot that requests see first, or NULL before eb_manager_load and after
 * eb_manager_start. */
struct eb_snapshot *eb_manager_snapshot(const struct eb_manager *manager);
/* Begins to follow the disk. The readers have eb_manager_snapshot already. Returns 0, or a negative
 * libuv code and nothing is started. */
int eb_manager_start(
    struct eb_manager *manager, const struct eb_publisher_reader *readers, size_t reader_count);
/* Cancels the load and answers all commands. The manager's handles close when the readers, which
 * must still run, have given back the snapshots and versions that they no longer need. May be
 * called twice, or without start. Accepts NULL. */
void eb_manager_stop(struct eb_manager *manager);
/* After eb_manager_stop: returns the path of what is still being loaded, scanned or freed, which
 * may take as long as a disk does not answer, or NULL if nothing is. */
const char *eb_manager_left(const struct eb_manager *manager);
/* Frees the manager. It has been stopped, its loop has run out, and no reader uses a snapshot any
 * longer. Accepts NULL. */
void eb_manager_destroy(struct eb_manager *manager);

/* Queues the command; on_done follows. Before the start and after the stop it is called at once,
 * with EB_MODEL_CANCELLED. */
void eb_manager_ask(struct eb_manager *manager, struct eb_model_command *command);
