/* Tables that got small pages, and rounds that join them. */
#include "server/tables/page_collapse.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/set_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <linux/mman.h>

#define ROWS 65536
#define ELEMENTS 16
#define TABLE_PAGES 2 /* of 2 MiB */
#define CALLS_MAX 16

/* Two tables of two pages each. */
static struct eb_set_fixture fixture;
static struct eb_table_set set;
static void *tried[CALLS_MAX]; /* addresses of the pages that were to be joined */
static unsigned tried_count;
static unsigned joined_count;  /* calls that the kernel has carried out */
static unsigned pass;          /* of the next round */
static int errors[CALLS_MAX];  /* how these calls fail; 0 means that they reach the kernel */
static unsigned allowed_count; /* calls of go_on that return true */

static int advise(void *at, size_t bytes, int advice)
{
    if (advice == MADV_HUGEPAGE) {
        return __real_madvise(at, bytes, MADV_NOHUGEPAGE);
    }
    if (advice != MADV_COLLAPSE) {
        return __real_madvise(at, bytes, advice);
    }
    assert_true(tried_count < CALLS_MAX);
    unsigned call = tried_count++;
    tried[call] = at;
    errno = errors[call];
    if (errno != 0) {
        return -1;
    }
    (void)__real_madvise(at, bytes, MADV_HUGEPAGE);
    int rc = __real_madvise(at, bytes, advice);
    joined_count += rc == 0;
    return rc;
}

static bool go_on(void *context)
{
    (void)context;
    return allowed_count-- > 0;
}

static int set_up(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {ROWS, ELEMENTS};
    float *values = calloc(ROWS * ELEMENTS, sizeof *values);
    assert_non_null(values);
    eb_set_fixture_init(&fixture);
    eb_set_fixture_write_npy(&fixture, "a.npy", EB_STORAGE_F32, dims, values);
    eb_set_fixture_write_npy(&fixture, "b.npy", EB_STORAGE_F32, dims, values);
    free(values);
    eb_faults.madvise = advise;
    eb_set_fixture_load(&fixture, "", &set);
    tried_count = 0;
    joined_count = 0;
    pass = 1;
    memset(errors, 0, sizeof errors);
    allowed_count = CALLS_MAX;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_faults_disarm();
    eb_table_set_deinit(&set);
    eb_set_fixture_deinit(&fixture);
    return 0;
}

/* Runs a round of at most `pages` pages, and returns how many it has tried. A round with pages left
 * ends the pass. */
static unsigned run_pages(unsigned pages)
{
    struct eb_page_round round = {.pass = pass, .pages_left = pages, .go_on = go_on};
    unsigned before = tried_count;
    eb_page_collapse_run(&round, &set);
    pass += round.pages_left > 0;
    return tried_count - before;
}

/* Lets all calls fail. */
static void fail_all(int error)
{
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        errors[i] = error;
    }
}

static void counts_what_was_joined(void **state)
{
    (void)state;
    assert_int_equal(set.pages.bytes_2m, 0);
    assert_true(eb_page_collapse_is_due(&set));
    assert_int_equal(run_pages(100), 2 * TABLE_PAGES);
    if (joined_count == 0) {
        skip(); /* the kernel is older than 6.1, or has no huge pages */
    }
    struct eb_page_report report;
    assert_int_equal(eb_page_report_open(&report, ""), 0);
    eb_page_collapse_recount(&set, &report);
    eb_page_report_close(&report);
    /* The kernel may decline a page at times. */
    assert_int_equal(atomic_load(&set.bytes_2m), joined_count * EB_PAGE_2M_BYTES);
    assert_int_equal(atomic_load(&set.file_bytes_2m), 0);
    assert_int_equal(set.pages.bytes_2m, 0);
    assert_int_equal(eb_page_collapse_is_due(&set), joined_count < 2 * TABLE_PAGES);
}

static void is_not_due_where_pages_are_to_be_small_or_are_not_known(void **state)
{
    (void)state;
    set.memory.options.pages = EB_PAGE_SMALL;
    assert_false(eb_page_collapse_is_due(&set));
    set.memory.options.pages = EB_PAGE_1G;
    assert_true(eb_page_collapse_is_due(&set));
    set.pages_error = -EACCES;
    assert_false(eb_page_collapse_is_due(&set));
}

static void is_due_up_to_the_last_byte(void **state)
{
    (void)state;
    set.pages.bytes_1g = 4096;
    atomic_store(&set.bytes_2m, set.pages.bytes - 4097);
    assert_true(eb_page_collapse_is_due(&set));
    atomic_store(&set.bytes_2m, set.pages.bytes - 4096);
    assert_false(eb_page_collapse_is_due(&set));
}

