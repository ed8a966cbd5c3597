#include "server/base/clock.h"

#include <time.h>

static uint64_t read_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now); /* Cannot fail: these clocks always exist. */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t eb_clock_unix_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

uint64_t eb_clock_steady_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}
