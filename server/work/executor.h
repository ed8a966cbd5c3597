/* The executor: one team of threads that computes what is too large for a loop, as one stream of
 * tiles across all requests, in the order that the queue says.
 * Thread: submit from any; on_done is called on a thread of the team. Memory: works are their
 * submitters', from submit until on_done. */
#pragma once

#include "kernels/bag_stream.h"
#include "server/work/admission.h"

struct eb_executor; /* opaque */

struct eb_executor_stats {
    unsigned threads;
    unsigned idle_threads;
    uint64_t queued_works[EB_WORK_PRIORITIES]; /* by enum eb_work_priority */
    uint64_t queued_bytes[EB_WORK_PRIORITIES];
    uint64_t tiles;        /* computed since the start */
    uint64_t busy_ns;      /* of all threads since the start */
    uint64_t bytes_per_us; /* that a thread gathers, as measured */
};

/* Starts `thread_count` threads; borrows ops and schedules. NULL: no memory, no thread to lead
 * them, or OMP_THREAD_LIMIT is less. Where the system refuses one of the others, the OpenMP runtime
 * ends the process. */
struct eb_executor *eb_executor_create(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, unsigned thread_count, uint64_t queue_bytes_max);
/* Every work submitted must be done. Joins the team. Accepts NULL. */
void eb_executor_destroy(struct eb_executor *executor);

/* Takes works of one source, priority and deadline into the queue, at least one, or refuses them
 * at once, judged as one work of their weights (eb_admission_judge): then they stay the caller's
 * and on_done is not called. A work that expires or is cancelled while it waits is ended
 * without computing more of it: when its turn comes, or before that, when the threads' looks for
 * tiles have come round to it (eb_queue_sweep; each tile is preceded by a look). Until then it
 * counts in the queue. */
enum eb_admit eb_executor_admit(struct eb_executor *executor, struct eb_work *const works[],
    size_t count, struct eb_admission *out);
/* When a batch work that is refused elsewhere had best come again: about when all that waits now
 * will be computed, at least 1. */
uint32_t eb_executor_retry_after_ms(struct eb_executor *executor);
/* Returns as soon as its lock could be had: where a thread hangs with it, never. */
void eb_executor_check(struct eb_executor *executor);
/* How it is. Any thread. */
void eb_executor_count(struct eb_executor *executor, struct eb_executor_stats *out);
/* As eb_executor_admit for one work, but that one that would be LATE is taken. false: FULL. */
bool eb_executor_submit(struct eb_executor *executor, struct eb_work *work);
