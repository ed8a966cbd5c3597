/* The time, for what the tool measures.
 * Thread: any. Memory: none. */
#pragma once

/* Microseconds of a clock that never goes back. */
double eb_clock_read_us(void);
