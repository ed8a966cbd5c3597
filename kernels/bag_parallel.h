/* A team of threads that computes tiles for as long as its supplier has any: one OpenMP parallel
 * region for the life of a process. Where tiles come from and what a finished one means is the
 * caller's business.
 * Thread: eb_bag_parallel_run holds the calling thread, which is one of the team. Memory: none. */
#pragma once

#include "kernels/bag_stream.h"

/* Called by every thread of the team for the tile it is to compute. `may_wait`: it has nothing to
 * do, so that the call blocks until there is a tile; false then ends the thread (every one must be
 * told). Otherwise the thread is about to compute a tile, and a further one may be given to it
 * ahead, so that its rows are called in time; false: there is none, or others are free to take
 * it. */
typedef bool (*eb_bag_next_fn)(
    void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile);
/* Called by the thread that has computed `tile`. */
typedef void (*eb_bag_done_fn)(void *context, unsigned thread, const struct eb_bag_tile *tile);

/* What every thread of the team is given. */
struct eb_bag_team {
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    unsigned thread_count; /* at least 1 */
    eb_bag_next_fn next;
    eb_bag_done_fn done;
    void *context;
};

/* Runs the threads until `next` has told each of them to end. Returns the number of threads that
 * really ran (fewer where the system gave fewer). */
unsigned eb_bag_parallel_run(const struct eb_bag_team *team);

/* Where the environment binds OpenMP's threads to places (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY), its library has bound the process's first thread to one of them before main,
 * and all that it creates would stay there: lets it run on all of them again. To be called by that
 * thread before it creates any; teams are still bound as the environment says. false: there is
 * no memory, or the system does not let it, as errno says. */
bool eb_bag_parallel_unbind(void);

/* Most threads that a team may have: OMP_THREAD_LIMIT, or as good as none. */
unsigned eb_bag_parallel_limit(void);
