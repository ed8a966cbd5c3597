/* Looks at a repository: when it is told to, when the system tells of a change, and now and then.
 * It does so on a thread of its own, so that nothing that takes long keeps it from noticing.
 * Thread: its owner's loop. Memory: its owner's; it owns what was seen. */
#pragma once

#include "server/models/repository.h"
#include "server/publish/worker.h"

#include <uv.h>

/* ---- watch ---- */

/* Tells when something changes in a repository: in its directory, or in a model's (a version that
 * is renamed into place, a model.yaml). It may tell too often, and of what does not matter; what
 * cannot be watched, such as files that other machines write, it does not tell of.
 * Thread: its loop's. Memory: one entry on the heap for each directory. */

struct eb_watch_entry;

/* Zeroed, it watches nothing. */
struct eb_watch {
    uv_loop_t *loop;
    void (*on_change)(void *context);
    void *context;
    struct eb_watch_entry *entries;
};

/* Watches the directory itself and those of the models seen in it, and no others. Returns whether
 * there are any that were not watched before, so that something may have been missed. *error: 0, or
 * a negative libuv code: the system has no more watches to give. What cannot be watched for
 * another reason, such as its permissions, is passed over. */
bool eb_watch_update(
    struct eb_watch *watch, const char *directory, const struct eb_repository *seen, int *error);
/* Watches nothing; entries are freed as the loop runs. */
void eb_watch_close(struct eb_watch *watch);

/* ---- scanner ---- */

struct eb_scanner {
    const char *directory;
    uint32_t name_bytes_max;
    bool is_watching; /* for what the system tells; cleared where it cannot */
    uint64_t poll_ms; /* 0: only when told to */
    /* It begins to look: what is there from now on is seen by some later call of on_looked. Until
     * then `seen` is read by another thread. */
    void (*on_begun)(void *context);
    /* It has looked; not is_good: in vain, and `seen` is as before. */
    void (*on_looked)(void *context, bool is_good);
    void *context;
    struct eb_repository seen; /* what the repository is like */
    char *told_failure;        /* why the last look was in vain; NULL: it was not */
    /* Private. */
    struct eb_worker worker;
    struct eb_watch watch;
    uv_timer_t poll;
    uv_timer_t settle; /* until what changes has settled */
    struct eb_job job;
    struct eb_repository found;
    struct eb_failure failure;
    bool is_running; /* it has been started */
    bool is_good;
    bool is_busy;
    bool is_asked; /* to look again after this */
    bool is_stopping;
};

/* All members above the private ones are set, the others zeroed. With poll_ms it looks at once. 0,
 * or a negative libuv code and nothing is started. */
int eb_scanner_start(struct eb_scanner *scanner, uv_loop_t *loop);
/* on_looked follows, of a look that begins after the call. */
void eb_scanner_scan(struct eb_scanner *scanner);
/* Looks no more; one last on_looked follows where it is_busy. Accepts, as eb_scanner_close does, a
 * scanner that was never started. */
void eb_scanner_stop(struct eb_scanner *scanner);
/* Ends the thread: it has been stopped, and is not busy. */
void eb_scanner_close(struct eb_scanner *scanner);
/* When it is closed, or was never started. */
void eb_scanner_deinit(struct eb_scanner *scanner);
