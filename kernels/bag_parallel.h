/* A team of threads that computes tiles until its supplier ends it: one OpenMP parallel region for
 * the life of a process. The caller decides where tiles come from and what happens when they are
 * finished.
 * Thread: eb_bag_parallel_run keeps the calling thread, which is one of the team. Memory: none. */
#pragma once

#include "kernels/bag_stream.h"

/* Called by every thread of the team for its next tile. If `may_wait` is true, the thread has
 * nothing to do, and the call blocks until there is a tile. It returns false to end the thread,
 * once for each thread. If `may_wait` is false, the thread is about to compute a tile and asks for
 * the next one, so that the rows of the next tile are prefetched in time. The call then returns
 * false if there is no next tile, or if other threads are free to take it. */
typedef bool (*eb_bag_next_fn)(
    void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile);
/* Called by the thread that has computed `tile`. */
typedef void (*eb_bag_done_fn)(void *context, unsigned thread, const struct eb_bag_tile *tile);

/* The data that all threads of the team share. */
struct eb_bag_team {
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    unsigned thread_count; /* at least 1 */
    eb_bag_next_fn next;
    eb_bag_done_fn done;
    void *context;
};

/* Runs the threads until `next` has told each of them to end. Returns the number of threads that
 * ran, which is less than thread_count if the system provided fewer. */
unsigned eb_bag_parallel_run(const struct eb_bag_team *team);

/* Lets the calling thread run on all processors of OpenMP's places again. If the environment binds
 * OpenMP's threads to places (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), OpenMP's library has
 * bound the process's first thread to one place before main, and all threads that the first thread
 * creates would stay there. So the first thread must call this before it creates any thread. Teams
 * are still bound as the environment demands. Returns false if out of memory, or with errno set if
 * the system refuses. */
bool eb_bag_parallel_unbind(void);

/* Returns the most threads that a team may have: OMP_THREAD_LIMIT, or practically no limit. */
unsigned eb_bag_parallel_limit(void);
