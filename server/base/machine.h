/* Finds out which CPUs and how much memory this process may use, by its affinity and its control
 * groups (v1 and v2).
 * Thread: any. Memory: a count of shared bytes for the process. */
#pragma once

#include <stdint.h>

/* Returns the number of CPUs in the calling thread's affinity. Returns fewer if a cgroup (v1 or v2)
 * of this process, or one above it, grants less CPU time; a part of a CPU counts as one. Returns at
 * least 1. Ignores a quota that cannot be read. `root` is a prefix of /proc and /sys: "" except in
 * tests. */
uint32_t eb_machine_cpu_count(const char *root);

/* Counts bytes of tmpfs files that this process keeps mapped. The kernel charges such pages to the
 * control group that touched them first, perhaps that of a process that has ended, so a group may
 * seem to have room that this process already uses. */
void eb_machine_add_shared(uint64_t bytes);
void eb_machine_remove_shared(uint64_t bytes);

/* Returns the least of the machine's available memory and the memory that each control group (v1
 * and v2) of this process still allows: the group's limit minus the memory that it holds and cannot
 * drop, and minus the shared bytes that it is not charged for. Ignores a source that cannot be
 * read. Returns UINT64_MAX if none can be read. */
uint64_t eb_machine_available_bytes(void);
/* Returns how many of the shared bytes are not charged to every group of this process. */
uint64_t eb_machine_uncharged_bytes(void);

/* Do the same with the directories proc and sys below `root`; for tests. */
uint64_t eb_machine_available_bytes_under(const char *root);
uint64_t eb_machine_uncharged_bytes_under(const char *root);

/* Returns the percentage of the last 10 s in which a task waited for memory: on the machine or, if
 * that is more, in a control group (v2) of this process. Ignores a source that cannot be read, and
 * returns 0 if none can be. `root` is as for eb_machine_cpu_count. */
double eb_machine_memory_pressure(const char *root);
