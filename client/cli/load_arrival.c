#include "client/cli/load_arrival.h"

#include <assert.h>
#include <math.h>

#define NS_PER_S 1e9

void eb_load_arrival_init(struct eb_load_arrival *arrival, double rate, uint64_t seed)
{
    assert(rate > 0);
    *arrival = (struct eb_load_arrival){.rate = rate, .random = {.state = seed}};
}

uint64_t eb_load_arrival_next_ns(struct eb_load_arrival *arrival)
{
    /* In (0, 1], whose logarithm is finite. */
    double fraction = (double)((eb_sampler_bits(&arrival->random) >> 11) + 1) * 0x1p-53;
    arrival->due_ns += -log(fraction) / arrival->rate * NS_PER_S;
    return (uint64_t)arrival->due_ns;
}
