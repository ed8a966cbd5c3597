/* The time, for what the tools measure.
 * Thread: any. Memory: none. */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <time.h>

/* Returns nanoseconds of a clock that never goes back. */
static inline uint64_t eb_load_clock_read_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(rc == 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns microseconds of the same clock. */
static inline double eb_load_clock_read_us(void)
{
    return (double)eb_load_clock_read_ns() / 1e3;
}
