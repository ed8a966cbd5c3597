/* The time, for what the tools measure.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* Microseconds of a clock that never goes back. */
double eb_load_clock_read_us(void);
/* The same clock in nanoseconds. */
uint64_t eb_load_clock_read_ns(void);
