/* The executor: one team of threads that computes what is too large for a loop, as one stream of
 * tiles across all requests, first come first served.
 * Thread: submit from any; on_done is called on a thread of the team. Memory: works are their
 * submitters', from submit until on_done. */
#pragma once

#include "kernels/bag_stream.h"

#include <stdatomic.h>

enum eb_work_outcome {
    EB_WORK_DONE,    /* every job is computed */
    EB_WORK_EXPIRED, /* its deadline passed, or it was cancelled, before the last tile was given out
                      */
};

/* Checked jobs that are done together. */
struct eb_work {
    struct eb_bag_job *jobs; /* [job_count], with their outputs set */
    uint32_t job_count;
    uint64_t weight_bytes;        /* what its jobs read and write: its share of the queue */
    uint64_t deadline_ns;         /* uv_hrtime; 0: none */
    const atomic_bool *cancelled; /* true: the work is treated as expired; NULL: never */
    void (*on_done)(struct eb_work *work, enum eb_work_outcome outcome);
    /* The executor's own, guarded by its lock. */
    struct eb_work *next;
    struct eb_bag_cut cut; /* where the next tile begins */
    size_t open_tiles;
    enum eb_work_outcome outcome;
    bool whole; /* every tile has been given out */
};

struct eb_executor; /* opaque */

/* Starts `thread_count` threads; borrows ops and schedules. NULL: no memory, no thread to lead
 * them, or OMP_THREAD_LIMIT is less. Where the system refuses one of the others, the OpenMP runtime
 * ends the process. */
struct eb_executor *eb_executor_create(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, unsigned thread_count, uint64_t queue_bytes_max);
/* Every work submitted must be done. Joins the team. Accepts NULL. */
void eb_executor_destroy(struct eb_executor *executor);

/* false: with it the queue would hold more than queue_bytes_max; the work stays the caller's. A
 * work that is larger than that by itself is taken when the queue is empty. */
bool eb_executor_submit(struct eb_executor *executor, struct eb_work *work);
