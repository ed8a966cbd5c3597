/* How many calls may be in flight, depending on whether answers come in time or late. */
#include "proto/link/window.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

/* A server that computes one call after the other, behind a link. Only answers advance the time. */
struct model {
    uint64_t link_ns;   /* round-trip time */
    uint64_t answer_ns; /* computing time of a call */
};

static void answer(struct eb_window *window, uint64_t latency_ns, uint64_t left_ns, bool was_alone)
{
    struct eb_window_sample sample = {latency_ns, left_ns, was_alone};
    eb_window_answer(window, &sample);
}

/* Keeps the window full for `answers` answers. Returns how many of the last half were late. */
static uint32_t run_full(
    struct eb_window *window, const struct model *model, uint64_t timeout_ns, uint32_t answers)
{
    uint32_t late = 0;
    for (uint32_t i = 0; i < answers; i++) {
        bool is_alone = false;
        while (eb_window_has_room(window)) {
            is_alone = eb_window_send(window);
        }
        uint64_t queue_ns = window->sent_count * model->answer_ns;
        uint64_t latency_ns = model->link_ns > queue_ns ? model->link_ns : queue_ns;
        if (latency_ns <= timeout_ns) {
            answer(window, latency_ns, timeout_ns, is_alone);
        } else {
            eb_window_expire(window, false);
            late += i >= answers / 2;
        }
    }
    return late;
}

static void starts_with_some(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    for (int i = 0; i < EB_WINDOW_FIRST; i++) {
        assert_true(eb_window_has_room(&window));
        eb_window_send(&window);
    }
    assert_false(eb_window_has_room(&window));
    assert_true(eb_window_is_in_time(&window, 0));
}

/* The round trip takes a good part of the timeout. Many calls must be in flight, and none is
 * late. */
static void opens_for_a_long_way(void **state)
{
    (void)state;
    static const uint64_t timeouts_ns[] = {25 * MS, 60 * MS, 1000 * MS};
    struct model model = {.link_ns = 20 * MS, .answer_ns = 10000};
    for (size_t i = 0; i < sizeof timeouts_ns / sizeof timeouts_ns[0]; i++) {
        struct eb_window window;
        eb_window_init(&window);
        assert_int_equal(run_full(&window, &model, timeouts_ns[i], 100000), 0);
        assert_true(window.sent_count * model.answer_ns >= model.link_ns / 4 * 3);
    }
}

/* A call that was sent alone, however slow, does not keep the window closed. */
static void opens_again_from_one(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    for (int i = 0; i < 10 * EB_WINDOW_FIRST; i++) {
        eb_window_send(&window);
        eb_window_expire(&window, false);
    }
    assert_true(eb_window_has_room(&window));
    eb_window_send(&window);
    assert_false(eb_window_has_room(&window));
    answer(&window, 20 * MS, 60 * MS, true);
    struct model model = {.link_ns = 20 * MS, .answer_ns = 10000};
    assert_int_equal(run_full(&window, &model, 60 * MS, 10000), 0);
    assert_true(window.sent_count > 100);
}

static void keeps_a_full_server_in_time(void **state)
{
    (void)state;
    static const struct model models[] = {{100000, 25000}, {100000, 3 * MS}, {MS, 1000}};
    static const uint64_t timeouts_ns[] = {2 * MS, 100 * MS, 3 * MS};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct eb_window window;
        eb_window_init(&window);
        uint32_t late = run_full(&window, &models[i], timeouts_ns[i], 10000);
        assert_in_range(late, 0, 50);
        /* Calls in flight keep the server busy for most of a round trip. */
        assert_true(window.sent_count * models[i].answer_ns >= models[i].link_ns / 4 * 3);
    }
}

static void never_closes_for_good(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    struct model model = {.link_ns = MS, .answer_ns = MS};
    (void)run_full(&window, &model, MS / 2, 1000);
    while (window.sent_count > 0) {
        eb_window_drop(&window, true);
    }
    assert_true(eb_window_has_room(&window));
}

static void does_not_open_unused(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    for (int i = 0; i < 1000; i++) {
        answer(&window, MS, 100 * MS, eb_window_send(&window));
    }
    assert_int_equal(window.steps, EB_WINDOW_FIRST * EB_WINDOW_STEPS);
}

static void counts_late_answers_until_they_come(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    eb_window_send(&window);
    eb_window_send(&window);
    eb_window_send(&window);
    eb_window_expire(&window, true);
    eb_window_expire(&window, true);
    eb_window_drop(&window, false);
    assert_int_equal(window.sent_count, 2);
    assert_true(eb_window_settle_late(&window));
    assert_int_equal(window.sent_count, 1);
    eb_window_forget_late(&window);
    assert_int_equal(window.sent_count, 0);
    assert_false(eb_window_settle_late(&window));
}

static void tells_who_would_be_late(void **state)
{
    (void)state;
    struct eb_window window;
    eb_window_init(&window);
    for (int i = 0; i < 100; i++) {
        answer(&window, 4 * MS, 100 * MS, eb_window_send(&window));
    }
    assert_true(eb_window_is_in_time(&window, 5 * MS + 1000));
    assert_false(eb_window_is_in_time(&window, 4 * MS));
}

EB_TEST_GROUP(window)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_some),
        cmocka_unit_test(opens_for_a_long_way),
        cmocka_unit_test(opens_again_from_one),
        cmocka_unit_test(keeps_a_full_server_in_time),
        cmocka_unit_test(never_closes_for_good),
        cmocka_unit_test(does_not_open_unused),
        cmocka_unit_test(counts_late_answers_until_they_come),
        cmocka_unit_test(tells_who_would_be_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
