#include "server/models/memory_available.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* These files have a few lines; a line past this is as good as absent. */
#define FILE_TEXT_BYTES 16384

/* The files of one version of control groups. */
struct hierarchy {
    const char *mount;
    const char *limit_file;
    const char *used_file;
    const char *cache_key; /* in memory.stat: counted as used, but dropped when memory is short */
};

static const struct hierarchy version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
    "memory.usage_in_bytes", "total_inactive_file"};
static const struct hierarchy version_2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

static bool read_text(const char *path, char text[FILE_TEXT_BYTES])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    size_t used = 0;
    ssize_t got;
    do {
        got = read(file, text + used, FILE_TEXT_BYTES - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    text[used] = '\0';
    (void)close(file); /* It was only read. */
    return got == 0;
}

static bool read_text_in(const char *directory, const char *name, char text[FILE_TEXT_BYTES])
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof path && read_text(path, text);
}

/* A whole number at the start of `text`; "max" is none. */
static bool read_number(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (end == text || errno != 0) {
        return false;
    }
    *value = number;
    return true;
}

/* The number on the line that starts with `key` and a blank. */
static bool find_number(const char *text, const char *key, uint64_t *value)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            return read_number(line + length, value);
        }
    }
    return false;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t machine_bytes(const char *root)
{
    char text[FILE_TEXT_BYTES];
    uint64_t kibibytes;
    if (!read_text_in(root, "proc/meminfo", text) ||
        !find_number(text, "MemAvailable:", &kibibytes)) {
        return UINT64_MAX;
    }
    return kibibytes * 1024;
}

/* What one group leaves. */
static uint64_t group_bytes(const struct hierarchy *hierarchy, const char *directory)
{
    char text[FILE_TEXT_BYTES];
    uint64_t limit;
    uint64_t used = 0;
    uint64_t cache = 0;
    if (!read_text_in(directory, hierarchy->limit_file, text) || !read_number(text, &limit)) {
        return UINT64_MAX;
    }
    if (!read_text_in(directory, hierarchy->used_file, text) || !read_number(text, &used)) {
        return limit;
    }
    if (read_text_in(directory, "memory.stat", text)) {
        (void)find_number(text, hierarchy->cache_key, &cache);
    }
    uint64_t held = used - least(used, cache);
    return limit - least(limit, held);
}

/* What the group at `path` and those above it leave. A container may see its own group as the
 * mount itself and not under its path, so the walk goes up to the mount. */
static uint64_t hierarchy_bytes(
    const struct hierarchy *hierarchy, const char *root, const char *path)
{
    char directory[PATH_MAX];
    int printed = snprintf(directory, sizeof directory, "%s%s%s", root, hierarchy->mount, path);
    if (printed < 0 || (size_t)printed >= sizeof directory) {
        return UINT64_MAX;
    }
    size_t mount_length = strlen(root) + strlen(hierarchy->mount);
    uint64_t available = group_bytes(hierarchy, directory);
    while (strlen(directory) > mount_length) {
        *strrchr(directory, '/') = '\0';
        available = least(available, group_bytes(hierarchy, directory));
    }
    return available;
}

/* Whether a comma-separated list names the memory controller. */
static bool has_memory_controller(const char *list, size_t length)
{
    static const char wanted[] = "memory";
    const size_t wanted_length = sizeof wanted - 1;
    for (size_t at = 0; at + wanted_length <= length; at++) {
        bool starts = at == 0 || list[at - 1] == ',';
        bool ends = at + wanted_length == length || list[at + wanted_length] == ',';
        if (starts && ends && memcmp(list + at, wanted, wanted_length) == 0) {
            return true;
        }
    }
    return false;
}

/* A line "ID:CONTROLLERS:PATH"; version 2 has no controllers. */
static uint64_t line_bytes(const char *root, const char *line)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) {
        return UINT64_MAX;
    }
    size_t length = (size_t)(path - controllers - 1);
    if (length == 0) {
        return hierarchy_bytes(&version_2, root, path + 1);
    }
    return has_memory_controller(controllers + 1, length)
               ? hierarchy_bytes(&version_1, root, path + 1)
               : UINT64_MAX;
}

uint64_t eb_memory_available_bytes_under(const char *root)
{
    char text[FILE_TEXT_BYTES];
    uint64_t available = machine_bytes(root);
    if (!read_text_in(root, "proc/self/cgroup", text)) {
        return available;
    }
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        available = least(available, line_bytes(root, line));
    }
    return available;
}

uint64_t eb_memory_available_bytes(void)
{
    return eb_memory_available_bytes_under("");
}
