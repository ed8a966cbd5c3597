#include "kernels/bag_parallel.h"

#include <assert.h>
#include <omp.h>

/* What every thread of the team needs to know. */
struct team {
    const struct eb_bag_ops *ops;
    eb_bag_next_fn next;
    eb_bag_done_fn done;
    void *context;
};

static void work(const struct team *team, unsigned thread)
{
    struct eb_bag_tile tile;
    while (team->next(team->context, thread, &tile)) {
        eb_bag_pool(team->ops, tile.job, tile.bag_first, tile.bag_end);
        team->done(team->context, thread, &tile);
    }
}

unsigned eb_bag_parallel_limit(void)
{
    return (unsigned)omp_get_thread_limit();
}

unsigned eb_bag_parallel_run(const struct eb_bag_ops *ops, unsigned thread_count,
    eb_bag_next_fn next, eb_bag_done_fn done, void *context)
{
    assert(thread_count > 0);
    omp_set_dynamic(0); /* The team is as large as it was asked to be. */
    const struct team team = {.ops = ops, .next = next, .done = done, .context = context};
    unsigned ran = 0;
#pragma omp parallel num_threads((int)thread_count) default(none) shared(team, ran)
    {
        unsigned thread = (unsigned)omp_get_thread_num();
        if (thread == 0) {
            ran = (unsigned)omp_get_num_threads();
        }
        work(&team, thread);
    }
    return ran;
}
