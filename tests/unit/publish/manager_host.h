/* A manager with the initial versions of a repository, not started: what requests see of models
 * that were loaded from files.
 * Thread: the test's. Memory: freed by manager_host_free. */
#pragma once

#include "server/publish/manager.h"

struct manager_host {
    /* As in struct eb_manager_options, for the test to set before it loads. */
    void (*on_loading)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    uv_loop_t uv;
    struct eb_manager *manager; /* NULL: nothing is loaded */
};

/* Loads what is in the directory. NULL: *failure says why nothing is served, and nothing is to be
 * freed. The snapshot is the host's. */
struct eb_snapshot *manager_host_load(
    struct manager_host *host, const char *directory, struct eb_failure *failure);
/* Accepts a zeroed host. */
void manager_host_free(struct manager_host *host);
