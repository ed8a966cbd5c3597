#include "kernels/bag_parallel.h"

#include <assert.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>

static void work_in_team(const struct eb_bag_team *team, unsigned thread)
{
    struct eb_bag_stream stream;
    eb_bag_stream_init(&stream, team->ops, team->schedules);
    struct eb_bag_tile tile;
    struct eb_bag_tile ahead;
    bool has_ahead = false;
    while (has_ahead || team->next(team->context, thread, true, &tile)) {
        if (has_ahead) {
            tile = ahead;
        }
        has_ahead = team->next(team->context, thread, false, &ahead);
        eb_bag_stream_pool(&stream, &tile, has_ahead ? &ahead : NULL);
        team->done(team->context, thread, &tile);
    }
}

unsigned eb_bag_parallel_limit(void)
{
    return (unsigned)omp_get_thread_limit();
}

/* Adds the processors of one of OpenMP's places to `masks`. Returns false if out of memory. */
static bool add_place(int place, cpu_set_t *masks, size_t bytes)
{
    int count = omp_get_place_num_procs(place);
    int *processors = calloc((size_t)count + 1, sizeof *processors);
    if (!processors) {
        return false;
    }
    omp_get_place_proc_ids(place, processors);
    for (int i = 0; i < count; i++) {
        CPU_SET_S((size_t)processors[i], bytes, masks);
    }
    free(processors);
    return true;
}

bool eb_bag_parallel_unbind(void)
{
    /* Room for eight times the processors of one cpu_set_t. Linux cannot have more. */
    cpu_set_t masks[8] = {0};
    int place_count = omp_get_num_places();
    for (int i = 0; i < place_count; i++) {
        if (!add_place(i, masks, sizeof masks)) {
            return false;
        }
    }
    return place_count == 0 || sched_setaffinity(0, sizeof masks, masks) == 0;
}

unsigned eb_bag_parallel_run(const struct eb_bag_team *team)
{
    assert(team->thread_count > 0);
    omp_set_dynamic(0); /* Let the team be as large as requested. */
    unsigned ran = 0;
#pragma omp parallel num_threads((int)team->thread_count) default(none) shared(team, ran)
    {
        unsigned thread = (unsigned)omp_get_thread_num();
        if (thread == 0) {
            ran = (unsigned)omp_get_num_threads();
        }
        work_in_team(team, thread);
    }
    return ran;
}
