/* Scans a repository: on request, when the system reports a change, and periodically. It has a
 * thread of its own, so that no load delays it.
 * Thread: the owner's loop. Memory: the owner's; the scanner owns what was seen. */
#pragma once

#include "server/models/repository.h"
#include "server/publish/worker.h"

#include <uv.h>

/* ---- watch ---- */

/* Reports changes in a repository: in its directory, or in a model's (a version that is renamed
 * into place, a model.yaml). It may report too often, and changes that do not matter. It does not
 * see everything: not files that other machines write, for example. Thread: its loop's. Memory: one
 * entry on the heap for each directory. */

struct eb_watch_entry;

/* Zeroed, it watches nothing. */
struct eb_watch {
    uv_loop_t *loop;
    void (*on_change)(void *context);
    void *context;
    struct eb_watch_entry *entries;
};

/* Watches the directory itself and those of the models seen in it, and no others. Returns whether
 * some were not watched before, so that a change may have been missed. *error: 0, or a negative
 * libuv code if the system has no more watches to give. A directory that cannot be watched for
 * another reason, such as its permissions, is passed over. */
bool eb_watch_update(
    struct eb_watch *watch, const char *directory, const struct eb_repository *seen, int *error);
/* Ends all watches; entries are freed as the loop runs. */
void eb_watch_close(struct eb_watch *watch);

/* ---- scanner ---- */

struct eb_scanner {
    const char *directory;
    uint32_t name_bytes_max;
    bool is_watching; /* uses what the system reports; cleared if the system cannot */
    uint64_t poll_ms; /* between periodic scans; 0: none */
    /* A scan begins: changes from now on are seen by a later one. Until on_scanned another thread
     * reads `seen`. */
    void (*on_begun)(void *context);
    /* A scan is over; if not is_good it failed, and `seen` is as before. */
    void (*on_scanned)(void *context, bool is_good);
    void *context;
    struct eb_repository seen; /* by the last scan that did not fail */
    char *told_failure;        /* why the last scan failed; NULL: it did not fail */
    /* Private. */
    struct eb_worker worker;
    struct eb_watch watch;
    uv_timer_t poll;
    uv_timer_t settle; /* runs from a change until the scan, for changes come together */
    struct eb_job job;
    struct eb_repository found;
    struct eb_failure failure;
    bool is_running; /* it has been started */
    bool is_good;
    bool is_busy;
    bool is_asked; /* for another scan after this one */
    bool is_stopping;
};

/* The owner has set the members above the private ones, and zeroed those. With poll_ms a scan
 * begins at once. Returns 0, or a negative libuv code and nothing is started. */
int eb_scanner_start(struct eb_scanner *scanner, uv_loop_t *loop);
/* Asks for a scan that begins after the call; on_scanned follows. */
void eb_scanner_scan(struct eb_scanner *scanner);
/* Ends scanning; if the scanner is_busy a last on_scanned follows. Like eb_scanner_close it accepts
 * a scanner that was never started. */
void eb_scanner_stop(struct eb_scanner *scanner);
/* Ends the thread of a scanner that has been stopped and is not busy. */
void eb_scanner_close(struct eb_scanner *scanner);
/* Frees what was seen. The scanner is closed, or was never started. */
void eb_scanner_deinit(struct eb_scanner *scanner);
