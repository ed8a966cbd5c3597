/* Notes what a thread waits for while it opens or reads a file of the repository, so that another
 * thread can report a read that takes long. A thread attaches a watch; from then on, the functions
 * that read tables (formats/table_file.h) and directories note their reads in it. They note nothing
 * for a thread without a watch.
 * Thread: each thread notes its own reads; one other thread checks a watch. Memory: the owner's.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Time that a read may take before it is reported. */
#define EB_READ_WATCH_STALL_MS UINT64_C(30000)
/* Room for a path; a longer one is cut. */
#define EB_READ_WATCH_PATH_BYTES 1024

struct eb_read_watch {
    /* Private. */
    pthread_mutex_t mutex; /* guards the next two members */
    uint64_t since_ms;     /* time when the read under way began; 0 if none is under way */
    char path[EB_READ_WATCH_PATH_BYTES];
    uint64_t told_since_ms; /* since_ms of the read that was reported; 0 if none was */
};

enum eb_read_watch_event {
    EB_READ_WATCH_QUIET,
    EB_READ_WATCH_STALLED, /* a read has taken long */
    EB_READ_WATCH_RESUMED, /* a read that was STALLED has ended */
};

/* A read that has taken long. */
struct eb_read_stall {
    uint64_t seconds;
    char path[EB_READ_WATCH_PATH_BYTES];
};

/* Returns false if the system has no resources for it. */
bool eb_read_watch_init(struct eb_read_watch *watch);
/* No thread may have it attached. */
void eb_read_watch_deinit(struct eb_read_watch *watch);

/* Attaches the watch to the calling thread, in place of the one that it had; NULL: none. */
void eb_read_watch_attach(struct eb_read_watch *watch);
/* Note that the calling thread begins to wait for the file or directory at `path`, and that it no
 * longer does. */
void eb_read_watch_begin(const char *path);
void eb_read_watch_end(void);

/* Returns what has happened since the last check. Each event is returned once; if it is STALLED,
 * fills in *stall. A read counts as stalled after stall_ms. */
enum eb_read_watch_event eb_read_watch_check(
    struct eb_read_watch *watch, uint64_t stall_ms, struct eb_read_stall *stall);
