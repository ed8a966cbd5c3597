#include "server/base/page_size.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRANSPARENT "sys/kernel/mm/transparent_hugepage/enabled"
#define GIANT "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
#define STATUS "proc/self/status"

static void expect_hint(
    const struct eb_scratch *scratch, enum eb_page_size wanted, uint64_t bytes, const char *part)
{
    char hint[EB_PAGE_HINT_BYTES];
    eb_page_size_hint(wanted, bytes, scratch->root, hint);
    eb_scratch_expect(hint, part);
    assert_true(strlen(hint) < EB_PAGE_HINT_BYTES - 1);
}

static void names_every_size(void **state)
{
    (void)state;
    assert_string_equal(eb_page_size_names[EB_PAGE_2M], "2m");
    assert_string_equal(eb_page_size_names[EB_PAGE_1G], "1g");
    assert_string_equal(eb_page_size_names[EB_PAGE_SMALL], "off");
    assert_null(eb_page_size_names[EB_PAGE_SIZE_COUNT]);
}

static void tells_why_pages_of_2_mib_are_missing(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_hint(scratch, EB_PAGE_2M, 1, "this kernel has no transparent huge pages");
    eb_scratch_write_text(scratch, TRANSPARENT, "always madvise [never]\n");
    expect_hint(
        scratch, EB_PAGE_2M, 1, "write madvise to /sys/kernel/mm/transparent_hugepage/enabled");
    eb_scratch_write_text(scratch, TRANSPARENT, "always [madvise] never\n");
    expect_hint(scratch, EB_PAGE_2M, 1, "/proc/sys/vm/compact_memory");
    eb_scratch_write_text(scratch, STATUS, "Name:\tembagd\nTHP_enabled:\t1\n");
    expect_hint(scratch, EB_PAGE_2M, 1, "/proc/sys/vm/compact_memory");
    eb_scratch_write_text(scratch, STATUS, "Name:\tembagd\nTHP_enabled:\t0\n");
    expect_hint(scratch, EB_PAGE_2M, 1, "PR_SET_THP_DISABLE");
}

static void tells_how_many_pages_of_1_gib_are_missing(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_hint(scratch, EB_PAGE_1G, 1, "this system has no pages of 1 GiB: set huge_pages to 2m");
    eb_scratch_write_text(scratch, GIANT, "3\n");
    expect_hint(
        scratch, EB_PAGE_1G, 1, "free pages of 1 GiB needed: 1, pages in the whole pool: 3; ");
    expect_hint(scratch, EB_PAGE_1G, EB_PAGE_1G_BYTES, "needed: 1,");
    expect_hint(scratch, EB_PAGE_1G, EB_PAGE_1G_BYTES + 1, "needed: 2,");
    expect_hint(scratch, EB_PAGE_1G, UINT64_MAX, "needed: 17179869184,");
}

EB_TEST_GROUP(page_size)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_size),
        WITH_ROOT(tells_why_pages_of_2_mib_are_missing),
        WITH_ROOT(tells_how_many_pages_of_1_gib_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
