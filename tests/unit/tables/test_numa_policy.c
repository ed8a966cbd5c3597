/* NUMA nodes of this machine or of a test: libnuma's node mask is a variable, and the linker
 * redirects libnuma's functions to this file (tests/lib/faults.h). */
#include "server/tables/numa_policy.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int available_error; /* 0: available */

static int tell_numa_available(void)
{
    errno = available_error;
    return available_error == 0 ? 0 : -1;
}

static struct {
    int count;
    void *base;
    unsigned long bytes;
    int mode;
    unsigned long nodes; /* 0: none given */
    int error;           /* error to fail with; 0: none */
} calls;

static long record_mbind(void *base, unsigned long bytes, int mode, const unsigned long *nodes,
    unsigned long node_bits, unsigned flags)
{
    calls.count++;
    calls.base = base;
    calls.bytes = bytes;
    calls.mode = mode;
    calls.nodes = nodes && node_bits > 0 ? nodes[0] : 0;
    assert_int_equal(flags, 0);
    errno = calls.error;
    return calls.error == 0 ? 0 : -1;
}

static int pretend_numa(void **state)
{
    (void)state;
    eb_faults.numa_available = tell_numa_available;
    eb_faults.mbind = record_mbind;
    return 0;
}

static struct bitmask *real_nodes;
static unsigned long bits;
static struct bitmask nodes = {.size = 64, .maskp = &bits};

static int pretend_nodes(void **state)
{
    (void)state;
    available_error = 0;
    real_nodes = numa_all_nodes_ptr;
    numa_all_nodes_ptr = &nodes;
    bits = 5; /* nodes 0 and 2 */
    calls.count = 0;
    calls.error = 0;
    return 0;
}

static int restore_nodes(void **state)
{
    (void)state;
    numa_all_nodes_ptr = real_nodes;
    return 0;
}

static void names_every_policy(void **state)
{
    (void)state;
    assert_string_equal(eb_numa_names[EB_NUMA_INTERLEAVE], "interleave");
    assert_string_equal(eb_numa_names[EB_NUMA_LOCAL], "local");
    assert_string_equal(eb_numa_names[EB_NUMA_OFF], "off");
    assert_null(eb_numa_names[EB_NUMA_COUNT]);
}

static void spreads_over_all_nodes(void **state)
{
    (void)state;
    char memory[1];
    assert_int_equal(eb_numa_policy_node_count(), 2);
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_INTERLEAVE, memory, 4096), 0);
    assert_int_equal(calls.count, 1);
    assert_ptr_equal(calls.base, memory);
    assert_int_equal(calls.bytes, 4096);
    assert_int_equal(calls.mode, MPOL_INTERLEAVE);
    assert_int_equal(calls.nodes, 5);
}

static void keeps_to_the_loading_thread_s_node(void **state)
{
    (void)state;
    char memory[1];
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_LOCAL, memory, 4096), 0);
    assert_int_equal(calls.count, 1);
    assert_int_equal(calls.mode, MPOL_LOCAL);
    assert_int_equal(calls.nodes, 0);
}

static void leaves_placing_alone(void **state)
{
    (void)state;
    char memory[1];
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_OFF, memory, 4096), 0);
    bits = 4;
    assert_int_equal(eb_numa_policy_node_count(), 1);
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_INTERLEAVE, memory, 4096), 0);
    bits = 5;
    available_error = ENOSYS;
    assert_int_equal(eb_numa_policy_node_count(), 1);
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_INTERLEAVE, memory, 4096), 0);
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_LOCAL, memory, 4096), 0);
    assert_int_equal(calls.count, 0);
}

static void tells_of_a_refusal(void **state)
{
    (void)state;
    char memory[1];
    calls.error = EPERM;
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_INTERLEAVE, memory, 4096), -EPERM);
    available_error = EPERM;
    assert_int_equal(eb_numa_policy_node_count(), 2);
    assert_int_equal(eb_numa_policy_apply(EB_NUMA_LOCAL, memory, 4096), -EPERM);
}

EB_TEST_GROUP(numa_policy)
{
#define WITH_NODES(test) cmocka_unit_test_setup_teardown(test, pretend_nodes, restore_nodes)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_policy),
        WITH_NODES(spreads_over_all_nodes),
        WITH_NODES(keeps_to_the_loading_thread_s_node),
        WITH_NODES(leaves_placing_alone),
        WITH_NODES(tells_of_a_refusal),
    };
    return cmocka_run_group_tests(tests, pretend_numa, eb_faults_tear_down);
}
