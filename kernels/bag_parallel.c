#include "kernels/bag_parallel.h"

#include <assert.h>
#include <omp.h>

static void work(const struct eb_bag_team *team, unsigned thread)
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

unsigned eb_bag_parallel_run(const struct eb_bag_team *team)
{
    assert(team->thread_count > 0);
    omp_set_dynamic(0); /* The team is as large as it was asked to be. */
    unsigned ran = 0;
#pragma omp parallel num_threads((int)team->thread_count) default(none) shared(team, ran)
    {
        unsigned thread = (unsigned)omp_get_thread_num();
        if (thread == 0) {
            ran = (unsigned)omp_get_num_threads();
        }
        work(team, thread);
    }
    return ran;
}
