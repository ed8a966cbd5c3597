/* Finds out which CPUs and how much memory this process may use, by its affinity and its control
 * groups (v1 and v2).
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* Returns the number of CPUs in the calling thread's affinity. Returns fewer if a cgroup (v1 or v2)
 * of this process, or one above it, grants less CPU time; a part of a CPU counts as one. Returns at
 * least 1. Ignores a quota that cannot be read. `root` is a prefix of /proc and /sys: "" except in
 * tests. */
uint32_t eb_machine_cpu_count(const char *root);

/* Returns the least of the machine's available memory and the memory that each control group (v1
 * and v2) of this process still allows: the group's limit less the memory that it holds and cannot
 * drop. Ignores a source that cannot be read. Returns UINT64_MAX if none can be read. */
uint64_t eb_machine_available_bytes(void);

/* Does the same with the directories proc and sys below `root`; for tests. */
uint64_t eb_machine_available_bytes_under(const char *root);
