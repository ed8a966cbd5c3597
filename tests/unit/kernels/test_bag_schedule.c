#include "kernels/bag_schedule.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Expects the text to be parsed as this schedule, and the schedule to be written as the same
 * text. */
static void expect_schedule(const char *text, struct eb_bag_schedule expected)
{
    struct eb_bag_schedule schedule = {7, true, 7, true};
    char written[EB_BAG_SCHEDULE_TEXT_BYTES];
    const char *why = eb_bag_schedule_parse(text, &schedule);
    if (why) {
        fail_msg("%s: %s", text, why);
    }
    assert_int_equal(schedule.far_rows, expected.far_rows);
    assert_int_equal(schedule.far_is_whole, expected.far_is_whole);
    assert_int_equal(schedule.near_rows, expected.near_rows);
    assert_int_equal(schedule.near_is_l1, expected.near_is_l1);
    eb_bag_schedule_format(&schedule, written);
    assert_string_equal(written, text);
}

static void reads_what_it_writes(void **state)
{
    (void)state;
    expect_schedule("128:64:l2", (struct eb_bag_schedule){128, false, 64, false});
    expect_schedule("64w:4:l1", (struct eb_bag_schedule){64, true, 4, true});
    expect_schedule("0:16:l1", (struct eb_bag_schedule){0, false, 16, true});
    expect_schedule("32w:0:l2", (struct eb_bag_schedule){32, true, 0, false});
    expect_schedule("4096w:4095:l2", (struct eb_bag_schedule){4096, true, 4095, false});
    expect_schedule("0:4096:l2", (struct eb_bag_schedule){0, false, 4096, false});
    expect_schedule("off", (struct eb_bag_schedule){0});
}

static void writes_no_rows_as_off(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {7, true, 7, true};
    char written[EB_BAG_SCHEDULE_TEXT_BYTES];
    assert_null(eb_bag_schedule_parse("0:0:l1", &schedule));
    assert_true(eb_bag_schedule_is_off(&schedule));
    eb_bag_schedule_format(&schedule, written);
    assert_string_equal(written, "off");
}

static void writes_any_schedule_in_its_room(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {UINT16_MAX, true, UINT16_MAX, true};
    char written[EB_BAG_SCHEDULE_TEXT_BYTES];
    eb_bag_schedule_format(&schedule, written);
    assert_string_equal(written, "65535w:65535:l1");
}

static void expect_refused(const char *text, const char *part)
{
    struct eb_bag_schedule schedule = {7, true, 9, true};
    const char *why = eb_bag_schedule_parse(text, &schedule);
    if (!why || !strstr(why, part)) {
        fail_msg("%s: wanted '%s' in '%s'", text, part, why ? why : "no fault");
    }
    assert_int_equal(schedule.far_rows, 7);
    assert_int_equal(schedule.near_rows, 9);
}

static void refuses_what_has_not_its_form(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "auto", "OFF", "off ", "128", "128:", "128:64",
        "128:64:", "128:64:l", "128:64:l3", "128:64:L2", "128:64:l2 ", " 128:64:l2", ":64:l2",
        "128::l2", "-1:64:l2", "+1:0:l2", "128W:64:l2", "w:64:l2", "128ww:64:l2", "128:64w:l2",
        "128/64", "0x80:64:l2", "1.5:1:l2"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        expect_refused(texts[i], "expected off, FAR:NEAR:l1 or FAR:NEAR:l2, such as 128:64:l2");
    }
}

static void refuses_more_rows_than_its_most(void **state)
{
    (void)state;
    expect_refused("4097:64:l2", "at most 4096 rows");
    expect_refused("0:4097:l2", "at most 4096 rows");
    expect_refused("65536:0:l2", "at most 4096 rows");
    expect_refused("0:4294967360:l2", "at most 4096 rows");
    expect_refused("99999999999999999999999999:1:l1", "at most 4096 rows");
}

static void refuses_a_far_prefetch_that_is_not_ahead_of_the_near_one(void **state)
{
    (void)state;
    expect_refused("64:64:l2", "FAR must be greater than NEAR");
    expect_refused("4w:64:l1", "FAR must be greater than NEAR");
}

static void spreads_over_all_classes(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {64, true, 4, true};
    struct eb_bag_schedules schedules = eb_bag_schedules_default;
    schedules.cached_bytes = 12345;
    eb_bag_schedule_spread(&schedule, &schedules);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_int_equal(schedules.of_class[class].far_rows, 64);
        assert_true(schedules.of_class[class].near_is_l1);
    }
    assert_int_equal(schedules.nearby_bytes, 12345);
    assert_int_equal(schedules.nearby.far_rows, 64);
    assert_int_equal(schedules.cached_bytes, 12345);
    schedule = (struct eb_bag_schedule){0};
    eb_bag_schedule_spread(&schedule, &schedules);
    assert_int_equal(schedules.of_class[0].near_rows, 0);
    assert_true(schedules.cached_bytes == UINT64_MAX);
    assert_true(schedules.nearby_bytes == UINT64_MAX);
}

static void classes_rows_by_lines(void **state)
{
    (void)state;
    static const uint64_t most[] = {64, 128, 256, 512};
    assert_int_equal(eb_bag_schedule_row_class(1), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(eb_bag_schedule_row_class(most[i]), i);
        assert_int_equal(eb_bag_schedule_row_class(most[i] + 1), i + 1);
    }
    assert_int_equal(eb_bag_schedule_row_class(UINT64_MAX), 4);
}

EB_TEST_GROUP(bag_schedule)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_rows_by_lines),
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(writes_no_rows_as_off),
        cmocka_unit_test(writes_any_schedule_in_its_room),
        cmocka_unit_test(refuses_what_has_not_its_form),
        cmocka_unit_test(refuses_more_rows_than_its_most),
        cmocka_unit_test(refuses_a_far_prefetch_that_is_not_ahead_of_the_near_one),
        cmocka_unit_test(spreads_over_all_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
