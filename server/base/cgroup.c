#include "server/base/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"

/* The arguments of eb_cgroup_visit. */
struct visitor {
    const char *root;
    const char *controller;
    eb_cgroup_fn *visit;
    void *context;
};

bool eb_cgroup_read(const char *directory, const char *name, char text[EB_CGROUP_TEXT_BYTES])
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        return false;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    size_t used = 0;
    ssize_t got;
    do {
        got = read(file, text + used, EB_CGROUP_TEXT_BYTES - used);
        used += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    (void)close(file); /* Nothing was written that could be lost. */
    if (got < 0 || used == EB_CGROUP_TEXT_BYTES) {
        return false;
    }
    text[used] = '\0';
    return true;
}

/* Visits `group`, an absolute path below the mount, and the groups above it. */
static void visit_up(const struct visitor *visitor, const char *group, bool is_unified)
{
    char directory[PATH_MAX];
    int mount_bytes = snprintf(directory, sizeof directory, "%s" MOUNT "%s%s", visitor->root,
        is_unified ? "" : "/", is_unified ? "" : visitor->controller);
    if ((size_t)mount_bytes + strlen(group) >= sizeof directory) {
        return;
    }
    strcpy(directory + mount_bytes, group);
    visitor->visit(visitor->context, directory, is_unified);
    while (directory[mount_bytes] != '\0') {
        *strrchr(directory, '/') = '\0';
        visitor->visit(visitor->context, directory, is_unified);
    }
}

/* Returns whether the comma-separated `list` contains `controller`. */
static bool has_controller(char *list, const char *controller)
{
    char *rest = NULL;
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, controller) == 0) {
            return true;
        }
    }
    return false;
}

/* Visits the group that a line "ID:CONTROLLERS:PATH" of /proc/self/cgroup names, if it is a group
 * of v2, whose line names no controllers, or if it has the wanted controller. */
static void visit_line(const struct visitor *visitor, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || group[1] != '/') {
        return;
    }
    *group++ = '\0';
    bool is_unified = *++controllers == '\0';
    if (is_unified || has_controller(controllers, visitor->controller)) {
        visit_up(visitor, group, is_unified);
    }
}

void eb_cgroup_visit(const char *root, const char *controller, eb_cgroup_fn *visit, void *context)
{
    struct visitor visitor = {root, controller, visit, context};
    char text[EB_CGROUP_TEXT_BYTES];
    if (!eb_cgroup_read(root, "proc/self/cgroup", text)) {
        return;
    }
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        visit_line(&visitor, line);
    }
}
