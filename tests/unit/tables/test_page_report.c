#include "server/tables/page_report.h"

#include "server/base/page_size.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define SMAPS "proc/self/smaps"
#define MIB UINT64_C(1048576)

static void open_smaps(
    const struct eb_scratch *scratch, struct eb_page_report *report, const char *smaps)
{
    eb_scratch_write_text(scratch, SMAPS, smaps);
    assert_int_equal(eb_page_report_open(report, scratch->root), 0);
}

static void expect_count(const struct eb_page_report *report, uint64_t base, uint64_t bytes,
    uint64_t bytes_2m, uint64_t bytes_1g)
{
    struct eb_page_count count = eb_page_report_count(report, (const void *)(uintptr_t)base, bytes);
    assert_int_equal(count.bytes, bytes);
    assert_int_equal(count.bytes_2m, bytes_2m);
    assert_int_equal(count.bytes_1g, bytes_1g);
}

/* 8 MiB, half of them huge; 4 MiB, all huge; a mapping without huge pages; 2 GiB from the pool. */
static const char smaps[] =
    "10000000-10800000 rw-p 00000000 00:00 0 \n"
    "Size:               8192 kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n"
    "AnonHugePages:      4096 kB\nShmemPmdMapped:        0 kB\n"
    "Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:       0 kB\nVmFlags: rd wr mr mw me ac hg\n"
    "10800000-10c00000 r--p 00000000 00:00 0 \n"
    "KernelPageSize:        4 kB\nAnonHugePages:      4096 kB\n"
    "20000000-20001000 r-xp 00000000 fe:00 12  /lib/AnonHugePages: 4 kB\n"
    "KernelPageSize:        4 kB\nAnonHugePages:         0 kB\n"
    "7f0040000000-7f00c0000000 r--p 00000000 00:10 31 /anon_hugepage (deleted)\n"
    "KernelPageSize:  1048576 kB\nMMUPageSize:     1048576 kB\nAnonHugePages:         0 kB\n"
    "Shared_Hugetlb:  1048576 kB\nPrivate_Hugetlb: 1048576 kB\nVmFlags: rd mr mw me de ht\n";

static void counts_ranges_of_mappings(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_page_report report;
    open_smaps(scratch, &report, smaps);
    expect_count(&report, 0x10000000, 8 * MIB, 4 * MIB, 0);
    expect_count(&report, 0x10200000, 2 * MIB, MIB, 0);
    expect_count(&report, 0x10800000, 4 * MIB, 4 * MIB, 0);
    expect_count(&report, 0x10800040, 100, 100, 0);
    expect_count(&report, 0x10700000, 2 * MIB, MIB / 2 + MIB, 0);
    expect_count(&report, 0x10000000, 16 * MIB, 8 * MIB, 0);
    expect_count(&report, 0x20000000, 4096, 0, 0);
    expect_count(&report, 0x7f0040000000, 2048 * MIB, 0, 2048 * MIB);
    expect_count(&report, 0x7f0080000010, 3000 * MIB, 0, 1024 * MIB - 16);
    expect_count(&report, 0x10bff000, 0, 0, 0);
    expect_count(&report, 0, UINT64_MAX, 8 * MIB, 2048 * MIB);
    eb_page_report_close(&report);
}

static void finds_each_of_many_mappings(void **state)
{
    const struct eb_scratch *scratch = *state;
    static char text[100000];
    size_t used = 0;
    for (unsigned i = 0; i < 100; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
            "%x-%x r--p 00000000 00:00 0 \nKernelPageSize: 4 kB\nAnonHugePages: 2048 kB\n",
            0x10000000 + i * 0x400000, 0x10200000 + i * 0x400000);
    }
    struct eb_page_report report;
    open_smaps(scratch, &report, text);
    for (uint64_t i = 0; i < 100; i++) {
        expect_count(&report, 0x10000000 + i * 0x400000, 4 * MIB, 2 * MIB, 0);
        expect_count(&report, 0x10200000 + i * 0x400000, 2 * MIB, 0, 0);
    }
    eb_page_report_close(&report);
}

static void counts_nothing_where_nothing_is_huge(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_page_report report;
    open_smaps(scratch, &report, "");
    expect_count(&report, 0x10000000, MIB, 0, 0);
    eb_page_report_close(&report);
    eb_page_report_close(&report);
}

static void says_that_it_cannot_tell(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_page_report report;
    assert_int_equal(eb_page_report_open(&report, scratch->root), -ENOENT);
    assert_int_equal(report.count, 0);
    eb_scratch_make_directory(scratch, SMAPS);
    assert_int_equal(eb_page_report_open(&report, scratch->root), -EIO);
    expect_count(&report, 0x10000000, MIB, 0, 0);
}

/* Uses small pages only: the system can always give them, but not always huge ones. */
static void tells_small_pages_from_huge_ones(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    struct eb_page_report report;
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    (void)madvise(memory, BYTES, MADV_NOHUGEPAGE);
    memset(memory, 1, BYTES);
    assert_int_equal(eb_page_report_open(&report, ""), 0);
    expect_count(&report, (uintptr_t)memory, BYTES, 0, 0);
    eb_page_report_close(&report);
    munmap(memory, BYTES);
}

EB_TEST_GROUP(page_report)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(counts_ranges_of_mappings),
        WITH_ROOT(finds_each_of_many_mappings),
        WITH_ROOT(counts_nothing_where_nothing_is_huge),
        WITH_ROOT(says_that_it_cannot_tell),
        cmocka_unit_test(tells_small_pages_from_huge_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
