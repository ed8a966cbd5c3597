#include "client/cli/load_clock.h"

#include <assert.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

uint64_t eb_load_clock_read_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(rc == 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

double eb_load_clock_read_us(void)
{
    return (double)eb_load_clock_read_ns() / 1e3;
}
