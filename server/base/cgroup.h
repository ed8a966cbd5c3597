/* The control groups (v1 and v2) that this process is in, and the short texts that the kernel's
 * files say of them.
 * Thread: any. Memory: none. */
#pragma once

#include <stdbool.h>

/* Such files have a few lines; one that does not fit is as good as absent. */
#define EB_CGROUP_TEXT_BYTES 16384

/* Told a group's directory, which may not exist, and whether it is one of v2. */
typedef void eb_cgroup_fn(void *context, const char *directory, bool is_unified);

/* Visits the group that this process is in for `controller` ("cpu", "memory"), under v1 and under
 * v2, and every group above it up to the mount. A container may see its own group as the mount and
 * not under its path, so directories that do not exist are visited too. Where the groups cannot be
 * told, none is. `root` is put before /proc and /sys: "" but in tests. */
void eb_cgroup_visit(const char *root, const char *controller, eb_cgroup_fn *visit, void *context);

/* Reads the file `name` in `directory` as a text. false: it cannot be read or does not fit. */
bool eb_cgroup_read(const char *directory, const char *name, char text[EB_CGROUP_TEXT_BYTES]);
