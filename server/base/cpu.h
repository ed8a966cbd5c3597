/* How many CPUs this process may use.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* The CPUs of the calling thread's affinity, or fewer where a cgroup (v1 or v2) of this process or
 * one above it grants less CPU time; a part of a CPU counts as one. At least 1. A quota that cannot
 * be read does not restrict. `root` is put before /proc and /sys: "" but in tests. */
uint32_t eb_cpu_count(const char *root);
