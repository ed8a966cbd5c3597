#include "server/base/machine.h"

#include "server/base/cgroup.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- CPUs ---- */

/* Lowers *cpus, which is at least 1, to the number of CPUs that one group grants. Does nothing if
 * the group has no quota or cannot be read. */
static void apply_cpu_group(void *context, const char *directory, bool is_unified)
{
    uint32_t *cpus = context;
    char text[EB_CGROUP_TEXT_BYTES];
    long long quota_us = 0;
    long long period_us = 0;
    /* v2 has both numbers in one file, which begins with "max" if there is no quota. v1 has a file
     * for each; the quota is -1 if there is none. */
    if (eb_cgroup_read(directory, is_unified ? "cpu.max" : "cpu.cfs_quota_us", text)) {
        (void)sscanf(text, "%lld %lld", &quota_us, &period_us);
    }
    if (!is_unified && eb_cgroup_read(directory, "cpu.cfs_period_us", text)) {
        (void)sscanf(text, "%lld", &period_us);
    }
    if (quota_us <= 0 || period_us <= 0) {
        return;
    }
    long long granted = (quota_us - 1) / period_us + 1;
    *cpus = granted < *cpus ? (uint32_t)granted : *cpus;
}

static uint32_t affinity_count(void)
{
    /* Eight times the size of cpu_set_t: the kernel refuses a mask smaller than its own. */
    cpu_set_t masks[8];
    if (sched_getaffinity(0, sizeof masks, masks) != 0) {
        return 1;
    }
    return (uint32_t)CPU_COUNT_S(sizeof masks, masks);
}

uint32_t eb_machine_cpu_count(const char *root)
{
    uint32_t cpus = affinity_count();
    eb_cgroup_visit(root, "cpu", apply_cpu_group, &cpus);
    return cpus;
}

/* ---- memory ---- */

/* File names and keys of one version of control groups. */
struct group_files {
    const char *limit;
    const char *used;
    /* Keys in memory.stat for pages of files, which count as used but are dropped when memory is
     * short. Pages that were read twice are active, such as those of files that were checked before
     * loading. */
    const char *cache_keys[2];
    const char *shared_key; /* for pages of tmpfs that the group is charged for */
};

static const struct group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
    {"total_inactive_file", "total_active_file"}, "total_shmem"};
static const struct group_files version_2 = {
    "memory.max", "memory.current", {"inactive_file", "active_file"}, "shmem"};

static atomic_uint_fast64_t shared_bytes; /* see eb_machine_add_shared */

void eb_machine_add_shared(uint64_t bytes)
{
    atomic_fetch_add(&shared_bytes, bytes);
}

void eb_machine_remove_shared(uint64_t bytes)
{
    atomic_fetch_sub(&shared_bytes, bytes);
}

/* Reads the whole number at the start of `text`. Returns false if there is none, as in "max". */
static bool read_memory_number(const char *text, uint64_t *value)
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

/* Finds the number on the line that starts with `key` and a blank. */
static bool find_memory_number(const char *text, const char *key, uint64_t *value)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            return read_memory_number(line + length, value);
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
    char text[EB_CGROUP_TEXT_BYTES];
    uint64_t kibibytes;
    if (!eb_cgroup_read(root, "proc/meminfo", text) ||
        !find_memory_number(text, "MemAvailable:", &kibibytes)) {
        return UINT64_MAX;
    }
    return kibibytes * 1024;
}

/* Returns how many of this process's shared bytes the group with this memory.stat is not charged
 * for. Returns 0 if memory.stat does not say. */
static uint64_t find_uncharged(const char *text, const struct group_files *files)
{
    uint64_t shared = atomic_load(&shared_bytes);
    uint64_t charged;
    return find_memory_number(text, files->shared_key, &charged) ? shared - least(shared, charged)
                                                                 : 0;
}

/* Returns how many more bytes the limit of one group allows; UINT64_MAX if it cannot be read. */
static uint64_t find_group_memory(const char *directory, const struct group_files *files)
{
    char text[EB_CGROUP_TEXT_BYTES];
    uint64_t limit;
    uint64_t used = 0;
    if (!eb_cgroup_read(directory, files->limit, text) || !read_memory_number(text, &limit)) {
        return UINT64_MAX;
    }
    if (!eb_cgroup_read(directory, files->used, text) || !read_memory_number(text, &used)) {
        return limit;
    }
    bool is_told = eb_cgroup_read(directory, "memory.stat", text);
    for (int i = 0; is_told && i < 2; i++) {
        uint64_t cache = 0;
        (void)find_memory_number(text, files->cache_keys[i], &cache);
        used -= least(used, cache);
    }
    used += is_told ? find_uncharged(text, files) : 0;
    return limit - least(limit, used);
}

static void apply_memory_group(void *context, const char *directory, bool is_unified)
{
    uint64_t *available = context;
    *available =
        least(*available, find_group_memory(directory, is_unified ? &version_2 : &version_1));
}

/* Raises *most to what one group is not charged for. */
static void find_uncharged_group(void *context, const char *directory, bool is_unified)
{
    uint64_t *most = context;
    char text[EB_CGROUP_TEXT_BYTES];
    if (eb_cgroup_read(directory, "memory.stat", text)) {
        uint64_t bytes = find_uncharged(text, is_unified ? &version_2 : &version_1);
        *most = bytes > *most ? bytes : *most;
    }
}

uint64_t eb_machine_uncharged_bytes_under(const char *root)
{
    uint64_t most = 0;
    eb_cgroup_visit(root, "memory", find_uncharged_group, &most);
    return most;
}

uint64_t eb_machine_uncharged_bytes(void)
{
    return eb_machine_uncharged_bytes_under("");
}

uint64_t eb_machine_available_bytes_under(const char *root)
{
    uint64_t available = machine_bytes(root);
    eb_cgroup_visit(root, "memory", apply_memory_group, &available);
    return available;
}

uint64_t eb_machine_available_bytes(void)
{
    return eb_machine_available_bytes_under("");
}

/* ---- pressure ---- */

/* Raises *most to the percentage in a file about pressure. */
static void raise_pressure(double *most, const char *directory, const char *name)
{
    char text[EB_CGROUP_TEXT_BYTES];
    double percent;
    if (eb_cgroup_read(directory, name, text) && sscanf(text, "some avg10=%lf", &percent) == 1) {
        *most = percent > *most ? percent : *most;
    }
}

static void apply_pressure_group(void *context, const char *directory, bool is_unified)
{
    if (is_unified) {
        raise_pressure(context, directory, "memory.pressure");
    }
}

double eb_machine_memory_pressure(const char *root)
{
    double most = 0;
    raise_pressure(&most, root, "proc/pressure/memory");
    eb_cgroup_visit(root, "memory", apply_pressure_group, &most);
    return most;
}
