#include "server/stats/load_figures.h"

#include <assert.h>

#define NS_PER_S 1e9

void eb_load_sums_add(struct eb_load_sums *sums, const struct eb_loop_load *loop)
{
    sums->loop_busy_ns += atomic_load_explicit(&loop->busy_ns, memory_order_relaxed);
    sums->lookups += atomic_load_explicit(&loop->lookups, memory_order_relaxed);
    sums->errors += atomic_load_explicit(&loop->errors, memory_order_relaxed);
}

/* Returns the part of the time that `count` threads were busy. They may seem to have been busy for
 * longer than the time, because a busy time is counted when it ends. */
static double share_of(uint64_t busy_ns, double ns, uint32_t count)
{
    double share = (double)busy_ns / (ns * count);
    return share < 1 ? share : 1;
}

struct eb_load_figures eb_load_figures_between(const struct eb_load_sums *from,
    const struct eb_load_sums *to, const struct eb_load_capacity *capacity)
{
    assert(to->taken_ns > from->taken_ns);
    double ns = (double)(to->taken_ns - from->taken_ns);
    return (struct eb_load_figures){
        .cpu = share_of(to->cpu_ns - from->cpu_ns, ns, capacity->cpus),
        .loops = share_of(to->loop_busy_ns - from->loop_busy_ns, ns, capacity->loops),
        .executor = share_of(to->executor_busy_ns - from->executor_busy_ns, ns, capacity->threads),
        .lookups_per_s = (double)(to->lookups - from->lookups) / ns * NS_PER_S,
        .errors_per_s = (double)(to->errors - from->errors) / ns * NS_PER_S,
    };
}
