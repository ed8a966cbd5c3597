#include "server/net/time_slice.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SLICE_NS 1000
#define NOW_NS 5000000

static void is_over_when_its_time_is(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    eb_time_slice_init(&slice, SLICE_NS);
    assert_false(eb_time_slice_look(&slice, NOW_NS));
    assert_false(eb_time_slice_look(&slice, NOW_NS + SLICE_NS - 1));
    assert_true(eb_time_slice_look(&slice, NOW_NS + SLICE_NS));
    eb_time_slice_leave(&slice);
    assert_true(eb_time_slice_look(&slice, NOW_NS + SLICE_NS));
}

static void does_not_count_what_others_do(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    uint64_t now_ns = NOW_NS;
    eb_time_slice_init(&slice, SLICE_NS);
    for (int i = 0; i < 4; i++) {
        assert_false(eb_time_slice_look(&slice, now_ns));
        bool is_over = eb_time_slice_look(&slice, now_ns + SLICE_NS / 4);
        assert_int_equal(is_over, i == 3);
        eb_time_slice_leave(&slice);
        now_ns += 100 * SLICE_NS;
    }
}

static void begins_anew_when_renewed(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    eb_time_slice_init(&slice, SLICE_NS);
    (void)eb_time_slice_look(&slice, NOW_NS);
    assert_true(eb_time_slice_look(&slice, NOW_NS + SLICE_NS));
    eb_time_slice_renew(&slice);
    assert_false(slice.is_over);
    assert_false(eb_time_slice_look(&slice, NOW_NS + 2 * SLICE_NS));
    assert_true(eb_time_slice_look(&slice, NOW_NS + 3 * SLICE_NS));
}

/* Returns whether an entered slice lasts longer than it would beside other connections. */
static bool is_long(
    struct eb_time_slice *slice, struct eb_time_slice_reader *reader, uint64_t now_ns)
{
    eb_time_slice_renew(slice);
    eb_time_slice_enter(slice, reader, now_ns);
    assert_false(eb_time_slice_look(slice, now_ns));
    assert_true(eb_time_slice_look(slice, now_ns + 2 * SLICE_NS));
    eb_time_slice_renew(slice);
    assert_false(eb_time_slice_look(slice, now_ns));
    return !eb_time_slice_look(slice, now_ns + 2 * SLICE_NS - 1);
}

static void is_twice_as_long_for_one_that_is_alone(void **state)
{
    (void)state;
    uint64_t later_ns = NOW_NS + EB_TIME_SLICE_ALONE_NS;
    struct eb_time_slice_reader reader = {NULL, 0};
    struct eb_time_slice slice;
    struct eb_time_slice other;
    eb_time_slice_init(&slice, SLICE_NS);
    eb_time_slice_init(&other, SLICE_NS);
    assert_false(is_long(&slice, &reader, NOW_NS));
    assert_false(is_long(&slice, &reader, later_ns - 1));
    assert_true(is_long(&slice, &reader, later_ns));
    assert_false(is_long(&other, &reader, later_ns));
    assert_false(is_long(&slice, &reader, later_ns + 1));
    assert_false(is_long(&slice, &reader, later_ns + EB_TIME_SLICE_ALONE_NS));
    assert_true(is_long(&slice, &reader, later_ns + 1 + EB_TIME_SLICE_ALONE_NS));
}

static void is_longer_inside_a_message(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    eb_time_slice_init(&slice, SLICE_NS);
    slice.is_inside = true;
    assert_false(eb_time_slice_look(&slice, NOW_NS));
    assert_false(eb_time_slice_look(&slice, NOW_NS + EB_TIME_SLICE_INSIDE * SLICE_NS - 1));
    slice.is_inside = false;
    assert_true(eb_time_slice_look(&slice, NOW_NS + EB_TIME_SLICE_INSIDE * SLICE_NS - 1));
    eb_time_slice_renew(&slice);
    slice.is_inside = true;
    assert_false(eb_time_slice_look(&slice, NOW_NS));
    assert_true(eb_time_slice_look(&slice, NOW_NS + EB_TIME_SLICE_INSIDE * SLICE_NS));
}

/* Makes one read that takes `taken_ns` within a slice. */
static void read_once(struct eb_time_slice *slice, uint64_t taken_ns, bool is_full)
{
    (void)eb_time_slice_look(slice, NOW_NS);
    (void)eb_time_slice_look(slice, NOW_NS + taken_ns);
    eb_time_slice_adapt(slice, is_full);
    eb_time_slice_renew(slice);
}

static void asks_for_more_where_reading_is_quick(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    eb_time_slice_init(&slice, SLICE_NS);
    read_once(&slice, 1, false);
    assert_int_equal(slice.read_bytes, EB_TIME_SLICE_READ_FIRST);
    read_once(&slice, SLICE_NS / 2, true);
    assert_int_equal(slice.read_bytes, EB_TIME_SLICE_READ_FIRST);
    read_once(&slice, 1, true);
    assert_int_equal(slice.read_bytes, 2 * EB_TIME_SLICE_READ_FIRST);
    for (int i = 0; i < 100; i++) {
        read_once(&slice, 1, true);
    }
    assert_int_equal(slice.read_bytes, EB_TIME_SLICE_READ_MAX);
}

static void asks_for_less_where_it_takes_a_slice(void **state)
{
    (void)state;
    struct eb_time_slice slice;
    eb_time_slice_init(&slice, SLICE_NS);
    read_once(&slice, SLICE_NS, false);
    assert_int_equal(slice.read_bytes, EB_TIME_SLICE_READ_FIRST / 2);
    for (int i = 0; i < 100; i++) {
        read_once(&slice, SLICE_NS, true);
    }
    assert_int_equal(slice.read_bytes, EB_TIME_SLICE_READ_MIN);
}

EB_TEST_GROUP(time_slice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_over_when_its_time_is),
        cmocka_unit_test(does_not_count_what_others_do),
        cmocka_unit_test(begins_anew_when_renewed),
        cmocka_unit_test(is_twice_as_long_for_one_that_is_alone),
        cmocka_unit_test(is_longer_inside_a_message),
        cmocka_unit_test(asks_for_more_where_reading_is_quick),
        cmocka_unit_test(asks_for_less_where_it_takes_a_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
