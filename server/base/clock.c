#include "server/base/clock.h"

#include <time.h>

#define NS_PER_MS 1000000
#define NS_PER_S UINT64_C(1000000000)

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now); /* Cannot fail: these clocks always exist. */
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t eb_clock_unix_ms(void)
{
    return read_ns(CLOCK_REALTIME) / NS_PER_MS;
}

uint64_t eb_clock_steady_ms(void)
{
    return eb_clock_steady_ns() / NS_PER_MS;
}

uint64_t eb_clock_steady_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t eb_clock_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}
