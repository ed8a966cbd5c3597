#include "client/cli/clock.h"

#include <assert.h>
#include <time.h>

double eb_clock_read_us(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(rc == 0);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}
