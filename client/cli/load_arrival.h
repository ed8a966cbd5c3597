/* When the requests of an open load are due: a Poisson process, whose gaps are independent of what
 * the server does.
 * Thread: one at a time. Memory: none. */
#pragma once

#include "client/cli/sampler.h"

struct eb_load_arrival {
    double rate;   /* requests per second */
    double due_ns; /* from the start of the process */
    struct eb_sampler random;
};

/* `rate` is above 0. The same seed gives the same times. */
void eb_load_arrival_init(struct eb_load_arrival *arrival, double rate, uint64_t seed);
/* When the next request is due, in nanoseconds from the start; never less than before. */
uint64_t eb_load_arrival_next_ns(struct eb_load_arrival *arrival);
