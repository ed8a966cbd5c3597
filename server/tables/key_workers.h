/* Builds the index of a table's keys (kernels/key_index.h) with one thread for each processor. The
 * bytes of the index do not depend on the number of threads.
 * Thread: one at a time; joins the threads that it starts. Memory: on the heap during the build:
 * for each thread some hundred KiB and four bytes for every 4096 keys; for all threads together
 * eight bytes for every 65536 keys. */
#pragma once

#include "kernels/key_index.h"
#include "server/base/failure.h"

/* Most threads that build one index. */
#define EB_KEY_WORKERS_THREADS_MAX 16

struct eb_key_workers {
    struct eb_key_plan plan;
    const void *keys; /* [plan.row_count] int64 of any alignment */
    void *index;      /* [plan.index_bytes], aligned to EB_KEY_INDEX_ALIGNMENT */
    /* Called now and then, on the calling thread, when the work for `bytes` more bytes of the index
     * is done; all calls together report index_bytes. Returns false to cancel the build. */
    bool (*go_on)(void *context, uint64_t bytes);
    void *context;
};

/* Builds the index. Returns false if two rows have the same key, if some keys find no slot in the
 * index, if out of memory, or if the build was cancelled: *failure has the reason, without a path.
 * *row is the row that the reason concerns, or 0 if it concerns none. */
bool eb_key_workers_build(
    const struct eb_key_workers *workers, uint32_t *row, struct eb_failure *failure);
