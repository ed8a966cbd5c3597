/* One run of a load on Redis: requests of the pool, each as one MGET, pipelined on one connection
 * that does not block, and their rows pooled as they come. Arrival, window and figures are those of
 * embag-load.
 * Thread: one. Memory: buffers on the heap for the run. */
#pragma once

#include "client/cli/load_run.h"

struct redisContext;

struct eb_redis_run {
    const struct eb_load_options *options; /* what they say of times apart */
    const struct eb_load_pool *pool;       /* of one table */
    struct redisContext *link;             /* not blocking, with nothing under way */
    double duration_s;                     /* all of it counts */
};

/* Runs until the time is over or a signal has come. false: said on stderr. */
bool eb_redis_run(const struct eb_redis_run *run, struct eb_load_result *result);
