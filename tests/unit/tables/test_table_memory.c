#include "server/tables/table_memory.h"

#include "server/tables/page_report.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE EB_PAGE_2M_BYTES

/* How many bytes the system was asked to change, in all and at most at a time. */
static struct {
    uint64_t sealed_bytes;
    uint64_t sealed_bytes_max; /* the largest single request */
    uint64_t given_bytes;      /* memory given back while its addresses are kept */
    uint64_t given_bytes_max;
    uint64_t unmapped_bytes; /* memory unmapped that had not been given back before */
} asked;

static void note(uint64_t bytes, uint64_t *sum, uint64_t *most)
{
    *sum += bytes;
    *most = bytes > *most ? bytes : *most;
}

static int record_mprotect(void *at, size_t bytes, int protection)
{
    if (protection == PROT_READ) {
        note(bytes, &asked.sealed_bytes, &asked.sealed_bytes_max);
    }
    return __real_mprotect(at, bytes, protection);
}

static int record_madvise(void *at, size_t bytes, int advice)
{
    if (advice == MADV_DONTNEED) {
        note(bytes, &asked.given_bytes, &asked.given_bytes_max);
    }
    return __real_madvise(at, bytes, advice);
}

static int record_munmap(void *at, size_t bytes)
{
    asked.unmapped_bytes += bytes - PAGE - asked.given_bytes;
    return __real_munmap(at, bytes);
}

static int record_calls(void **state)
{
    (void)state;
    eb_faults.mprotect = record_mprotect;
    eb_faults.madvise = record_madvise;
    eb_faults.munmap = record_munmap;
    return 0;
}

static uint8_t *take_table(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_failure failure = {.text = ""};
    uint8_t *taken = eb_table_memory_take(memory, bytes, &failure);
    assert_non_null(taken);
    return taken;
}

static void aligns_large_tables_to_pages(void **state)
{
    (void)state;
    struct eb_table_memory memory = {0};
    for (uint64_t bytes = PAGE; bytes < PAGE + 3; bytes++) {
        uint8_t *taken = take_table(&memory, bytes);
        assert_int_equal((uintptr_t)taken % PAGE, 0);
        taken[0] = 1;
        taken[bytes - 1] = 1;
    }
    assert_int_equal(memory.mapped_bytes, (1 + 2 + 2) * PAGE);
    eb_table_memory_deinit(&memory);
}

/* Returns whether smaps shows this flag for the mapping that contains `at`: "hg" if huge pages were
 * advised, "nh" if they were advised against. */
static bool has_flag(const void *at, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    char line[1024];
    bool is_inside = false;
    bool is_set = false;
    while (fgets(line, sizeof line, file)) {
        uintptr_t begin;
        uintptr_t end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            is_inside = begin <= (uintptr_t)at && (uintptr_t)at < end;
        } else if (is_inside && strncmp(line, "VmFlags:", 8) == 0) {
            is_set = strstr(line, flag);
        }
    }
    assert_int_equal(ferror(file), 0);
    assert_int_equal(fclose(file), 0);
    return is_set;
}

static void skip_without_huge_pages(void)
{
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
        print_message("this kernel has no transparent huge pages\n");
        skip();
    }
}

static void expect_advice(enum eb_page_size pages, const char *flag)
{
    struct eb_table_memory memory = {.options = {.pages = pages}};
    struct eb_failure failure;
    const uint8_t *small = take_table(&memory, 40);
    const uint8_t *large = take_table(&memory, 2 * PAGE + 1);
    assert_true(eb_table_memory_seal(&memory, &failure));
    assert_true(has_flag(small, flag));
    assert_true(has_flag(large, flag));
    assert_true(has_flag(large + 3 * PAGE - 1, flag));
    eb_table_memory_deinit(&memory);
}

static void advises_all_memory_to_huge_pages(void **state)
{
    (void)state;
    skip_without_huge_pages();
    expect_advice(EB_PAGE_2M, " hg");
}

static void keeps_memory_in_small_pages_where_told(void **state)
{
    (void)state;
    skip_without_huge_pages();
    expect_advice(EB_PAGE_SMALL, " nh");
}

static struct eb_page_count count_pages(const void *base, uint64_t bytes)
{
    struct eb_page_report report;
    assert_int_equal(eb_page_report_open(&report, ""), 0);
    struct eb_page_count count = eb_page_report_count(&report, base, bytes);
    eb_page_report_close(&report);
    return count;
}

/* The system may have given any number of huge pages, and may add more at any time. */
static void sealing_splits_no_huge_page(void **state)
{
    (void)state;
    enum { BYTES = 16 << 20 };
    struct eb_table_memory memory = {0};
    struct eb_failure failure;
    uint8_t *taken = take_table(&memory, BYTES);
    memset(taken, 1, BYTES);
    struct eb_page_count before = count_pages(taken, BYTES);
    assert_true(eb_table_memory_seal(&memory, &failure));
    struct eb_page_count after = count_pages(taken, BYTES);
    print_message("%" PRIu64 " of %" PRIu64 " bytes in huge pages\n", after.bytes_2m, after.bytes);
    assert_true(after.bytes_2m >= before.bytes_2m);
    assert_int_equal(after.bytes, BYTES);
    eb_table_memory_deinit(&memory);
}

