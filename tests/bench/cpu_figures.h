/* CPU time of a thread, and medians, for programs that measure in turns.
 * Thread: any. Memory: none. */
#pragma once

#include <stddef.h>

/* Returns the calling thread's CPU time in ns. */
double eb_cpu_figures_read_ns(void);
/* Sorts the figures and returns their median; `count` is odd. */
double eb_cpu_figures_median(double *figures, size_t count);
