#include "server/base/machine.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)

static void says_no_limit_where_nothing_can_be_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    assert_true(eb_machine_available_bytes_under(scratch->root) == UINT64_MAX);
}

static void reads_what_the_machine_has(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/meminfo",
        "MemTotal:       9000 kB\nMemFree:  10 kB\nMemAvailable:    8000 kB\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 8000 * KIB);
}

static void takes_the_cache_of_a_group_as_free(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/meminfo", "MemAvailable:    8000 kB\n");
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/a/b\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.max", "4096000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.current", "1000000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 3096000);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.stat",
        "anon 1\nfile 5\nworkingset_inactive_file 7\ninactive_file 300000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 3396000);
    /* Pages that were read twice are in active_file. */
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.stat",
        "anon 1\nfile 500005\nworkingset_active_file 7\ninactive_file 300000\n"
        "active_file 200000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 3596000);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.stat", "active_file 9000000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 4096000);
}

static void takes_the_least_memory_of_all_groups_above(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/meminfo", "MemAvailable:    8000 kB\n");
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/a/b\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.max", "max\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/memory.max", "2000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/memory.current", "500\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 1500);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory.max", "1000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 1000);
}

static void tells_the_highest_pressure_of_machine_and_groups(void **state)
{
    const struct eb_scratch *scratch = *state;
    assert_true(eb_machine_memory_pressure(scratch->root) == 0);
    eb_scratch_write_text(scratch, "proc/pressure/memory",
        "some avg10=1.25 avg60=9.00 avg300=0.00 total=5\nfull avg10=8.00 avg60=0.00\n");
    assert_true(eb_machine_memory_pressure(scratch->root) == 1.25);
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/a/b\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/b/memory.pressure", "some avg10=0.50\n");
    assert_true(eb_machine_memory_pressure(scratch->root) == 1.25);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/memory.pressure", "some avg10=2.50\n");
    assert_true(eb_machine_memory_pressure(scratch->root) == 2.5);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/a/memory.pressure", "junk\n");
    assert_true(eb_machine_memory_pressure(scratch->root) == 1.25);
}

static void says_nothing_is_left_where_a_group_is_over_its_limit(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory.max", "1000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory.current", "1001\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 0);
}

static void reads_version_1_groups(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup",
        "5:memory_like:/x\n4:cpu,memory:/a\n3:pids:/a\n0::/a\nbroken\n");
    eb_scratch_write_text(
        scratch, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 5\nactive_file 6\ntotal_inactive_file 500\ntotal_active_file 70\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 3570);
}

/* The group of a container that was started again over its files, below that of its pod. */
static void counts_shared_pages_that_another_group_is_charged_for(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::/pod/box\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/box/memory.max", "10000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/box/memory.current", "1000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/box/memory.stat", "anon 900\nshmem 100\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/memory.max", "20000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/memory.current", "7000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/pod/memory.stat", "shmem 6000\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 9000);
    assert_int_equal(eb_machine_uncharged_bytes_under(scratch->root), 0);
    eb_machine_add_shared(6000);
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 9000 - 5900);
    assert_int_equal(eb_machine_uncharged_bytes_under(scratch->root), 5900);
    eb_machine_remove_shared(6000);
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 9000);
    /* Version 1 has another name for it. If a group does not report it, nothing is assumed. */
    eb_scratch_write_text(scratch, "proc/self/cgroup", "4:memory:/a\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.stat", "shmem 1\n");
    eb_machine_add_shared(2500);
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 3000);
    eb_scratch_write_text(scratch, "sys/fs/cgroup/memory/a/memory.stat", "total_shmem 1500\n");
    assert_int_equal(eb_machine_available_bytes_under(scratch->root), 2000);
    eb_machine_remove_shared(2500);
}

static void survives_a_path_that_is_none(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_text(scratch, "proc/self/cgroup", "0::..\n0::\n0::/../../x\n");
    assert_true(eb_machine_available_bytes_under(scratch->root) == UINT64_MAX);
}

static void knows_this_machine(void **state)
{
    (void)state;
    assert_in_range(eb_machine_available_bytes(), 1, UINT64_C(1) << 50);
}

EB_TEST_GROUP(memory_available)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(says_no_limit_where_nothing_can_be_read),
        WITH_ROOT(reads_what_the_machine_has),
        WITH_ROOT(takes_the_cache_of_a_group_as_free),
        WITH_ROOT(takes_the_least_memory_of_all_groups_above),
        WITH_ROOT(says_nothing_is_left_where_a_group_is_over_its_limit),
        WITH_ROOT(reads_version_1_groups),
        WITH_ROOT(counts_shared_pages_that_another_group_is_charged_for),
        WITH_ROOT(survives_a_path_that_is_none),
        WITH_ROOT(tells_the_highest_pressure_of_machine_and_groups),
        cmocka_unit_test(knows_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