/* Neighbouring tables have separate mappings, so that the counts of a mapping hold for each table
 * in it. */
static void counts_the_pages_of_each_table_apart(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20, COUNT = 8 };
    struct eb_table_memory memory = {0};
    struct eb_failure failure;
    uint8_t *taken[COUNT];
    for (int i = 0; i < COUNT; i++) {
        taken[i] = take_table(&memory, BYTES);
        if (i % 2 == 0) {
            memset(taken[i], 1, BYTES);
        }
    }
    assert_true(eb_table_memory_seal(&memory, &failure));
    struct eb_page_count whole = count_pages(taken[0], BYTES);
    for (int i = 0; i < COUNT; i++) {
        struct eb_page_count count = count_pages(taken[i], BYTES);
        assert_int_equal(count.bytes_2m % PAGE, 0);
        assert_int_equal(i % 2 == 0 || count.bytes_2m == 0, true);
    }
    print_message("%" PRIu64 " of %d bytes in huge pages\n", whole.bytes_2m, BYTES);
    eb_table_memory_deinit(&memory);
}

static void lets_small_tables_share_a_page(void **state)
{
    (void)state;
    struct eb_table_memory memory = {0};
    uint8_t *first = take_table(&memory, 40);
    uint8_t *large = take_table(&memory, PAGE);
    uint8_t *second = take_table(&memory, 64);
    uint8_t *third = take_table(&memory, PAGE - 128);
    assert_int_equal((uintptr_t)first % PAGE, 0);
    assert_int_equal((uintptr_t)large % PAGE, 0);
    assert_ptr_equal(second, first + 64);
    assert_ptr_equal(third, first + 128);
    assert_int_equal(memory.mapped_bytes, 2 * PAGE);
    uint8_t *fourth = take_table(&memory, 1);
    assert_int_equal((uintptr_t)fourth % PAGE, 0);
    assert_int_equal(memory.mapped_bytes, 3 * PAGE);
    eb_table_memory_deinit(&memory);
}

static void gives_a_place_to_a_table_of_no_rows(void **state)
{
    (void)state;
    struct eb_table_memory memory = {0};
    assert_non_null(take_table(&memory, 0));
    eb_table_memory_deinit(&memory);
}

static void gives_zeroed_memory(void **state)
{
    (void)state;
    static const uint8_t zeros[1000];
    struct eb_table_memory memory = {0};
    assert_memory_equal(take_table(&memory, sizeof zeros), zeros, sizeof zeros);
    eb_table_memory_deinit(&memory);
}

static void refuses_more_than_there_is(void **state)
{
    (void)state;
    struct eb_table_memory memory = {0};
    struct eb_failure failure = {.text = ""};
    assert_null(eb_table_memory_take(&memory, UINT64_MAX, &failure));
    assert_non_null(strstr(failure.text, "18446744073709551615 bytes"));
    assert_null(eb_table_memory_take(&memory, UINT64_C(1) << 60, &failure));
    assert_int_equal(memory.mapped_bytes, 0);
    eb_table_memory_deinit(&memory);
}

static void counts_what_a_table_occupies(void **state)
{
    (void)state;
    assert_int_equal(eb_table_memory_footprint(0), 64);
    assert_int_equal(eb_table_memory_footprint(1), 64);
    assert_int_equal(eb_table_memory_footprint(64), 64);
    assert_int_equal(eb_table_memory_footprint(PAGE - 1), PAGE);
    assert_int_equal(eb_table_memory_footprint(PAGE), PAGE);
    assert_int_equal(eb_table_memory_footprint(PAGE + 1), 2 * PAGE);
    assert_true(eb_table_memory_footprint(UINT64_MAX) == UINT64_MAX);
}

/* Tables no two of which fit into one page, and between them large tables and one without rows. */
static void takes_as_much_as_was_counted(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {PAGE / 2 + 1, 3 * PAGE + 1, 0, PAGE - 65, 40, PAGE};
    enum { SIZES = sizeof sizes / sizeof sizes[0], TURNS = 30 };
    struct eb_table_memory memory = {0};
    struct eb_table_need need = {0};
    for (int i = 0; i < SIZES * TURNS; i++) {
        eb_table_memory_need_add(&need, sizes[i % SIZES]);
    }
    assert_false(eb_table_memory_reserve(&memory, &need));
    assert_int_equal(memory.mapped_bytes, 0);
    for (int i = 0; i < SIZES * TURNS; i++) {
        take_table(&memory, sizes[i % SIZES]);
    }
    assert_int_equal(memory.mapped_bytes, eb_table_memory_need_bytes(&need));
    assert_int_equal(memory.mapped_bytes, (5 * TURNS + 45 + 1) * PAGE);
    take_table(&memory, 40);
    take_table(&memory, PAGE - 40);
    assert_int_equal(memory.mapped_bytes, (5 * TURNS + 45 + 2) * PAGE);
    eb_table_memory_deinit(&memory);
}

