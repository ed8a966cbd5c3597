/* Builds the index of a table's keys (kernels/key_build.h) by as many threads as there are
 * processors; the bytes do not depend on how many that are.
 * Thread: one at a time; the threads it starts it also joins. Memory: while it builds, for each
 * thread some hundred KiB of the heap and four bytes for every 4096 keys, and eight bytes for every
 * 65536 keys. */
#pragma once

#include "kernels/key_build.h"
#include "server/base/failure.h"

/* Most threads that build one index. */
#define EB_KEY_WORKERS_THREADS_MAX 16

struct eb_key_workers {
    struct eb_key_plan plan;
    const void *keys; /* [plan.row_count] int64 of any alignment */
    void *index;      /* [plan.index_bytes], aligned to EB_KEY_INDEX_ALIGNMENT */
    /* Called now and then, on the thread of the call: the work of so many bytes of the index more
     * is done; all of it is index_bytes. false: the build is given up. */
    bool (*go_on)(void *context, uint64_t bytes);
    void *context;
};

/* false: *failure says, without a path, that two rows have the same key, that the keys find no
 * room, that there is no memory or that the build was given up; *row is the row that it is about, 0
 * where it is about none. */
bool eb_key_workers_build(
    const struct eb_key_workers *workers, uint32_t *row, struct eb_failure *failure);
