/* Returns the time.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* Returns the time since 1970. It jumps if the machine's clock is set. */
uint64_t eb_clock_unix_ms(void);
/* Returns the time since some fixed time. It never goes back. */
uint64_t eb_clock_steady_ms(void);
/* Returns the same time in nanoseconds. */
uint64_t eb_clock_steady_ns(void);
/* Returns the CPU time that all threads of this process have used, in user and system mode. */
uint64_t eb_clock_cpu_ns(void);
