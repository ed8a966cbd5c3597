/* The executor: one team of threads. It computes work that is too large for a loop, as one stream
 * of tiles across all requests, in the order of the queue (work/queue.h).
 * Threads: all functions on any thread, except create and destroy; on_done is called on a thread of
 * the team. Memory: a work item belongs to its submitter, who keeps it in place from
 * eb_executor_admit until on_done. */
#pragma once

#include "kernels/bag_stream.h"
#include "server/work/queue.h"

struct eb_executor; /* opaque */

struct eb_executor_stats {
    unsigned threads;
    unsigned idle_threads;
    uint64_t queued_works[EB_WORK_PRIORITIES]; /* indexed by enum eb_work_priority */
    uint64_t queued_bytes[EB_WORK_PRIORITIES];
    uint64_t tiles;        /* computed since the start */
    uint64_t busy_ns;      /* time that all threads together have computed since the start */
    uint64_t bytes_per_us; /* measured rate at which a thread gathers */
};

/* Starts `thread_count` threads and keeps ops and schedules. Returns NULL if out of memory, if the
 * thread that leads the team cannot be created, or if OMP_THREAD_LIMIT is less than `thread_count`.
 * If the system refuses one of the other threads, the OpenMP runtime ends the process. */
struct eb_executor *eb_executor_create(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, unsigned thread_count, uint64_t queue_bytes_max);
/* Joins the team. Every admitted work item must be done. Accepts NULL. */
void eb_executor_destroy(struct eb_executor *executor);

/* Queues one or more work items of one source, priority and deadline. They are admitted or refused
 * together, as one item with the sum of their weights (eb_admission_decide). If they are refused,
 * the caller keeps them and on_done is not called. An item that expires or is cancelled while it
 * waits ends without being computed further. That happens at the latest when it would be next, and
 * earlier if a sweep finds it (eb_queue_sweep, before each tile). Until then it takes up room in
 * the queue. */
enum eb_admit eb_executor_admit(struct eb_executor *executor, struct eb_work *const works[],
    size_t count, struct eb_admission *out);
/* Changes queue_bytes_max for items that are queued from now on. */
void eb_executor_set_queue_bytes_max(struct eb_executor *executor, uint64_t queue_bytes_max);
/* Returns in how many ms a batch item that was refused elsewhere should be sent again: about the
 * time until everything that waits now is computed; at least 1. */
uint32_t eb_executor_retry_after_ms(struct eb_executor *executor);
/* Takes and releases the lock. Never returns if a thread hangs while it holds the lock. */
void eb_executor_check(struct eb_executor *executor);
void eb_executor_count(struct eb_executor *executor, struct eb_executor_stats *out);
