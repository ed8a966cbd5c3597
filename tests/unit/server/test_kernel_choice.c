#include "server/kernel_choice.h"

#include "kernels/bag_schedule.h"
#include "kernels/bag_tune.h"
#include "server/base/log.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Memory of the large table, keys included, as a multiple of the memory of its rows. */
#define BESIDE 3

/* Rows of one byte each. */
#define ROW .row_stride_bytes = 1, .row_elements = 1, .storage = EB_STORAGE_I8, .type = EB_I8

/* Two models. The large table of the second lies in read-only memory that was never written. Its
 * largest one is not in memory at all. */
static struct eb_named_table small_tables[] = {
    {.name = "small", .table = {.row_count = 1000, ROW}}};
static struct eb_named_table large_tables[] = {
    {.name = "little", .table = {.row_count = 2000, ROW}}, {.name = "large", .table = {ROW}},
    {.name = "tiny"},
    {.name = "remote", .is_remote = true, .table = {.row_count = INT64_MAX, ROW}}};
static struct eb_model_version versions[] = {
    {.model = "a", .version = 1, .tables = {.count = 1, .tables = small_tables}},
    {.model = "b", .version = 7, .tables = {.count = 4, .tables = large_tables}},
};
static struct eb_snapshot_model models[] = {
    {.served = &versions[0]}, {.served = NULL}, {.served = &versions[1]}};
static struct eb_snapshot snapshot = {.count = 3, .models = models};
static void *rows;
static struct eb_bag_schedules schedules;
static char said[16384];

static int map_rows(void **state)
{
    (void)state;
    rows = mmap(NULL, BESIDE * eb_bag_tune_bytes_min(), PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    large_tables[1].table.rows = rows;
    return rows == MAP_FAILED ? -1 : mprotect(rows, eb_bag_tune_bytes_min(), PROT_READ);
}

static int unmap_rows(void **state)
{
    (void)state;
    return munmap(rows, BESIDE * eb_bag_tune_bytes_min());
}

/* Sets the size of the large table's rows. The memory beside them, for example keys, must not be
 * read. */
static void set_row_bytes(uint64_t bytes)
{
    large_tables[1].table.row_count = bytes;
    large_tables[1].resident_bytes = BESIDE * bytes;
}

static void choose(const char *setting, const char *isa)
{
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    eb_kernel_choice_schedules(setting, eb_bag_ops_find(isa), &snapshot, &schedules);
    eb_capture_stop(&capture, said, sizeof said);
}

static void expect_said(const char *part)
{
    if (!strstr(said, part)) {
        fail_msg("wanted '%s' in: %s", part, said);
    }
}

static size_t count_said(const char *part)
{
    size_t count = 0;
    for (const char *at = said; (at = strstr(at, part)); at++) {
        count++;
    }
    return count;
}

/* Expects every class of rows to have its default, and the log to say why. */
static void expect_defaults(const char *reason)
{
    struct eb_bag_schedules defaults;
    char wanted[256];
    eb_bag_tune_find_defaults(&defaults);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char chosen[EB_BAG_SCHEDULE_TEXT_BYTES];
        char text[EB_BAG_SCHEDULE_TEXT_BYTES];
        eb_bag_schedule_format(&schedules.of_class[class], chosen);
        eb_bag_schedule_format(&defaults.of_class[class], text);
        assert_string_equal(chosen, text);
        snprintf(wanted, sizeof wanted, " schedule=%s measured=no reason=\"%s\"\n", text, reason);
        expect_said(wanted);
    }
    expect_said(" event=prefetch row_bytes=1..");
    expect_said(" event=prefetch_caches processor=");
    assert_int_equal(count_said("event=prefetch_caches"), 1);
    assert_int_equal(count_said("\n"), 1 + count_said("event=prefetch row_bytes="));
}

/* Expects every class of rows to have the schedule `text`. */
static void expect_chosen(const char *text)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char chosen[EB_BAG_SCHEDULE_TEXT_BYTES];
        eb_bag_schedule_format(&schedules.of_class[class], chosen);
        assert_string_equal(chosen, text);
    }
}

static void checks_the_setting(void **state)
{
    (void)state;
    struct eb_failure failure;
    assert_true(eb_kernel_choice_check_prefetch("auto", &failure));
    assert_true(eb_kernel_choice_check_prefetch("off", &failure));
    assert_true(eb_kernel_choice_check_prefetch("128:64:l2", &failure));
    assert_false(eb_kernel_choice_check_prefetch("Auto", &failure));
    assert_false(eb_kernel_choice_check_prefetch("", &failure));
}

static void takes_what_the_setting_says(void **state)
{
    (void)state;
    set_row_bytes(eb_bag_tune_bytes_min());
    choose("64w:4:l1", NULL);
    expect_chosen("64w:4:l1");
    struct eb_bag_schedules defaults;
    eb_bag_tune_find_defaults(&defaults);
    assert_int_equal(schedules.cached_bytes, defaults.cached_bytes);
    expect_said(" level=info event=prefetch row_bytes=1.. schedule=64w:4:l1 measured=no "
                "reason=\"set by the setting prefetch\"\n");
    choose("off", NULL);
    expect_chosen("off");
    assert_true(schedules.cached_bytes == UINT64_MAX);
    assert_true(schedules.nearby_bytes == UINT64_MAX);
    expect_said(" event=prefetch row_bytes=1.. schedule=off measured=no ");
    assert_int_equal(count_said("\n"), 1);
}

