/* Finds the control groups (v1 and v2) that this process is in, and reads the kernel's short text
 * files about them.
 * Thread: any. Memory: none. */
#pragma once

#include <stdbool.h>

/* Buffer size for such a file, which has only a few lines. A larger file is treated as missing. */
#define EB_CGROUP_TEXT_BYTES 16384

/* Receives a group's directory, which may not exist. `is_unified` says whether it is a group of
 * v2. */
typedef void eb_cgroup_fn(void *context, const char *directory, bool is_unified);

/* Visits the group of this process for `controller` ("cpu", "memory"), under v1 and under v2, and
 * every group above it up to the mount. A container may see its own group at the mount and not
 * under its path, so directories that do not exist are visited too. Visits nothing if the groups
 * cannot be found out. `root` is a prefix of /proc and /sys: "" except in tests. */
void eb_cgroup_visit(const char *root, const char *controller, eb_cgroup_fn *visit, void *context);

/* Reads the file `name` in `directory` as a text. Returns false if it cannot be read or does not
 * fit. */
bool eb_cgroup_read(const char *directory, const char *name, char text[EB_CGROUP_TEXT_BYTES]);
