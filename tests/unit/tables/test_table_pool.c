/* Tables in pages of 1 GiB from a test's pool. The linker redirects mmap, madvise and mbind to this
 * file (tests/lib/faults.h). The pool's pages are really small pages, which are never all
 * written. */
#include "server/tables/table_memory.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <numa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <linux/mman.h>

#define GIB EB_PAGE_1G_BYTES
#define PAGE EB_PAGE_2M_BYTES

static struct {
    uint64_t page_count;    /* free pages */
    int populate_error;     /* errno of a populate request; 0: it succeeds */
    uint64_t asked_count;   /* requests for pages of the pool */
    uint64_t populated;     /* bytes that were populated */
    uint64_t advised_bytes; /* bytes advised to use transparent huge pages */
    int mbind_count;
    int mbind_error;
} pool;

static void *map_from_pool(
    void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (!(flags & MAP_HUGETLB)) {
        return __real_mmap(at, bytes, protection, flags, file, offset);
    }
    assert_int_equal(flags, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_1GB);
    assert_int_equal(bytes % GIB, 0);
    pool.asked_count++;
    if (bytes / GIB > pool.page_count) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    pool.page_count -= bytes / GIB;
    return __real_mmap(
        at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, file, offset);
}

static int advise_pool(void *at, size_t bytes, int advice)
{
    if (advice != MADV_POPULATE_WRITE) {
        pool.advised_bytes += advice == MADV_HUGEPAGE ? bytes : 0;
        return __real_madvise(at, bytes, advice);
    }
    pool.populated += bytes;
    errno = pool.populate_error;
    return pool.populate_error == 0 ? 0 : -1;
}

static int tell_pool_numa(void)
{
    return 0;
}

static long bind_pool(void *base, unsigned long bytes, int mode, const unsigned long *nodes,
    unsigned long node_bits, unsigned flags)
{
    (void)base, (void)bytes, (void)mode, (void)nodes, (void)node_bits, (void)flags;
    pool.mbind_count++;
    errno = pool.mbind_error;
    return pool.mbind_error == 0 ? 0 : -1;
}

static int pretend_pool(void **state)
{
    (void)state;
    eb_faults.mmap = map_from_pool;
    eb_faults.madvise = advise_pool;
    eb_faults.numa_available = tell_pool_numa;
    eb_faults.mbind = bind_pool;
    return 0;
}

static struct eb_table_memory memory;

static int make_memory(void **state)
{
    (void)state;
    memset(&pool, 0, sizeof pool);
    memory = (struct eb_table_memory){.options = {.pages = EB_PAGE_1G}};
    return 0;
}

static int free_memory(void **state)
{
    (void)state;
    eb_table_memory_deinit(&memory);
    return 0;
}

static uint8_t *take_pages(uint64_t bytes)
{
    struct eb_failure failure = {.text = ""};
    uint8_t *taken = eb_table_memory_take(&memory, bytes, &failure);
    assert_non_null(taken);
    return taken;
}

static bool reserve(uint64_t bytes)
{
    return eb_table_memory_reserve(&memory, &(struct eb_table_need){.whole_bytes = bytes});
}

static void lays_tables_one_behind_the_other(void **state)
{
    (void)state;
    pool.page_count = 3;
    assert_true(reserve(GIB + 1));
    assert_int_equal(pool.page_count, 1);
    assert_int_equal(pool.populated, 2 * GIB);
    uint8_t *first = take_pages(40);
    uint8_t *second = take_pages(PAGE + 1);
    uint8_t *third = take_pages(GIB);
    assert_ptr_equal(second, first + 64);
    assert_ptr_equal(third, second + 2 * PAGE);
    third[GIB - 1] = 1;
    assert_int_equal(memory.mapped_bytes, 2 * GIB);
    assert_int_equal(pool.asked_count, 1);
    assert_false(memory.is_pool_short);
}

/* A version takes no more than the sum of its tables' needs. */
static void holds_as_much_as_was_reserved(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, PAGE, 63, PAGE + 1, 65, PAGE - 1, 64, 500 * PAGE};
    struct eb_table_need need = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        eb_table_memory_need_add(&need, sizes[i]);
    }
    pool.page_count = 1;
    uint64_t rest = (GIB - need.whole_bytes - need.common_bytes) / PAGE * PAGE;
    eb_table_memory_need_add(&need, rest);
    assert_true(eb_table_memory_reserve(&memory, &need));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        take_pages(sizes[i]);
    }
    take_pages(rest);
    assert_int_equal(memory.mapped_bytes, GIB);
}

