#include "server/base/machine.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint32_t affinity(void)
{
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    return (uint32_t)CPU_COUNT(&mask);
}

static void counts_affinity_where_nothing_can_be_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    assert_int_equal(eb_machine_cpu_count(scratch->root), affinity());
}

static void counts_one_when_pinned_to_one(void **state)
{
    const struct eb_scratch *scratch = *state;
    cpu_set_t before;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    uint32_t cpus = eb_machine_cpu_count(scratch->root);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpus, 1);
}

static void takes_quota_of_v2_and_rounds_up(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), 1);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), 1);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu.max", "100001 100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), affinity() < 2 ? affinity() : 2);
}

static void ignores_v2_without_quota(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), affinity());
}

static void takes_the_least_quota_of_all_groups_above(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/system.slice/embagd.service\n");
    eb_scratch_write_text(
        scratch, "sys/fs/cgroup/system.slice/embagd.service/cpu.max", "max 100000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/system.slice/cpu.max", "10000 100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), 1);
}

static void takes_quota_of_v1(void **state)
{
    const struct eb_scratch *scratch = *state;
    /* The group's path is the host's, as in a container without its own cgroup namespace. */
    eb_scratch_write_text(
        scratch, "proc/self/cgroup", "9:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/docker/1\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "70000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), 1);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), affinity());
}

static void ignores_what_it_does_not_understand(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(
        scratch, "proc/self/cgroup", "\n:\n0:\n4:cpuset:/\n5:cpu:\n0::\n0::relative/..\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu.max", "nonsense\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
    assert_int_equal(eb_machine_cpu_count(scratch->root), affinity());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, eb_scratch_set_up, eb_scratch_tear_down)

EB_TEST_GROUP(cpu)
{
    const struct CMUnitTest tests[] = {
        TEST(counts_affinity_where_nothing_can_be_read),
        TEST(counts_one_when_pinned_to_one),
        TEST(takes_quota_of_v2_and_rounds_up),
        TEST(ignores_v2_without_quota),
        TEST(takes_the_least_quota_of_all_groups_above),
        TEST(takes_quota_of_v1),
        TEST(ignores_what_it_does_not_understand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
