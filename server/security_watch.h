/* Reads certificates and access rules again when their files change. Within about a second, a
 * renewed certificate is in use and a changed auth_file is in force.
 *
 * If the files are not valid, such as a new certificate whose key has not been replaced yet, they
 * are read again every second and at each change, and the former contents stay in force. If they
 * are still not valid after EB_SECURITY_PATIENCE_MS, an error is logged, and the files are read
 * again only at the next change.
 * Thread: main's. Memory: only the struct and its two watches (proto/net/file_watch.h). */
#pragma once

#include "server/security.h"

/* Time for which files that are not valid are read again before an error is logged, and the time
 * between two such readings. */
#define EB_SECURITY_PATIENCE_MS 10000
#define EB_SECURITY_RETRY_MS 1000

struct eb_security_watch_options {
    struct eb_security *security;
    struct eb_loop *const *loops; /* [loop_count] */
    size_t loop_count;
    bool is_polling_only; /* see eb_file_watch_options */
    uint64_t poll_ms;
    /* Called when files have been read again, or have been found in error for too long. */
    void (*on_reloaded)(void *context, bool is_good);
    void *context;
};

struct eb_security_watch;

/* The watch of one kind of files (enum eb_security_kind). Private. */
struct eb_security_watched {
    struct eb_security_watch *watch;
    enum eb_security_kind kind;
    struct eb_file_watch files;
    uv_timer_t retry;     /* runs while files that are not valid are read again */
    uint64_t patience_ms; /* time when that becomes an error */
};

/* A zeroed watch was never started. */
struct eb_security_watch {
    /* Private. */
    struct eb_security_watch_options options;
    uv_loop_t *loop;
    bool is_running;
    bool has_warned; /* the log has a warning that the system reports no changes */
    struct eb_security_watched watched[EB_SECURITY_KINDS];
};

/* Starts to watch the files of eb_security_take_files. The loops must be running. Returns 0, or a
 * negative libuv code; then the caller calls stop. */
int eb_security_watch_start(struct eb_security_watch *watch, uv_loop_t *loop,
    const struct eb_security_watch_options *options);
/* Must be called after eb_security_reload: watches the files that it has read, and stops rereading
 * files that were not valid before. */
void eb_security_watch_renew(struct eb_security_watch *watch);
/* Returns a file of a kind whose stamps are being taken now, or NULL if there is none. If the file
 * system does not respond, that goes on, and the loop cannot end before it is over. */
const char *eb_security_watch_left(const struct eb_security_watch *watch);
/* Stops watching. The struct must stay valid until the loop has ended. Accepts a watch that was
 * never started or is stopped. */
void eb_security_watch_stop(struct eb_security_watch *watch);
