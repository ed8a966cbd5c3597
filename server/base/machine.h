/* What of the machine this process may use: CPUs and memory, as its affinity and its control groups
 * (v1 and v2) grant them.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* The CPUs of the calling thread's affinity, or fewer where a cgroup (v1 or v2) of this process or
 * one above it grants less CPU time; a part of a CPU counts as one. At least 1. A quota that cannot
 * be read does not restrict. `root` is put before /proc and /sys: "" but in tests. */
uint32_t eb_machine_cpu_count(const char *root);

/* The least of the machine's available memory and the limits of the control groups (v1 and v2)
 * this process is in, less what those hold and cannot drop. A source that cannot be read does not
 * limit; UINT64_MAX where none can. */
uint64_t eb_machine_available_bytes(void);

/* The same, with proc and sys found under `root`: for tests. */
uint64_t eb_machine_available_bytes_under(const char *root);
