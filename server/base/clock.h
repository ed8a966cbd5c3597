/* What time it is, in milliseconds.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* Since 1970; whoever sets the machine's clock makes it jump. */
uint64_t eb_clock_unix_ms(void);
/* Since some moment; it does not run back. */
uint64_t eb_clock_steady_ms(void);
