/* Worker threads that share a piece of work, which is cut into tasks: reading and converting the
 * chunks of tables. Workers take tasks in order, from one counter. The calling thread watches the
 * workers: if one has waited for a read for too long, that is reported, and another worker starts
 * in its place, so that the other tasks go on.
 * Thread: any may call run, which joins the threads that it starts; they have the caller's
 * priority. Memory: on the heap during the run, and one counter for the process. */
#pragma once

#include "server/base/load_meter.h"
#include "server/base/read_watch.h"

/* Most worker threads of one run, not counting those that replace stalled ones. */
#define EB_WORKER_POOL_THREADS_MAX 64u

/* One worker, as the callbacks see it. */
struct eb_pool_worker {
    void *state;                /* result of `open` */
    struct eb_read_watch watch; /* private: attached to the worker's thread */
};

struct eb_worker_pool {
    unsigned thread_count; /* number of workers; 0 means one */
    uint64_t task_count;
    struct eb_load_meter *meter; /* for reports of stalled reads, and of their ends */
    uint64_t stall_ms;           /* 0 means EB_READ_WATCH_STALL_MS */
    /* Makes the state that one worker needs, on that worker's thread. Returns NULL with *failure
     * set if that fails; the other workers then do its work. */
    void *(*open)(void *context, struct eb_failure *failure);
    /* Does one task. Returns false with *failure set if it fails. */
    bool (*run)(
        void *context, struct eb_pool_worker *worker, uint64_t task, struct eb_failure *failure);
    void (*close)(void *state);
    void *context;
};

/* Does all tasks. Returns false if a task fails or if no worker can be made. If tasks fail, the
 * remaining ones are not begun, and *failure has the error of the failed task that comes first in
 * order, whatever the number of threads. */
bool eb_worker_pool_run(const struct eb_worker_pool *pool, struct eb_failure *failure);

/* Returns how many threads work in all runs of this process at present, including those that
 * replace stalled ones. */
unsigned eb_worker_pool_count_threads(void);
