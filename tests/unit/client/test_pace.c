/* How fast answers come, and which call is in time behind others. */
#include "client/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define START_NS UINT64_C(5000000000)
#define ANSWER_NS 1000

/* So many answers, one every ANSWER_NS. */
static struct eb_pace run_evenly(uint32_t answers)
{
    struct eb_pace pace = {0};
    eb_pace_begin(&pace, START_NS);
    for (uint32_t i = 0; i < answers; i++) {
        eb_pace_answer(&pace, 0, START_NS + (i + UINT64_C(1)) * ANSWER_NS);
    }
    return pace;
}

static void lets_some_go_while_nothing_is_known(void **state)
{
    (void)state;
    const struct eb_pace pace = run_evenly(0);
    assert_true(eb_pace_is_in_time(&pace, 0, 0));
    assert_true(eb_pace_is_in_time(&pace, EB_PACE_UNKNOWN_MAX - 1, 0));
    assert_false(eb_pace_is_in_time(&pace, EB_PACE_UNKNOWN_MAX, UINT64_MAX));
}

static void lets_a_call_go_where_none_is_under_way(void **state)
{
    (void)state;
    const struct eb_pace pace = run_evenly(10);
    assert_true(eb_pace_is_in_time(&pace, 0, 0));
    assert_false(eb_pace_is_in_time(&pace, 1, 0));
}

static void wants_the_answer_within_half_of_what_is_left(void **state)
{
    (void)state;
    for (uint32_t answers = 1; answers < 3 * EB_PACE_ANSWERS_MIN; answers += 7) {
        const struct eb_pace pace = run_evenly(answers);
        assert_true(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 10 * ANSWER_NS));
        assert_false(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 10 * ANSWER_NS - EB_PACE_SPARE));
        assert_false(eb_pace_is_in_time(&pace, UINT32_MAX, 1000000 * ANSWER_NS));
    }
}

static void shares_the_time_of_answers_that_come_together(void **state)
{
    (void)state;
    for (uint32_t together = 1; together < 10 * EB_PACE_ANSWERS_MIN; together *= 3) {
        struct eb_pace pace = {0};
        eb_pace_begin(&pace, START_NS);
        for (uint32_t i = 0; i < 20 * together; i++) {
            eb_pace_answer(
                &pace, 0, START_NS + (i / together + UINT64_C(1)) * together * ANSWER_NS);
        }
        assert_true(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 11 * ANSWER_NS));
        assert_false(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 9 * ANSWER_NS));
    }
}

/* The last of many bursts is as quick as may be; the rests between them count as well. */
static void looks_back_as_far_as_ahead(void **state)
{
    (void)state;
    enum { BURST = 2 * EB_PACE_ANSWERS_MIN, UNDER_WAY = 10 * BURST };
    struct eb_pace pace = {0};
    uint64_t now_ns = START_NS;
    eb_pace_begin(&pace, now_ns);
    for (uint32_t i = 0; i < 8 * UNDER_WAY; i++) {
        now_ns += i % BURST == 0 ? BURST * ANSWER_NS : 1;
        eb_pace_answer(&pace, UNDER_WAY, now_ns);
    }
    assert_true(eb_pace_is_in_time(
        &pace, UNDER_WAY, (uint64_t)EB_PACE_SPARE * UNDER_WAY * ANSWER_NS / 10 * 11));
    assert_false(eb_pace_is_in_time(
        &pace, UNDER_WAY, (uint64_t)EB_PACE_SPARE * UNDER_WAY * ANSWER_NS / 10 * 9));
}

static void does_not_count_a_rest(void **state)
{
    (void)state;
    struct eb_pace pace = run_evenly(5);
    eb_pace_begin(&pace, 2 * START_NS);
    eb_pace_answer(&pace, 0, 2 * START_NS + ANSWER_NS);
    assert_true(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 10 * ANSWER_NS));
}

static void forgets_a_time_when_answers_were_slow(void **state)
{
    (void)state;
    struct eb_pace pace = run_evenly(1);
    uint64_t now_ns = START_NS + 1000000 * ANSWER_NS;
    eb_pace_answer(&pace, 0, now_ns);
    assert_false(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 10 * ANSWER_NS));
    for (int i = 0; i < 20 * EB_PACE_ANSWERS_MIN; i++) {
        now_ns += ANSWER_NS;
        eb_pace_answer(&pace, 0, now_ns);
    }
    assert_true(eb_pace_is_in_time(&pace, 9, EB_PACE_SPARE * 10 * ANSWER_NS + 100));
}

static void takes_a_clock_that_stands_still(void **state)
{
    (void)state;
    struct eb_pace pace = {0};
    eb_pace_begin(&pace, START_NS);
    eb_pace_answer(&pace, 0, START_NS - 1);
    assert_true(eb_pace_is_in_time(&pace, 1000, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lets_some_go_while_nothing_is_known),
        cmocka_unit_test(lets_a_call_go_where_none_is_under_way),
        cmocka_unit_test(wants_the_answer_within_half_of_what_is_left),
        cmocka_unit_test(shares_the_time_of_answers_that_come_together),
        cmocka_unit_test(looks_back_as_far_as_ahead),
        cmocka_unit_test(does_not_count_a_rest),
        cmocka_unit_test(forgets_a_time_when_answers_were_slow),
        cmocka_unit_test(takes_a_clock_that_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