static void takes_pages_of_the_pool_without_reserving(void **state)
{
    (void)state;
    pool.page_count = 4;
    take_pages(GIB + 1);
    take_pages(GIB / 2);
    assert_int_equal(memory.mapped_bytes, 2 * GIB);
    take_pages(GIB / 2);
    assert_int_equal(memory.mapped_bytes, 3 * GIB);
    assert_int_equal(pool.page_count, 1);
}

static void falls_back_to_pages_of_2_mib_where_the_pool_is_short(void **state)
{
    (void)state;
    pool.page_count = 1;
    assert_false(reserve(GIB + 1));
    assert_true(memory.is_pool_short);
    assert_int_equal(pool.page_count, 1);
    uint8_t *large = take_pages(3 * PAGE);
    take_pages(40);
    assert_int_equal((uintptr_t)large % PAGE, 0);
    assert_int_equal(memory.mapped_bytes, 4 * PAGE);
    assert_int_equal(pool.advised_bytes, 4 * PAGE);
    assert_int_equal(pool.asked_count, 1);
    assert_int_equal(pool.populated, 0);
}

/* The pool has pages, but not for this process: a write to them would raise a signal. */
static void falls_back_where_pages_cannot_be_made_present(void **state)
{
    (void)state;
    pool.page_count = 2;
    pool.populate_error = EFAULT;
    assert_false(reserve(GIB));
    assert_true(memory.is_pool_short);
    take_pages(PAGE);
    assert_int_equal(memory.mapped_bytes, PAGE);
}

static void trusts_a_kernel_that_cannot_be_asked_to_populate(void **state)
{
    (void)state;
    pool.page_count = 1;
    pool.populate_error = EINVAL;
    assert_true(reserve(GIB));
    assert_false(memory.is_pool_short);
}

static void leaves_the_pool_alone_unless_told(void **state)
{
    (void)state;
    static const enum eb_page_size others[] = {EB_PAGE_2M, EB_PAGE_SMALL};
    pool.page_count = 1;
    for (size_t i = 0; i < 2; i++) {
        memory.options.pages = others[i];
        assert_false(reserve(GIB));
        take_pages(PAGE);
        eb_table_memory_deinit(&memory);
    }
    assert_int_equal(pool.asked_count, 0);
    assert_int_equal(pool.advised_bytes, PAGE);
}

static void refuses_what_no_pool_can_hold(void **state)
{
    (void)state;
    pool.page_count = UINT64_MAX;
    assert_false(reserve(UINT64_MAX));
    assert_int_equal(pool.asked_count, 0);
    assert_false(reserve(0));
}

static void seals_pages_of_the_pool(void **state)
{
    (void)state;
    struct eb_failure failure;
    pool.page_count = 1;
    uint8_t *taken = take_pages(100);
    taken[99] = 7;
    assert_true(eb_table_memory_seal(&memory, &failure));
    assert_int_equal(taken[99], 7);
}

static void places_every_mapping_on_the_nodes(void **state)
{
    (void)state;
    unsigned long bits = 3;
    struct bitmask nodes = {.size = 64, .maskp = &bits};
    struct bitmask *real_nodes = numa_all_nodes_ptr;
    numa_all_nodes_ptr = &nodes;
    pool.page_count = 1;
    take_pages(GIB);
    take_pages(PAGE);
    take_pages(40);
    int placed_count = pool.mbind_count;
    assert_int_equal(memory.numa_error, 0);
    pool.mbind_error = EPERM;
    take_pages(PAGE);
    numa_all_nodes_ptr = real_nodes;
    assert_int_equal(placed_count, 3);
    assert_int_equal(memory.numa_error, -EPERM);
}

EB_TEST_GROUP(table_pool)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_memory, free_memory)
    const struct CMUnitTest tests[] = {
        TEST(lays_tables_one_behind_the_other),
        TEST(holds_as_much_as_was_reserved),
        TEST(takes_pages_of_the_pool_without_reserving),
        TEST(falls_back_to_pages_of_2_mib_where_the_pool_is_short),
        TEST(falls_back_where_pages_cannot_be_made_present),
        TEST(trusts_a_kernel_that_cannot_be_asked_to_populate),
        TEST(leaves_the_pool_alone_unless_told),
        TEST(refuses_what_no_pool_can_hold),
        TEST(seals_pages_of_the_pool),
        TEST(places_every_mapping_on_the_nodes),
    };
    return cmocka_run_group_tests(tests, pretend_pool, eb_faults_tear_down);
}
