/* A manager that has loaded the initial versions of a repository but is not started: the models,
 * loaded from files, as requests see them.
 * Thread: the test's. Memory: freed by manager_host_free. */
#pragma once

#include "server/publish/manager.h"

struct manager_host {
    /* As in struct eb_manager_options. The test may set them before it loads. */
    void (*on_loading)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    uv_loop_t uv;
    struct eb_manager *manager; /* NULL: nothing is loaded */
};

/* Loads the models of a directory. Returns a snapshot, which belongs to the host. Returns NULL with
 * *failure set if nothing can be served; then there is nothing to free. */
struct eb_snapshot *manager_host_load(
    struct manager_host *host, const char *directory, struct eb_failure *failure);
/* Accepts a zeroed host. */
void manager_host_free(struct manager_host *host);
