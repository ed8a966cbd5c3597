/* Tells when something changes in a repository: in its directory, or in a model's (a version that
 * is renamed into place, a model.yaml). It may tell too often, and of what does not matter; what
 * cannot be watched, such as files that other machines write, it does not tell of.
 * Thread: its loop's. Memory: one entry on the heap for each directory. */
#pragma once

#include "server/models/repository.h"

#include <uv.h>

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
