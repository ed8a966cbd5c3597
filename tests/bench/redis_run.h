/* One run of a load on Redis. Each request of the pool is one MGET to each node that has rows of
 * it; requests are pipelined on one non-blocking connection to each node, and their rows are pooled
 * on arrival. Arrival times, window and figures are those of embag-load.
 * Thread: one. Memory: buffers on the heap for the run. */
#pragma once

#include "client/cli/load_run.h"
#include "tests/bench/redis_link.h"

struct eb_redis_run {
    const struct eb_load_options *options; /* duration and warm-up are ignored */
    const struct eb_load_pool *pool;       /* requests for tables of one dim */
    const struct eb_redis_link *link;      /* non-blocking, with no request in flight */
    double duration_s;                     /* length of the run, all of which is measured */
};

/* Runs until the time is over or a signal arrives. Returns false after a message on stderr. */
bool eb_redis_run(const struct eb_redis_run *run, struct eb_load_result *result);
