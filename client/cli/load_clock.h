/* The clock of the tools' measurements.
 * Thread: any. Memory: none. */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <time.h>

/* Returns the monotonic time in nanoseconds. */
static inline uint64_t eb_load_clock_read_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(rc == 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns the monotonic time in microseconds. */
static inline double eb_load_clock_read_us(void)
{
    return (double)eb_load_clock_read_ns() / 1e3;
}
