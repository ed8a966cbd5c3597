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
    assert_int_equal(schedules.nearby[0].far_rows, 64);
    assert_int_equal(schedules.cached_bytes, 12345);
    assert_int_equal(schedules.generic_cached_bytes, 12345);
    schedule = (struct eb_bag_schedule){0};
    eb_bag_schedule_spread(&schedule, &schedules);
    assert_int_equal(schedules.of_class[0].near_rows, 0);
    assert_true(schedules.cached_bytes == UINT64_MAX);
    assert_true(schedules.generic_cached_bytes == UINT64_MAX);
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

/* ---- the cache lines of rows ---- */

/* Nothing is read at this address. */
#define BASE (UINT64_C(1) << 40)

static struct eb_table table_at(
    uintptr_t address, enum eb_storage storage, uint32_t elements, uint64_t stride_bytes)
{
    return (struct eb_table){
        .rows = (const void *)address,
        .row_count = 1000,
        .row_stride_bytes = stride_bytes,
        .row_elements = elements,
        .storage = storage,
        .type = EB_F32,
        .unknown_row = -1,
    };
}

static void use_scales_at(struct eb_table *table, uintptr_t address, uint64_t stride_bytes)
{
    table->scales = (const void *)address;
    table->scale_stride_bytes = stride_bytes;
}

static void expect_lines(const struct eb_bag_lines *lines, uintptr_t first, uint32_t bytes,
    uint32_t count, bool is_compact)
{
    assert_int_equal(lines->first, first);
    assert_int_equal(lines->bytes, bytes);
    assert_int_equal(lines->count, count);
    assert_int_equal(lines->is_compact, is_compact);
}

