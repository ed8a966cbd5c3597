#include "server/base/cpu.h"

#include "tests/lib/test_group.h"

#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A directory with a fake /proc and /sys, made anew for each test. */
static char root[] = "/tmp/embag-test-cpu-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Writes root/path, directories included. */
static void write_file(const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static uint32_t affinity(void)
{
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    return (uint32_t)CPU_COUNT(&mask);
}

static void counts_affinity_where_nothing_can_be_read(void **state)
{
    (void)state;
    assert_int_equal(eb_cpu_count(root), affinity());
}

static void counts_one_when_pinned_to_one(void **state)
{
    (void)state;
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
    uint32_t cpus = eb_cpu_count(root);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpus, 1);
}

static void takes_quota_of_v2_and_rounds_up(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "0::/\n");
    write_file("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(eb_cpu_count(root), 1);
    write_file("sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_int_equal(eb_cpu_count(root), 1);
    write_file("sys/fs/cgroup/cpu.max", "100001 100000\n");
    assert_int_equal(eb_cpu_count(root), affinity() < 2 ? affinity() : 2);
}

static void ignores_v2_without_quota(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "0::/\n");
    write_file("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(eb_cpu_count(root), affinity());
}

static void takes_the_least_of_all_groups_above(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "0::/system.slice/embagd.service\n");
    write_file("sys/fs/cgroup/system.slice/embagd.service/cpu.max", "max 100000\n");
    write_file("sys/fs/cgroup/system.slice/cpu.max", "10000 100000\n");
    assert_int_equal(eb_cpu_count(root), 1);
}

static void takes_quota_of_v1(void **state)
{
    (void)state;
    /* The path is the host's, as in a container without a namespace of its own. */
    write_file("proc/self/cgroup", "9:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/docker/1\n");
    write_file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "70000\n");
    write_file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(eb_cpu_count(root), 1);
    write_file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(eb_cpu_count(root), affinity());
}

static void ignores_what_it_does_not_understand(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "\n:\n0:\n4:cpuset:/\n5:cpu:\n0::\n0::relative/..\n");
    write_file("sys/fs/cgroup/cpu.max", "nonsense\n");
    write_file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n");
    write_file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
    assert_int_equal(eb_cpu_count(root), affinity());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

EB_TEST_GROUP(cpu)
{
    const struct CMUnitTest tests[] = {
        TEST(counts_affinity_where_nothing_can_be_read),
        TEST(counts_one_when_pinned_to_one),
        TEST(takes_quota_of_v2_and_rounds_up),
        TEST(ignores_v2_without_quota),
        TEST(takes_the_least_of_all_groups_above),
        TEST(takes_quota_of_v1),
        TEST(ignores_what_it_does_not_understand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
