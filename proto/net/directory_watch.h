/* Passes on the changes that the system reports (inotify) in a set of directories: a name is
 * created, removed or renamed, a file is written, or the directory itself is moved or removed. It
 * may report a change several times, or one that does not matter. It does not notice every change:
 * those that other machines make on a network file system go unnoticed, for example.
 * Thread: its loop's. Memory: one entry on the heap for each directory. */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct eb_directory_watch_entry;

/* The owner sets the first three members and zeroes the last. */
struct eb_directory_watch {
    uv_loop_t *loop;
    void (*on_change)(void *context);
    void *context;
    struct eb_directory_watch_entry *entries;
};

/* Watches a directory until the second call of eb_directory_watch_keep_seen from now on. Returns
 * true if it was not watched before, so that a change may have been missed; this includes a path
 * that now leads to another directory, which is then watched instead. A directory that is missing
 * or cannot be watched is passed over. Sets *error to a negative libuv code if the reason is that
 * the system has no more watches to give; otherwise leaves *error as it is. */
bool eb_directory_watch_see(struct eb_directory_watch *watch, const char *path, int *error);
/* Ends the watches of all directories for which eb_directory_watch_see has not been called since
 * the last call of this function. */
void eb_directory_watch_keep_seen(struct eb_directory_watch *watch);
/* Ends all watches; entries are freed as the loop runs. Accepts a zeroed watch. */
void eb_directory_watch_close(struct eb_directory_watch *watch);