static void finds_the_lines_of_whole_rows(void **state)
{
    (void)state;
    static const struct {
        uint32_t elements;
        uint32_t stride_bytes;
        uint32_t offset;
        uint32_t count;
        bool is_compact;
    } cases[] = {
        {16, 64, 0, 1, true},
        {16, 64, 32, 2, false},
        {16, 64, 1, 2, false},
        {1, 4, 0, 1, true},
        {1, 4, 1, 2, false},
        {12, 48, 0, 2, false},
        {26, 128, 0, 2, true},
        {25, 100, 0, 3, false},
        {25, 112, 0, 3, false},
        {24, 96, 0, 2, true},
        {24, 96, 16, 3, false},
        {32, 128, 0, 2, true},
        {32, 128, 60, 3, false},
        {32, 132, 0, 3, false},
        {100, 400, 0, 7, true},
        {100, 400, 8, 8, false},
        {1000, 4000, 0, 63, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uintptr_t base = BASE + cases[i].offset;
        struct eb_table table =
            table_at(base, EB_STORAGE_F32, cases[i].elements, cases[i].stride_bytes);
        struct eb_bag_lines lines = eb_bag_lines_find(&table, 0, cases[i].elements);
        expect_lines(&lines, base, cases[i].elements * 4, cases[i].count, cases[i].is_compact);
        assert_int_equal(lines.row_class, eb_bag_schedule_row_class(cases[i].elements * 4));
        assert_int_equal(lines.table_bytes, 1000 * cases[i].stride_bytes);
        assert_false(lines.has_scales_apart);
    }
}

/* Returns the most lines that any row touches. Rows begin at the same offsets in their lines after
 * 64 rows at the latest. */
static uint32_t count_touched(uintptr_t first, uint32_t bytes, uint64_t stride_bytes)
{
    uint64_t most = 0;
    for (uint64_t row = 0; row < EB_LINE_BYTES; row++) {
        uintptr_t begin = first + row * stride_bytes;
        uint64_t count = (begin + bytes - 1) / EB_LINE_BYTES - begin / EB_LINE_BYTES + 1;
        most = count > most ? count : most;
    }
    return (uint32_t)most;
}

static void expect_touched_lines(uint32_t bytes, uint32_t stride_bytes, uint32_t offset)
{
    struct eb_table table = table_at(BASE + offset, EB_STORAGE_F8_E4M3, bytes, stride_bytes);
    struct eb_bag_lines lines = eb_bag_lines_find(&table, 0, bytes);
    uint32_t touched = count_touched(BASE + offset, bytes, stride_bytes);
    uint32_t least = (bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES;
    assert_in_range(lines.count, touched, least + 1);
    assert_int_equal(lines.is_compact, lines.count == least);
    if (offset == 0) {
        assert_int_equal(lines.count, touched);
    }
}

static void counts_as_many_lines_as_rows_touch(void **state)
{
    (void)state;
    for (uint32_t bytes = 1; bytes <= 200; bytes++) {
        for (uint32_t stride = bytes; stride < bytes + 66; stride++) {
            for (uint32_t offset = 0; offset < 64; offset += 1 + offset / 8) {
                expect_touched_lines(bytes, stride, offset);
            }
        }
    }
}

static void counts_scales_before_rows(void **state)
{
    (void)state;
    struct eb_table table = table_at(BASE + 8, EB_STORAGE_INT8, 64, 72);
    use_scales_at(&table, BASE, 72);
    struct eb_bag_lines lines = eb_bag_lines_find(&table, 0, 64);
    expect_lines(&lines, BASE, 72, 2, true);
    assert_int_equal(lines.row_class, 0);
    assert_false(lines.has_scales_apart);
    table = table_at(BASE + 8, EB_STORAGE_INT8, 120, 128);
    use_scales_at(&table, BASE, 128);
    lines = eb_bag_lines_find(&table, 0, 120);
    expect_lines(&lines, BASE, 128, 2, true);
    table = table_at(BASE + 8, EB_STORAGE_INT4, 129, 76);
    use_scales_at(&table, BASE, 76);
    lines = eb_bag_lines_find(&table, 0, 129);
    expect_lines(&lines, BASE, 73, 3, true);
    /* The columns of this row fill one line, but it may lie in three. */
    table = table_at(BASE + 10, EB_STORAGE_INT8, 64, 74);
    use_scales_at(&table, BASE, 74);
    lines = eb_bag_lines_find(&table, 0, 64);
    expect_lines(&lines, BASE, 74, 3, false);
}

static void leaves_out_scales_apart(void **state)
{
    (void)state;
    static const struct {
        uintptr_t address;
        uint64_t stride_bytes;
        bool is_apart;
    } cases[] = {
        {BASE - (1 << 20), 8, true}, {BASE - 8, 72, false}, {BASE - 71, 72, false},
        {BASE - 72, 72, true},                      /* before the row before */
        {BASE - 8, 8, true}, {BASE + 64, 72, true}, /* behind the row */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_table table = table_at(BASE, EB_STORAGE_INT8, 64, 72);
        use_scales_at(&table, cases[i].address, cases[i].stride_bytes);
        struct eb_bag_lines lines = eb_bag_lines_find(&table, 0, 64);
        assert_int_equal(lines.has_scales_apart, cases[i].is_apart);
        if (cases[i].is_apart) {
            expect_lines(&lines, BASE, 64, 2, false);
        }
    }
}

static void finds_the_lines_of_columns(void **state)
{
    (void)state;
    struct eb_table table = table_at(BASE, EB_STORAGE_F32, 64, 256);
    struct eb_bag_lines lines = eb_bag_lines_find(&table, 16, 48);
    expect_lines(&lines, BASE + 64, 128, 2, true);
    assert_int_equal(lines.row_class, 2); /* that of whole rows */
    lines = eb_bag_lines_find(&table, 8, 32);
    expect_lines(&lines, BASE + 32, 96, 2, true);
    lines = eb_bag_lines_find(&table, 8, 33);
    expect_lines(&lines, BASE + 32, 100, 3, false);
    lines = eb_bag_lines_find(&table, 63, 64);
    expect_lines(&lines, BASE + 252, 4, 1, true);
    table = table_at(BASE + 8, EB_STORAGE_INT4, 65, 64);
    use_scales_at(&table, BASE, 64);
    lines = eb_bag_lines_find(&table, 0, 16);
    expect_lines(&lines, BASE, 16, 1, true);
    lines = eb_bag_lines_find(&table, 16, 32);
    expect_lines(&lines, BASE + 16, 8, 1, true);
    assert_false(lines.has_scales_apart);
    lines = eb_bag_lines_find(&table, 64, 65);
    expect_lines(&lines, BASE + 40, 1, 1, true);
    table.storage = EB_STORAGE_INT2;
    lines = eb_bag_lines_find(&table, 32, 65);
    expect_lines(&lines, BASE + 16, 9, 1, true);
}

static void finds_the_lines_of_huge_rows(void **state)
{
    (void)state;
    uint64_t row_bytes = UINT64_C(8) * UINT32_MAX;
    struct eb_table table = table_at(BASE, EB_STORAGE_F64, UINT32_MAX, row_bytes);
    struct eb_bag_lines lines = eb_bag_lines_find(&table, 0, UINT32_MAX);
    expect_lines(&lines, BASE, UINT32_MAX, (UINT32_C(1) << 29) + 1, false);
    assert_int_equal(lines.row_class, EB_BAG_ROW_CLASS_COUNT - 1);
    assert_int_equal(lines.table_bytes, 1000 * row_bytes);
    lines = eb_bag_lines_find(&table, UINT32_MAX - 1, UINT32_MAX);
    expect_lines(&lines, BASE + row_bytes - 8, 8, 1, true);
}

/* ---- the schedule of a table ---- */

static void finds_the_schedule_of_a_class(void **state)
{
    (void)state;
    struct eb_bag_schedules schedules = {.cached_bytes = 100, .nearby_bytes = 100};
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        struct eb_bag_lines lines = {.table_bytes = 101, .row_class = (uint8_t) class};
        assert_null(eb_bag_schedule_find(&schedules, &lines));
        schedules.of_class[class].far_rows = 1;
        assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.of_class[class]);
        schedules.of_class[class] = (struct eb_bag_schedule){.near_rows = 1};
        assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.of_class[class]);
        schedules.of_class[class] = (struct eb_bag_schedule){0, true, 0, true};
        assert_null(eb_bag_schedule_find(&schedules, &lines));
    }
}

