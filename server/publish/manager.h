/* Keeps the models of a repository in memory while they change on disk: scans for changes, has
 * versions loaded and freed in the background, decides which are served (models/version_policy.h),
 * and hands snapshots of the models to the loops. A version is published once all of it is in
 * memory. A version that fails to load leaves the previous ones as they were.
 *
 * On a router, the router's flip (route/flip.h) decides which version of a model is served, and
 * which ones are loaded besides those with a label and those that a command holds: the manager
 * tells its owner of the models (on_models), and is told the choices (eb_manager_route).
 *
 * Thread: all on the thread of the loop it was created on, which runs nothing else during
 * eb_manager_load. Memory: on the heap from create to destroy. */
#pragma once

#include "server/publish/command_queue.h"
#include "server/publish/load_marker.h"
#include "server/publish/publisher.h"

struct eb_manager;

/* X(NAME, text): how the manager notices changes on disk. */
#define EB_MANAGER_WATCH_LIST(X)                                                                   \
    X(AUTO, "auto") /* at once if the system reports them, and with a scan every poll_ms */        \
    X(POLL, "poll") /* with a scan every poll_ms */                                                \
    X(OFF, "off")   /* on command, or at the next start; like POLL while the start's scan fails */

#define X(name, text) EB_MANAGER_WATCH_##name,
enum eb_manager_watch { EB_MANAGER_WATCH_LIST(X) EB_MANAGER_WATCH_COUNT };
#undef X
/* Names by number, with NULL at the end. */
extern const char *const eb_manager_watch_names[EB_MANAGER_WATCH_COUNT + 1];

/* Longest time, by default, for which a command to serve a version waits for a router's flip. */
#define EB_MANAGER_SERVE_WAIT_MS 1800000

struct eb_manager_options {
    const char *directory;
    bool is_router;
    struct eb_load_markers *markers; /* open, or NULL */
    /* tables.resident.dir must stay open until eb_manager_destroy. */
    struct eb_table_options tables;
    enum eb_manager_watch watch;
    uint64_t poll_ms;
    uint64_t load_bytes_per_s; /* limit for loads in the background */
    uint64_t load_threads;     /* threads of each load; 0 means that the manager chooses */
    uint64_t load_jitter_ms;   /* as jitter_ms in struct eb_registry, after the start */
    struct eb_registry_limits limits;
    uint64_t serve_wait_ms; /* as in struct eb_command_queue; 0 means EB_MANAGER_SERVE_WAIT_MS */
    /* Time for which a part server waits for claims at its start; 0: it does not, and
     * eb_manager_load loads the initial versions. */
    uint64_t claim_wait_ms;
    /* Reports load progress. `path` is the file that is being read during eb_manager_load, and the
     * version's directory after eb_manager_start. When a load ends after eb_manager_start, the
     * callback is called once with path NULL and zeroes. May be NULL. */
    void (*on_loading)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* Called when the number of loads and comparisons with a stalled read has changed. May be
     * NULL. */
    void (*on_stalled)(void *context, unsigned count);
    /* Called when the readers are given this snapshot. May be NULL. */
    void (*on_serving)(void *context, const struct eb_snapshot *snapshot);
    /* Called when a scan of the repository is over. `failure` is the reason if it failed, otherwise
     * NULL. May be NULL. */
    void (*on_scanned)(void *context, const char *failure);
    /* Called when the process has become the owner of the resident files between two scans. May be
     * NULL. */
    void (*on_owned)(void *context);
    /* Called on a router when its models may have changed: after scans, loads, commands and
     * choices. The models are sorted by name, and borrowed for the call. It may call
     * eb_manager_route, but no other function of the manager. Must be set on a router; not called
     * elsewhere. */
    void (*on_models)(void *context, const struct eb_routed_model *models, size_t count);
    /* Returns whether a router knows what the part servers have, and its choices follow from that
     * and from what on_models was told. eb_manager_load waits for it. May be NULL. */
    bool (*is_settled)(const void *context);
    void *context;
};

/* How long the parts of a start took. */
struct eb_manager_times {
    uint64_t scan_ns; /* finding the versions on disk */
    uint64_t load_ns; /* loading the initial ones, or adopting their resident files; with
                         claim_wait_ms the time since eb_manager_start */
};

/* Creates a manager without models, and starts its background thread. Returns 0, or a negative
 * libuv code with *manager NULL. */
int eb_manager_create(
    struct eb_manager **manager, const struct eb_manager_options *options, uv_loop_t *loop);
