#include "client/completion_queue.h"

#include "tests/lib/test_group.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    return poll(&poller, 1, 0) == 1;
}

static void gives_what_was_pushed_in_order(void **state)
{
    (void)state;
    struct eb_completion_queue queue;
    struct eb_call calls[3] = {0};
    eb_completion_queue_init(&queue);
    assert_null(eb_completion_queue_pop(&queue, 0));
    for (int i = 0; i < 3; i++) {
        eb_completion_queue_push(&queue, &calls[i]);
    }
    /* The descriptor also reports calls that were pushed before it was opened. */
    int fd = eb_completion_queue_fd(&queue);
    for (int i = 0; i < 3; i++) {
        assert_true(is_readable(fd));
        assert_ptr_equal(eb_completion_queue_pop(&queue, i % 2 ? EMBAG_FOREVER : 0), &calls[i]);
    }
    assert_false(is_readable(fd));
    assert_null(eb_completion_queue_pop(&queue, 1000));
    eb_completion_queue_push(&queue, &calls[0]);
    assert_true(is_readable(fd));
    assert_ptr_equal(eb_completion_queue_drain(&queue), &calls[0]);
    assert_false(is_readable(fd));
    eb_completion_queue_deinit(&queue);
}

struct taker {
    struct eb_completion_queue *queue;
    struct eb_call *call;
};

static void take_one(void *context)
{
    struct taker *taker = context;
    taker->call = eb_completion_queue_pop(taker->queue, EMBAG_FOREVER);
}

static void wakes_a_thread_for_each_call(void **state)
{
    (void)state;
    struct eb_completion_queue queue;
    struct eb_call calls[2] = {0};
    struct taker takers[2] = {{.queue = &queue}, {.queue = &queue}};
    uv_thread_t threads[2];
    eb_completion_queue_init(&queue);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(uv_thread_create(&threads[i], take_one, &takers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        eb_completion_queue_push(&queue, &calls[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(uv_thread_join(&threads[i]), 0);
        assert_non_null(takers[i].call);
    }
    assert_ptr_not_equal(takers[0].call, takers[1].call);
    eb_completion_queue_deinit(&queue);
}

static void sends_everybody_away_when_closed(void **state)
{
    (void)state;
    struct eb_completion_queue queue;
    struct eb_call call = {0};
    struct taker taker = {.queue = &queue, .call = &call};
    uv_thread_t thread;
    eb_completion_queue_init(&queue);
    assert_int_equal(uv_thread_create(&thread, take_one, &taker), 0);
    eb_completion_queue_close(&queue);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_null(taker.call);
    eb_completion_queue_push(&queue, &call);
    assert_null(eb_completion_queue_pop(&queue, EMBAG_FOREVER));
    assert_ptr_equal(eb_completion_queue_drain(&queue), &call);
    assert_null(eb_completion_queue_drain(&queue));
    eb_completion_queue_deinit(&queue);
}

EB_TEST_GROUP(completion_queue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_what_was_pushed_in_order),
        cmocka_unit_test(wakes_a_thread_for_each_call),
        cmocka_unit_test(sends_everybody_away_when_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
