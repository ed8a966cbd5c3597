#include "server/cpu.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Reads up to two numbers from the file `name` in `directory`. Returns how many there were. */
static int read_numbers(
    const char *directory, const char *name, long long *first, long long *second)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        return 0;
    }
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    int count = fscanf(file, "%lld %lld", first, second);
    fclose(file);
    return count;
}

/* CPUs granted by one cgroup's directory; UINT32_MAX: it does not say or does not restrict. */
static uint32_t read_quota(const char *directory)
{
    long long quota_us = 0;
    long long period_us = 0;
    long long none;
    /* v2 has both in one file ("max 100000": no quota), v1 one in each (-1: no quota). */
    if (read_numbers(directory, "cpu.max", &quota_us, &period_us) < 2) {
        read_numbers(directory, "cpu.cfs_quota_us", &quota_us, &none);
        read_numbers(directory, "cpu.cfs_period_us", &period_us, &none);
    }
    if (quota_us <= 0 || period_us <= 0) {
        return UINT32_MAX;
    }
    long long cpus = (quota_us - 1) / period_us + 1;
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* The least quota of `group` (an absolute path below `mount`) and of all groups above it. Inside a
 * container the path may be the host's: what does not exist is passed over. */
static uint32_t least_quota(const char *mount, char *group)
{
    uint32_t least = UINT32_MAX;
    char directory[PATH_MAX];
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
        uint32_t quota = length < (int)sizeof directory ? read_quota(directory) : UINT32_MAX;
        least = quota < least ? quota : least;
    }
    return least;
}

/* Whether the comma-separated `controllers` name cpu. */
static bool has_cpu(char *controllers)
{
    char *rest = NULL;
    for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "cpu") == 0) {
            return true;
        }
    }
    return false;
}

/* The quota that one line of /proc/self/cgroup (`id:controllers:path`) leads to. */
static uint32_t line_quota(const char *root, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) {
        return UINT32_MAX;
    }
    *group++ = '\0';
    controllers++;
    /* v2 has one line, without controllers. */
    bool unified = *controllers == '\0';
    if (!unified && !has_cpu(controllers)) {
        return UINT32_MAX;
    }
    char mount[PATH_MAX];
    int length = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, unified ? "" : "/cpu");
    return length < (int)sizeof mount ? least_quota(mount, group) : UINT32_MAX;
}

static uint32_t cgroup_quota(const char *root)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) {
        return UINT32_MAX;
    }
    FILE *file = fopen(path, "re");
    if (!file) {
        return UINT32_MAX;
    }
    uint32_t least = UINT32_MAX;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, file)) {
        uint32_t quota = line_quota(root, line);
        least = quota < least ? quota : least;
    }
    fclose(file);
    return least;
}

static uint32_t affinity_count(void)
{
    /* Eight times what one cpu_set_t holds: the kernel refuses a mask smaller than its own. */
    cpu_set_t masks[8];
    if (sched_getaffinity(0, sizeof masks, masks) != 0) {
        return 1;
    }
    return (uint32_t)CPU_COUNT_S(sizeof masks, masks);
}

uint32_t eb_cpu_count(const char *root)
{
    uint32_t cpus = affinity_count();
    uint32_t quota = cgroup_quota(root);
    return quota < cpus ? quota : cpus;
}