static void keeps_the_defaults_if_no_table_is_large(void **state)
{
    (void)state;
    char reason[128];
    snprintf(reason, sizeof reason, "the 32 largest tables have less than %llu bytes",
        (unsigned long long)eb_bag_tune_bytes_min());
    set_row_bytes(eb_bag_tune_bytes_min() - 1);
    choose(NULL, NULL);
    expect_defaults(reason);
    /* Now there is no table at all. */
    snapshot.count = 0;
    choose("auto", NULL);
    snapshot.count = 3;
    expect_defaults(reason);
}

static void keeps_the_defaults_if_nothing_prefetches_rows(void **state)
{
    (void)state;
    set_row_bytes(eb_bag_tune_bytes_min());
    choose(NULL, "ref");
    expect_defaults("the instruction set does not prefetch rows");
}

/* Classes that have the same default share a line of the log. */
static void logs_ranges_of_row_sizes(void **state)
{
    (void)state;
    static const char *const ends[] = {"64 ", "128 ", "256 ", "512 ", " "};
    set_row_bytes(0);
    choose(NULL, NULL);
    unsigned first = 1;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
        char next[EB_BAG_SCHEDULE_TEXT_BYTES] = "";
        char wanted[128];
        eb_bag_schedule_format(&schedules.of_class[class], schedule);
        if (class + 1 < EB_BAG_ROW_CLASS_COUNT) {
            eb_bag_schedule_format(&schedules.of_class[class + 1], next);
        }
        if (strcmp(schedule, next) != 0) {
            snprintf(wanted, sizeof wanted, " event=prefetch row_bytes=%u..%sschedule=%s ", first,
                ends[class], schedule);
            expect_said(wanted);
            first = ((unsigned)EB_LINE_BYTES << class) + 1;
        }
    }
}

/* On a busy machine a class may stay unmeasured. The log line of the class says so. */
static void measures_on_the_largest_table(void **state)
{
    (void)state;
    static const char *const classes[] = {"1..64", "65..128", "129..256", "257..512", "513.."};
    set_row_bytes(eb_bag_tune_bytes_min());
    choose(NULL, NULL);
    if (strstr(said, "the instruction set does not prefetch rows")) {
        skip();
    }
    expect_said(" event=prefetch_measured model=b version=7 table=large bytes=");
    expect_said(" tables=1 elapsed_ms=");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char chosen[EB_BAG_SCHEDULE_TEXT_BYTES];
        char wanted[128];
        eb_bag_schedule_format(&schedules.of_class[i], chosen);
        snprintf(wanted, sizeof wanted,
            " level=info event=prefetch row_bytes=%s schedule=%s measured=", classes[i], chosen);
        expect_said(wanted);
    }
    size_t measured = count_said(" measured=yes ns_per_row=");
    assert_int_equal(count_said(" of 7\" gain_percent=") + count_said(" of 6\" gain_percent=") +
                         count_said(" of 5\" gain_percent=") + count_said(" of 4\" gain_percent=") +
                         count_said(" of 3\" gain_percent="),
        measured);
    assert_int_equal(count_said(" default="), measured);
    assert_int_equal(count_said(" fastest="), measured);
    assert_int_equal(count_said(" led_in_rounds=\""), measured);
    assert_int_equal(count_said(" candidates=\""), measured);
    assert_int_equal(
        measured +
            count_said(" measured=no reason=\"fewer than 3 rounds could be measured in time\"\n"),
        EB_BAG_ROW_CLASS_COUNT);
}

/* ---- what an earlier start has measured ---- */

static void reads_what_it_has_written(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops = eb_bag_ops_find(NULL);
    struct eb_bag_schedules written = eb_bag_schedules_default;
    struct eb_bag_schedules read;
    char text[EB_KERNEL_CHOICE_TEXT_BYTES];
    assert_null(eb_bag_schedule_parse("17:5:l2", &written.of_class[1]));
    size_t size = eb_kernel_choice_write(ops, &written, text);
    assert_int_equal(size, strlen(text));
    struct eb_capture error;
    eb_capture_start(&error, STDERR_FILENO);
    bool is_good = eb_kernel_choice_read(ops, text, &read);
    eb_capture_stop(&error, said, sizeof said);
    assert_true(is_good);
    assert_memory_equal(read.of_class, written.of_class, sizeof read.of_class);
    assert_non_null(strstr(said, "measured by an earlier start"));
}

static void reads_nothing_that_is_cut_or_of_another_machine(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops = eb_bag_ops_find(NULL);
    struct eb_bag_schedules read;
    char text[EB_KERNEL_CHOICE_TEXT_BYTES];
    size_t size = eb_kernel_choice_write(ops, &eb_bag_schedules_default, text);
    for (size_t left = 0; left < size; left++) {
        char cut[EB_KERNEL_CHOICE_TEXT_BYTES] = "";
        memcpy(cut, text, left);
        assert_false(eb_kernel_choice_read(ops, cut, &read));
    }
    assert_false(eb_kernel_choice_read(eb_bag_ops_find("ref"), text, &read));
    text[size - 2] = 'x';
    assert_false(eb_kernel_choice_read(ops, text, &read));
}

EB_TEST_GROUP(kernel_choice)
{
    eb_log_set_level(EB_LOG_INFO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_the_setting),
        cmocka_unit_test(takes_what_the_setting_says),
        cmocka_unit_test(keeps_the_defaults_if_no_table_is_large),
        cmocka_unit_test(keeps_the_defaults_if_nothing_prefetches_rows),
        cmocka_unit_test(logs_ranges_of_row_sizes),
        cmocka_unit_test(measures_on_the_largest_table),
        cmocka_unit_test(reads_what_it_has_written),
        cmocka_unit_test(reads_nothing_that_is_cut_or_of_another_machine),
    };
    return cmocka_run_group_tests(tests, map_rows, unmap_rows);
}
