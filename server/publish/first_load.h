/* What each model has in memory before a server answers: the version that is to be served, or the
 * next one that loads, and those that have a label. A model of which nothing loads is told, and
 * waits until it does.
 * Thread: one at a time; may take long. Memory: what is loaded is the registry's. */
#pragma once

#include "server/models/registry.h"

struct eb_first_load {
    const char *directory; /* of the repository */
    const struct eb_table_options *tables;
    struct eb_repository *seen;   /* filled in */
    struct eb_registry *registry; /* filled in; its events are set */
    /* A version has come so far. NULL: nobody asks. */
    void (*on_loading)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
};

/* false: *error says why the directory cannot be read, that there is no model, or, where no model
 * has a version that loads, why the first one has none. */
bool eb_first_load_run(const struct eb_first_load *load, struct eb_failure *failure);
