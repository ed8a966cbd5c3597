#include "server/net/turn.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TURN_NS 1000
#define NOW_NS 5000000

static void is_over_when_its_time_is(void **state)
{
    (void)state;
    struct eb_turn turn;
    eb_turn_init(&turn, TURN_NS);
    assert_false(eb_turn_look(&turn, NOW_NS));
    assert_false(eb_turn_look(&turn, NOW_NS + TURN_NS - 1));
    assert_true(eb_turn_look(&turn, NOW_NS + TURN_NS));
    eb_turn_leave(&turn);
    assert_true(eb_turn_look(&turn, NOW_NS + TURN_NS));
}

static void does_not_count_what_others_do(void **state)
{
    (void)state;
    struct eb_turn turn;
    uint64_t now_ns = NOW_NS;
    eb_turn_init(&turn, TURN_NS);
    for (int i = 0; i < 4; i++) {
        assert_false(eb_turn_look(&turn, now_ns));
        bool is_over = eb_turn_look(&turn, now_ns + TURN_NS / 4);
        assert_int_equal(is_over, i == 3);
        eb_turn_leave(&turn);
        now_ns += 100 * TURN_NS;
    }
}

static void begins_anew_when_renewed(void **state)
{
    (void)state;
    struct eb_turn turn;
    eb_turn_init(&turn, TURN_NS);
    (void)eb_turn_look(&turn, NOW_NS);
    assert_true(eb_turn_look(&turn, NOW_NS + TURN_NS));
    eb_turn_renew(&turn);
    assert_false(turn.is_over);
    assert_false(eb_turn_look(&turn, NOW_NS + 2 * TURN_NS));
    assert_true(eb_turn_look(&turn, NOW_NS + 3 * TURN_NS));
}

/* Whether a turn that is entered is not over after the time that it has beside others. */
static bool is_long(struct eb_turn *turn, struct eb_turn_reader *reader, uint64_t now_ns)
{
    eb_turn_renew(turn);
    eb_turn_enter(turn, reader, now_ns);
    assert_false(eb_turn_look(turn, now_ns));
    assert_true(eb_turn_look(turn, now_ns + 2 * TURN_NS));
    eb_turn_renew(turn);
    assert_false(eb_turn_look(turn, now_ns));
    return !eb_turn_look(turn, now_ns + 2 * TURN_NS - 1);
}

static void is_twice_as_long_for_one_that_is_alone(void **state)
{
    (void)state;
    const uint64_t later_ns = NOW_NS + EB_TURN_ALONE_NS;
    struct eb_turn_reader reader = {NULL, 0};
    struct eb_turn turn;
    struct eb_turn other;
    eb_turn_init(&turn, TURN_NS);
    eb_turn_init(&other, TURN_NS);
    assert_false(is_long(&turn, &reader, NOW_NS));
    assert_false(is_long(&turn, &reader, later_ns - 1));
    assert_true(is_long(&turn, &reader, later_ns));
    assert_false(is_long(&other, &reader, later_ns));
    assert_false(is_long(&turn, &reader, later_ns + 1));
    assert_false(is_long(&turn, &reader, later_ns + EB_TURN_ALONE_NS));
    assert_true(is_long(&turn, &reader, later_ns + 1 + EB_TURN_ALONE_NS));
}

static void is_longer_inside_a_message(void **state)
{
    (void)state;
    struct eb_turn turn;
    eb_turn_init(&turn, TURN_NS);
    turn.is_inside = true;
    assert_false(eb_turn_look(&turn, NOW_NS));
    assert_false(eb_turn_look(&turn, NOW_NS + EB_TURN_INSIDE * TURN_NS - 1));
    turn.is_inside = false;
    assert_true(eb_turn_look(&turn, NOW_NS + EB_TURN_INSIDE * TURN_NS - 1));
    eb_turn_renew(&turn);
    turn.is_inside = true;
    assert_false(eb_turn_look(&turn, NOW_NS));
    assert_true(eb_turn_look(&turn, NOW_NS + EB_TURN_INSIDE * TURN_NS));
}

/* One read of a turn, which took so long. */
static void read_once(struct eb_turn *turn, uint64_t taken_ns, bool is_full)
{
    (void)eb_turn_look(turn, NOW_NS);
    (void)eb_turn_look(turn, NOW_NS + taken_ns);
    eb_turn_adapt(turn, is_full);
    eb_turn_renew(turn);
}

static void asks_for_more_where_reading_is_quick(void **state)
{
    (void)state;
    struct eb_turn turn;
    eb_turn_init(&turn, TURN_NS);
    read_once(&turn, 1, false);
    assert_int_equal(turn.read_bytes, EB_TURN_READ_FIRST);
    read_once(&turn, TURN_NS / 2, true);
    assert_int_equal(turn.read_bytes, EB_TURN_READ_FIRST);
    read_once(&turn, 1, true);
    assert_int_equal(turn.read_bytes, 2 * EB_TURN_READ_FIRST);
    for (int i = 0; i < 100; i++) {
        read_once(&turn, 1, true);
    }
    assert_int_equal(turn.read_bytes, EB_TURN_READ_MAX);
}

static void asks_for_less_where_it_takes_a_turn(void **state)
{
    (void)state;
    struct eb_turn turn;
    eb_turn_init(&turn, TURN_NS);
    read_once(&turn, TURN_NS, false);
    assert_int_equal(turn.read_bytes, EB_TURN_READ_FIRST / 2);
    for (int i = 0; i < 100; i++) {
        read_once(&turn, TURN_NS, true);
    }
    assert_int_equal(turn.read_bytes, EB_TURN_READ_MIN);
}

EB_TEST_GROUP(turn)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_over_when_its_time_is),
        cmocka_unit_test(does_not_count_what_others_do),
        cmocka_unit_test(begins_anew_when_renewed),
        cmocka_unit_test(is_twice_as_long_for_one_that_is_alone),
        cmocka_unit_test(is_longer_inside_a_message),
        cmocka_unit_test(asks_for_more_where_reading_is_quick),
        cmocka_unit_test(asks_for_less_where_it_takes_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