static void finds_the_schedule_by_size_of_table(void **state)
{
    (void)state;
    struct eb_bag_schedules schedules = {.cached_bytes = 100, .nearby_bytes = 200};
    struct eb_bag_lines lines = {.table_bytes = 201, .row_class = 2};
    schedules.of_class[2].near_rows = 1;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.of_class[2]);
    lines.table_bytes = 200;
    assert_null(eb_bag_schedule_find(&schedules, &lines));
    schedules.nearby[2].near_rows = 1;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.nearby[2]);
    lines.table_bytes = 101;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.nearby[2]);
    lines.table_bytes = 100;
    assert_null(eb_bag_schedule_find(&schedules, &lines));
    schedules.nearby_bytes = 0; /* No table is nearby, and small ones are cached all the same. */
    assert_null(eb_bag_schedule_find(&schedules, &lines));
    lines.table_bytes = 101;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &lines), &schedules.of_class[2]);
    eb_bag_schedule_spread(&schedules.of_class[0], &schedules); /* off */
    lines.table_bytes = UINT64_MAX;
    assert_null(eb_bag_schedule_find(&schedules, &lines));
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
        cmocka_unit_test(finds_the_lines_of_whole_rows),
        cmocka_unit_test(counts_as_many_lines_as_rows_touch),
        cmocka_unit_test(counts_scales_before_rows),
        cmocka_unit_test(leaves_out_scales_apart),
        cmocka_unit_test(finds_the_lines_of_columns),
        cmocka_unit_test(finds_the_lines_of_huge_rows),
        cmocka_unit_test(finds_the_schedule_of_a_class),
        cmocka_unit_test(finds_the_schedule_by_size_of_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
