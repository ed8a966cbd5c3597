#include "server/base/cpu.h"

#include "server/base/cgroup.h"

#include <sched.h>
#include <stdio.h>

/* Lowers *cpus, which is at least 1, to what one group grants; one that does not say or does not
 * restrict leaves it. */
static void apply_cpu_group(void *context, const char *directory, bool is_unified)
{
    uint32_t *cpus = context;
    char text[EB_CGROUP_TEXT_BYTES];
    long long quota_us = 0;
    long long period_us = 0;
    /* v2 has both in one file ("max 100000": no quota), v1 one in each (-1: no quota). */
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
    eb_cgroup_visit(root, "cpu", apply_cpu_group, &cpus);
    return cpus;
}