/* Loads the initial version of every model, and its versions with a label, and runs the loop until
 * that is done. The initial version is the one to be served or, if that cannot be loaded, the next
 * one that can. A version that killed the process while it loaded is the last choice. If it is not
 * chosen and did so only once, it is loaded after the start. A model without a version that can be
 * loaded is logged, and served as soon as it has one. If the directory cannot be read or has no
 * model, the versions that are recorded in the directory of resident files are served, and scans go
 * on every poll_ms, whatever `watch` says, until one succeeds. Called once, before the start.
 * Returns false, with the reason in *failure, if there is nothing to serve at all; the manager can
 * then only be stopped.
 * On a router, it calls on_models and loads what is chosen, has a label or is held, until
 * is_settled returns true. It returns true even if nothing can be served yet. Recorded versions are
 * those on disk if the directory cannot be read. With claim_wait_ms it loads nothing, and returns
 * true if the directory can be read or versions of the part are recorded. The initial versions are
 * loaded after eb_manager_start, when routers can already claim some: a model's claimed versions,
 * the lowest first, or, if none is claimed in time, the same as above. Until a snapshot is ready,
 * they are loaded as fast as possible. Models without a version that can be loaded are logged, even
 * if that is all of them. */
bool eb_manager_load(struct eb_manager *manager, struct eb_failure *failure);
/* Returns zeroes if nothing was loaded. */
struct eb_manager_times eb_manager_load_times(const struct eb_manager *manager);
/* Returns the snapshot that requests see first, or NULL before eb_manager_load and after
 * eb_manager_start. */
struct eb_snapshot *eb_manager_snapshot(const struct eb_manager *manager);
/* Returns whether everything that is served is recorded in the directory of resident files, so that
 * it could be served again without the repository. */
bool eb_manager_is_recorded(const struct eb_manager *manager);
/* Returns whether eb_manager_load could not read the repository and opened what was recorded. */
bool eb_manager_is_from_record(const struct eb_manager *manager);
/* Starts to watch the disk. The readers already have eb_manager_snapshot. Returns 0, or a negative
 * libuv code with nothing started. */
int eb_manager_start(
    struct eb_manager *manager, const struct eb_publisher_reader *readers, size_t reader_count);
/* Cancels the load and answers all commands. The manager's handles close when the readers, which
 * must still run, have given back the snapshots and versions that they no longer need. May be
 * called twice, or without start. Accepts NULL. */
void eb_manager_stop(struct eb_manager *manager);
/* Returns the path of the file or directory that is still being loaded, scanned or freed, or NULL
 * if there is none. Such work may last for as long as a disk does not respond. Call it only after
 * eb_manager_stop.
 */
const char *eb_manager_left(const struct eb_manager *manager);
/* Frees the manager. It must have been stopped, its loop must have ended, and no reader may use a
 * snapshot any longer. Accepts NULL. */
void eb_manager_destroy(struct eb_manager *manager);

/* Takes over the options that may change while the manager runs: watch, poll_ms, the limits on
 * loads, `limits`, serve_wait_ms, and in `tables` row_bytes_max and group_features_max. Loads under
 * way keep the values that they began with, except load_bytes_per_s. Does nothing before the start
 * and after the stop. */
void eb_manager_set(struct eb_manager *manager, const struct eb_manager_options *options);
/* Queues the command; on_done follows. Before the start and after the stop, on_done is called at
 * once, with EB_MODEL_CANCELLED. */
void eb_manager_ask(struct eb_manager *manager, struct eb_model_command *command);

/* Takes over the claims of a router, as eb_claims_add does, until eb_manager_unclaim. If there is
 * no memory for them, they are logged and ignored. */
void eb_manager_claim(struct eb_manager *manager, struct eb_claim_set *set);
/* Ends the claims. The set belongs to its sender again. Every set must have been given back before
 * eb_manager_destroy. */
void eb_manager_unclaim(struct eb_manager *manager, struct eb_claim_set *set);

/* Takes over what a router's flip has chosen for a model, as eb_registry_route does. May be called
 * at any time, also within on_models, but within no other callback of the manager. */
void eb_manager_route(struct eb_manager *manager, const struct eb_routed_choice *choice);
/* Returns the time, as uv_hrtime has it but in milliseconds, until which requests pin a version, as
 * eb_registry_pin_end_ms does. */
uint64_t eb_manager_pin_end_ms(struct eb_manager *manager, const char *model, uint64_t number);
