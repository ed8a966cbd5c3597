/* A team of threads that computes tiles for as long as its supplier has any: one OpenMP parallel
 * region for the life of a process. Where tiles come from and what a finished one means is the
 * caller's business.
 * Thread: eb_bag_parallel_run holds the calling thread, which is one of the team. Memory: none. */
#pragma once

#include "kernels/bag_ops.h"

/* A range of one job's bags. */
struct eb_bag_tile {
    const struct eb_bag_job *job;
    uint32_t bag_first;
    uint32_t bag_end;
    void *owner; /* the supplier's; handed back by done */
};

/* Called by every thread of the team when it has nothing to do; blocks until there is a tile.
 * false: the team is to end (every thread must be told). */
typedef bool (*eb_bag_next_fn)(void *context, unsigned thread, struct eb_bag_tile *tile);
/* Called by the thread that has computed `tile`. */
typedef void (*eb_bag_done_fn)(void *context, unsigned thread, const struct eb_bag_tile *tile);

/* Runs `thread_count` (at least 1) threads until `next` has told each of them to end. Returns the
 * number of threads that really ran (fewer where the system gave fewer). */
unsigned eb_bag_parallel_run(const struct eb_bag_ops *ops, unsigned thread_count,
    eb_bag_next_fn next, eb_bag_done_fn done, void *context);

/* Most threads that a team may have: OMP_THREAD_LIMIT, or as good as none. */
unsigned eb_bag_parallel_limit(void);
