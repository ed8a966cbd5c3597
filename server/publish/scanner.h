/* Scans a repository: on request, when the system reports a change, and periodically. It has a
 * thread of its own, so that no load delays it.
 * Thread: the owner's loop. Memory: the owner's; the scanner owns what was seen. */
#pragma once

#include "proto/net/directory_watch.h"
#include "server/models/repository.h"
#include "server/publish/worker.h"

#include <uv.h>

/* ---- watch ---- */

/* Watches the directory itself and the directories of the models in `seen`, and no others, so that
 * a version that is renamed into place or a new model.yaml is noticed. Returns whether some were
 * not watched before, so that a change may have been missed. Sets *error to 0, or to a negative
 * libuv code if the system has no more watches to give. A directory that cannot be watched for
 * another reason, such as its permissions, is passed over. */
bool eb_watch_update(struct eb_directory_watch *watch, const char *directory,
    const struct eb_repository *seen, int *error);

/* ---- scanner ---- */

struct eb_scanner {
    const char *directory;
    struct eb_repository_terms terms;
    /* Both are set before the start, and later by eb_scanner_set. */
    bool is_watching; /* whether changes that the system reports cause scans; cleared if the system
                         cannot report them */
    uint64_t poll_ms; /* time between periodic scans; 0 means that there are none */
    /* Called when a scan begins. Changes from now on are seen by a later scan. Until on_scanned,
     * another thread reads `seen`. */
    void (*on_begun)(void *context);
    /* Called when a scan is over. If it failed, is_good is false and `seen` is unchanged. */
    void (*on_scanned)(void *context, bool is_good);
    void *context;
    struct eb_repository seen; /* the repository as the last successful scan found it */
    char *told_failure;        /* reason why the last scan failed; NULL if it did not */
    /* Private. */
    struct eb_worker worker;
    struct eb_directory_watch watch;
    uv_timer_t poll;
    uv_timer_t settle; /* runs from a change until the scan, because changes come in groups */
    struct eb_job job;
    struct eb_repository found;
    struct eb_failure failure;
    bool is_running; /* it has been started */
    bool is_good;
    bool is_busy;
    bool is_asked; /* another scan was requested while this one runs */
    bool is_stopping;
};

/* Starts the thread. The owner has set the members above the private ones, and has zeroed the
 * private ones. Begins a scan at once if poll_ms is not 0. Returns 0, or a negative libuv code with
 * nothing started. */
int eb_scanner_start(struct eb_scanner *scanner, uv_loop_t *loop);
/* Changes how a started scanner notices changes. Scans once if periodic scans or watching begin.
 * Has no effect on a stopped scanner. */
void eb_scanner_set(struct eb_scanner *scanner, bool is_watching, uint64_t poll_ms);
/* Requests a scan that begins after the call; on_scanned follows. */
void eb_scanner_scan(struct eb_scanner *scanner);
/* Ends scanning. If the scanner is_busy, a last on_scanned follows. This and eb_scanner_close
 * accept a scanner that was never started. */
void eb_scanner_stop(struct eb_scanner *scanner);
/* Ends the thread of a scanner that has been stopped and is not busy. */
void eb_scanner_close(struct eb_scanner *scanner);
/* Frees `seen`. The scanner must be closed, or never have been started. */
void eb_scanner_deinit(struct eb_scanner *scanner);