static void the_next_round_begins_where_the_last_one_has_ended(void **state)
{
    (void)state;
    fail_all(EAGAIN);
    for (unsigned i = 0; i < 2 * TABLE_PAGES; i++) {
        assert_int_equal(run_pages(1), 1);
    }
    assert_ptr_equal((uint8_t *)tried[0] + EB_PAGE_2M_BYTES, tried[1]);
    assert_ptr_not_equal((uint8_t *)tried[1] + EB_PAGE_2M_BYTES, tried[2]);
    assert_ptr_equal((uint8_t *)tried[2] + EB_PAGE_2M_BYTES, tried[3]);
    assert_int_equal(run_pages(0), 0);
}

static void the_next_pass_begins_after_every_page_was_tried(void **state)
{
    (void)state;
    fail_all(EAGAIN);
    assert_int_equal(run_pages(3), 3);
    assert_int_equal(run_pages(2), 1);
    assert_int_equal(run_pages(2 * TABLE_PAGES + 1), 2 * TABLE_PAGES);
    for (unsigned i = 0; i < 2 * TABLE_PAGES; i++) {
        assert_ptr_equal(tried[i], tried[2 * TABLE_PAGES + i]);
    }
}

/* Pages that are huge already are tried too, so they must not use up every round. */
static void pages_that_were_joined_do_not_keep_rounds_from_the_others(void **state)
{
    (void)state;
    run_pages(TABLE_PAGES);
    run_pages(TABLE_PAGES);
    assert_int_equal(tried_count, 2 * TABLE_PAGES);
    for (unsigned i = 0; i < TABLE_PAGES; i++) {
        assert_ptr_not_equal(tried[i], tried[TABLE_PAGES]);
    }
}

static void notes_whether_a_page_was_joined(void **state)
{
    (void)state;
    struct eb_page_round round = {.pass = 1, .pages_left = 2, .go_on = go_on};
    fail_all(EAGAIN);
    eb_page_collapse_run(&round, &set);
    assert_false(round.has_joined);
    round.pages_left = 2;
    fail_all(0);
    eb_page_collapse_run(&round, &set);
    assert_int_equal(tried_count, 4);
    assert_int_equal(round.has_joined, joined_count > 0);
}

static void a_round_tries_each_page_once(void **state)
{
    (void)state;
    fail_all(EAGAIN);
    assert_int_equal(run_pages(100), 2 * TABLE_PAGES);
    for (unsigned i = 0; i < tried_count; i++) {
        for (unsigned k = 0; k < i; k++) {
            assert_ptr_not_equal(tried[i], tried[k]);
        }
    }
}

static void a_round_ends_where_no_page_is_to_be_had(void **state)
{
    (void)state;
    static const int short_errors[] = {ENOMEM, EBUSY};
    for (size_t i = 0; i < 2; i++) {
        fail_all(short_errors[i]);
        assert_int_equal(run_pages(100), 1);
    }
    assert_ptr_not_equal(tried[0], tried[1]);
}

static void a_round_passes_over_memory_that_the_kernel_cannot_join(void **state)
{
    (void)state;
    fail_all(EINVAL);
    assert_int_equal(run_pages(100), 2);
    tried_count = 0;
    fail_all(EAGAIN);
    errors[1] = EINVAL; /* a page in the middle does not count */
    assert_int_equal(run_pages(100), 2 * TABLE_PAGES);
}

static void a_round_ends_when_it_is_told_to(void **state)
{
    (void)state;
    fail_all(EAGAIN);
    allowed_count = 2;
    assert_int_equal(run_pages(100), 3);
}

EB_TEST_GROUP(page_collapse)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(counts_what_was_joined),
        TEST(is_not_due_where_pages_are_to_be_small_or_are_not_known),
        TEST(is_due_up_to_the_last_byte),
        TEST(the_next_round_begins_where_the_last_one_has_ended),
        TEST(the_next_pass_begins_after_every_page_was_tried),
        TEST(pages_that_were_joined_do_not_keep_rounds_from_the_others),
        TEST(notes_whether_a_page_was_joined),
        TEST(a_round_tries_each_page_once),
        TEST(a_round_ends_where_no_page_is_to_be_had),
        TEST(a_round_passes_over_memory_that_the_kernel_cannot_join),
        TEST(a_round_ends_when_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