/* A table that is rounded up to a whole page has the page to itself. */
static void counts_tables_of_nearly_a_page_as_they_lie(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {PAGE - 1, PAGE - 63, PAGE - 64, 40};
    struct eb_table_memory memory = {0};
    struct eb_table_need need = {0};
    for (size_t i = 0; i < 4; i++) {
        eb_table_memory_need_add(&need, sizes[i]);
    }
    assert_false(eb_table_memory_reserve(&memory, &need));
    for (size_t i = 0; i < 4; i++) {
        take_table(&memory, sizes[i]);
    }
    assert_int_equal(memory.mapped_bytes, 3 * PAGE);
    assert_int_equal(eb_table_memory_need_bytes(&need), 3 * PAGE);
    eb_table_memory_deinit(&memory);
}

static void counts_no_more_than_can_be_said(void **state)
{
    (void)state;
    struct eb_table_need need = {0};
    assert_int_equal(eb_table_memory_need_bytes(&need), 0);
    eb_table_memory_need_add(&need, eb_table_memory_join(UINT64_MAX, 1));
    eb_table_memory_need_add(&need, PAGE);
    eb_table_memory_need_add(&need, 1);
    assert_true(eb_table_memory_need_bytes(&need) == UINT64_MAX);
}

static void joins_an_index_to_its_rows(void **state)
{
    (void)state;
    assert_int_equal(eb_table_memory_join(65, 0), 65);
    assert_int_equal(eb_table_memory_join(0, 7), 7);
    assert_int_equal(eb_table_memory_join(65, 7), 128 + 7);
}

/* Writing to sealed memory must end the process, so a child process writes. */
static bool survives_writing(uint8_t *at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* else the test library or a sanitizer catches it */
        *(volatile uint8_t *)at = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void sealed_memory_cannot_be_written(void **state)
{
    (void)state;
    struct eb_table_memory memory = {0};
    struct eb_failure failure;
    uint8_t *small = take_table(&memory, 40);
    uint8_t *large = take_table(&memory, PAGE + 1);
    large[PAGE] = 7;
    assert_true(survives_writing(small));
    assert_true(eb_table_memory_seal(&memory, &failure));
    assert_int_equal(large[PAGE], 7);
    assert_false(survives_writing(small));
    assert_false(survives_writing(large + PAGE));
    eb_table_memory_deinit(&memory);
}

/* While memory is sealed or given back, a thread that maps memory waits for at most one slice. */
static void seals_and_gives_back_in_slices(void **state)
{
    (void)state;
    enum { BYTES = 3 * EB_TABLE_MAPPING_SLICE_BYTES + PAGE };
    struct eb_table_memory memory = {0};
    struct eb_failure failure;
    memset(take_table(&memory, BYTES), 1, BYTES);
    memset(&asked, 0, sizeof asked);
    assert_true(eb_table_memory_seal(&memory, &failure));
    assert_int_equal(asked.sealed_bytes, BYTES);
    assert_int_equal(asked.sealed_bytes_max, EB_TABLE_MAPPING_SLICE_BYTES);
    eb_table_memory_deinit(&memory);
    assert_int_equal(asked.given_bytes, BYTES);
    assert_int_equal(asked.given_bytes_max, EB_TABLE_MAPPING_SLICE_BYTES);
    assert_int_equal(asked.unmapped_bytes, 0);
}

EB_TEST_GROUP(table_memory)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligns_large_tables_to_pages),
        cmocka_unit_test(advises_all_memory_to_huge_pages),
        cmocka_unit_test(keeps_memory_in_small_pages_where_told),
        cmocka_unit_test(sealing_splits_no_huge_page),
        cmocka_unit_test(counts_the_pages_of_each_table_apart),
        cmocka_unit_test(lets_small_tables_share_a_page),
        cmocka_unit_test(gives_a_place_to_a_table_of_no_rows),
        cmocka_unit_test(gives_zeroed_memory),
        cmocka_unit_test(refuses_more_than_there_is),
        cmocka_unit_test(counts_what_a_table_occupies),
        cmocka_unit_test(takes_as_much_as_was_counted),
        cmocka_unit_test(counts_tables_of_nearly_a_page_as_they_lie),
        cmocka_unit_test(counts_no_more_than_can_be_said),
        cmocka_unit_test(joins_an_index_to_its_rows),
        cmocka_unit_test(sealed_memory_cannot_be_written),
        cmocka_unit_test(seals_and_gives_back_in_slices),
    };
    return cmocka_run_group_tests(tests, record_calls, eb_faults_tear_down);
}
