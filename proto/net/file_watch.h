/* Reports when files have changed: certificates, keys, tokens, settings. A watch follows the path
 * of a file through all symbolic links, so a change may also be a new target of a link on the way,
 * such as Kubernetes' `..data`, or a missing directory that exists again.
 *
 * Changes are noticed in two ways: the system reports them (proto/net/directory_watch.h), and the
 * files' stamps are compared every poll_ms. The second way also works on network file systems, and
 * when the system has no more watches to give.
 *
 * A change of several files, or of a file that is written slowly, is reported once: when all stamps
 * have been the same for quiet_ms (by default a second), and only if they differ from those that
 * were reported last.
 *
 * Thread: the loop's. Stamps are taken on a separate thread, so that a file system that does not
 * respond usually delays only the watch. It can also block the loop, if it stops responding just
 * after a scan, when the loop asks the system to report changes. Memory: the list and one entry for
 * each directory, on the heap until the loop has closed the handles after eb_file_watch_stop. */
#pragma once

#include "proto/net/background_task.h"
#include "proto/net/directory_watch.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Default time for which all stamps must stay the same before a change is reported. */
#define EB_FILE_WATCH_QUIET_MS 1000
/* Most files in a list. Further ones are refused. */
#define EB_FILE_LIST_MAX 8192
/* Most directories in which the system is asked to report changes. In further ones, changes are
 * noticed only by comparing stamps. */
#define EB_FILE_WATCH_DIRECTORIES_MAX 256

/* ---- lists of files ---- */

/* Identity, size and times of the file that a path leads to. */
struct eb_watched_stamp {
    int error; /* errno if there is no stamp, such as ENOENT; else 0 */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written;
    struct timespec changed; /* also of its permissions */
};

/* Returns whether two stamps are those of the same file in the same state. */
bool eb_watched_stamp_is_same(
    const struct eb_watched_stamp *stamp, const struct eb_watched_stamp *other);

struct eb_watched_file {
    char *path;
    struct eb_watched_stamp stamp;
};

/* Files with the stamps that they had when they were added. A zeroed list is empty. */
struct eb_file_list {
    struct eb_watched_file *files; /* [count] */
    size_t count;
    size_t capacity;
};

/* Adds a copy of the path and the file's stamp, even if the file is missing. Call it before you
 * read the file, so that a change while you read it is noticed. Returns false, with the list
 * unchanged, if out of memory or if the list has EB_FILE_LIST_MAX files. */
bool eb_file_list_add(struct eb_file_list *list, const char *path);
/* Frees the list's memory and makes it empty. */
void eb_file_list_deinit(struct eb_file_list *list);

/* ---- watch ---- */

struct eb_file_watch_options {
    /* The watch takes its memory, even if the start fails. */
    struct eb_file_list files;
    uint64_t poll_ms;     /* time between two comparisons of the stamps; 0: none */
    bool is_polling_only; /* the system is not asked to report changes */
    uint64_t quiet_ms;    /* 0: EB_FILE_WATCH_QUIET_MS */
    /* Called after a change of one or more files, which may now be missing. May call any of the
     * functions below. */
    void (*on_change)(void *context);
    /* Called when the system has no more watches to give, so that changes are noticed only by
     * polling, and again each time that this recurs. `error` is a negative libuv code. May be
     * NULL. */
    void (*on_unreported)(void *context, int error);
    void *context;
};

struct eb_file_watch_list; /* private */

/* A zeroed watch counts as never started. */
struct eb_file_watch {
    /* Private. */
    struct eb_file_watch_options options; /* without the list */
    uv_loop_t *loop;
    struct eb_directory_watch directories;
    uv_timer_t timer;
    struct eb_background_task scan; /* takes the stamps of `current` */
    struct eb_file_watch_list *current;
    struct eb_file_watch_list *next; /* replaces `current` when the scan is over; NULL: none */
    uint64_t scanned_ms;             /* time when stamps were last taken */
    uint64_t changed_ms;             /* time when the present stamps were first seen */
    bool is_hurrying;                /* the timer waits for the next scan, not for the next poll */
    bool is_touched;                 /* the directories of the files must be found again */
    bool is_unreported;
    bool is_stopped;
};

/* Starts to watch. A stamp that differs from the one in the list counts as a change. Returns 0, or
 * a negative libuv code with nothing started. The struct must stay valid; see eb_file_watch_stop.
 */
int eb_file_watch_start(
    struct eb_file_watch *watch, uv_loop_t *loop, const struct eb_file_watch_options *options);
/* Replaces the list, and takes the memory of `files` in any case. Changes since the stamps in
 * `files` are reported. Returns false if out of memory; the former list is then still watched. If
 * the watch was never started or is stopped, only frees the list. */
bool eb_file_watch_set(struct eb_file_watch *watch, struct eb_file_list *files);
/* Returns whether a thread is taking the files' stamps now. If their file system does not respond,
 * this goes on, and the loop does not end before it is over. */
bool eb_file_watch_is_scanning(const struct eb_file_watch *watch);
/* Stops watching; on_change is no longer called. The struct must stay valid until the loop has
 * closed its handles and no thread is taking stamps: until uv_run returns 0, if nothing else is on
 * the loop. Accepts a watch that was never started or is stopped. */
void eb_file_watch_stop(struct eb_file_watch *watch);
