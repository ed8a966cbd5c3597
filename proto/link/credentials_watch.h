/* Reads a client's files again when they change (proto/net/file_watch.h). A renewed token or
 * certificate is in use within about a second.
 *
 * If new files are not valid, such as a certificate whose key has not been replaced yet, the former
 * ones stay in use, and the credentials' stale_reason says why. The files are read again at each
 * change and, for EB_CREDENTIALS_PATIENCE_MS, every second, because the cause may pass by itself.
 * Thread: init and deinit on any; everything else on the loop's. The files are read on a separate
 * thread, so that a file system that does not respond delays no call. Memory: init copies what it
 * is given, except the targets. */
#pragma once

#include "proto/link/credentials.h"

#define EB_CREDENTIALS_PATIENCE_MS 10000
/* Time between two comparisons of the files' stamps, for file systems that report no changes. */
#define EB_CREDENTIALS_POLL_MS 5000

struct eb_credentials_watch {
    /* Set by init. */
    struct eb_access access; /* its texts are in `texts` */
    char *texts;
    const struct eb_targets *targets; /* borrowed */
    struct eb_credentials *credentials;
    struct eb_file_list files; /* those of the credentials, until start */

    /* Called each time the files have been read again and the valid ones are in use, even if
     * nothing is new. Set by the owner before start. */
    void (*on_read)(void *context, struct eb_credentials_change change);
    void *context;

    /* Private. */
    uv_loop_t *loop;
    struct eb_file_watch watch;
    struct eb_background_task reading;
    uv_timer_t retry;
    uint64_t patience_ms; /* time when retries end */
    bool is_patient;      /* retries go on until patience_ms */
    bool is_due;          /* the files must be read again when the present reading is over */
    bool is_running;
    struct eb_credentials fresh;     /* results of the reading */
    struct eb_file_list fresh_files; /* the files that they were read from */
};

/* Prepares to watch the files of open credentials; takes the memory of `files`, to which
 * eb_credentials_open has added them. Returns false if out of memory, with nothing left to undo. */
bool eb_credentials_watch_init(struct eb_credentials_watch *watch,
    struct eb_credentials *credentials, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files);
/* Frees a watch that does not run. Accepts a zeroed one. */
void eb_credentials_watch_deinit(struct eb_credentials_watch *watch);

/* Starts to watch, if there are any files. Returns 0, or a negative libuv code with nothing
 * started. */
int eb_credentials_watch_start(struct eb_credentials_watch *watch, uv_loop_t *loop);
/* Stops watching. The watch must stay in place until the loop has ended, which cannot happen while
 * a file system does not respond. Accepts a watch that does not run. */
void eb_credentials_watch_stop(struct eb_credentials_watch *watch);
