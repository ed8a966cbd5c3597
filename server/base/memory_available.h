/* How much memory this process may still take.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* The least of the machine's available memory and the limits of the control groups (v1 and v2)
 * this process is in, less what those hold and cannot drop. A source that cannot be read does not
 * limit; UINT64_MAX where none can. */
uint64_t eb_memory_available_bytes(void);

/* The same, with proc and sys found under `root`: for tests. */
uint64_t eb_memory_available_bytes_under(const char *root);
