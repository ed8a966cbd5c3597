/* Reports when the record of what is served (served_record.h) may have been replaced. inotify
 * reports that at once. If inotify cannot be used, each wait is short, and the caller compares the
 * stamp of the record's file.
 * Thread: one waits; any other may wake it. Memory: two descriptors. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stdint.h>

/* Longest wait if inotify cannot be used. */
#define EB_LOCAL_FOLLOW_POLL_MS 250

/* Identifies the file of the record. All members are zero if there is no such file. */
struct eb_local_stamp {
    uint64_t inode;
    int64_t changed_ns;
};

struct eb_local_follow {
    int directory; /* descriptor, borrowed */
    int wakeup;    /* eventfd */
    int notices;   /* inotify; -1: it cannot be used */
    int watch;     /* of the directory, in `notices` */
};

/* Watches the directory with this path and descriptor. Returns false with *failure set if that
 * fails. */
bool eb_local_follow_open(
    struct eb_local_follow *follow, const char *path, int directory, struct eb_failure *failure);
void eb_local_follow_close(struct eb_local_follow *follow);
/* Watches another directory instead. */
void eb_local_follow_set(struct eb_local_follow *follow, const char *path, int directory);

/* Waits until a name in the directory changes, eb_local_follow_wake is called, or timeout_ms have
 * passed. May return early. */
void eb_local_follow_wait(const struct eb_local_follow *follow, int timeout_ms);
/* Ends the wait under way, or the next one. */
void eb_local_follow_wake(const struct eb_local_follow *follow);

/* Returns the stamp of the record's file. */
struct eb_local_stamp eb_local_follow_stamp(const struct eb_local_follow *follow);
