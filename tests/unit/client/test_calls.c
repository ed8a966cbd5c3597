#include "client/calls.h"

#include "proto/list.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct fixture {
    uv_loop_t loop;
    struct eb_mailbox mailbox;
    struct eb_calls calls;
    struct eb_error error;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    *state = &fixture;
    fixture = (struct fixture){0};
    return uv_loop_init(&fixture.loop) == 0 &&
                   eb_mailbox_open(&fixture.mailbox, &fixture.loop) == 0 &&
                   eb_calls_init(&fixture.calls, 2)
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_mailbox_close(&fixture->mailbox);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    eb_calls_deinit(&fixture->calls);
    return uv_loop_close(&fixture->loop);
}

static void never_gives_a_number_twice(void **state)
{
    struct fixture *fixture = *state;
    uint64_t last = 0;
    for (int i = 0; i < 1000; i++) {
        struct eb_call *call = eb_calls_take(&fixture->calls, 0, &fixture->error);
        assert_non_null(call);
        assert_true(call->id > last);
        assert_ptr_equal(eb_calls_find(&fixture->calls, call->id), call);
        assert_null(eb_calls_find(&fixture->calls, last));
        last = call->id;
        eb_calls_give(&fixture->calls, call);
        assert_null(eb_calls_find(&fixture->calls, last));
    }
    assert_null(eb_calls_find(&fixture->calls, UINT64_MAX));
}

static void says_why_there_is_no_record(void **state)
{
    struct fixture *fixture = *state;
    struct eb_call *first = eb_calls_take(&fixture->calls, 0, &fixture->error);
    struct eb_call *second = eb_calls_take(&fixture->calls, 0, &fixture->error);
    assert_null(eb_calls_take(&fixture->calls, 0, &fixture->error));
    assert_int_equal(fixture->error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_null(eb_calls_take(&fixture->calls, uv_hrtime() + 1000000, &fixture->error));
    assert_int_equal(fixture->error.status, EB_STATUS_DEADLINE_EXCEEDED);
    eb_calls_give(&fixture->calls, first);
    eb_calls_close(&fixture->calls);
    assert_null(eb_calls_take(&fixture->calls, UINT64_MAX, &fixture->error));
    assert_int_equal(fixture->error.status, EB_STATUS_CANCELLED);
    assert_false(eb_calls_post(&fixture->calls, &fixture->mailbox, &second->submit));
    eb_calls_give(&fixture->calls, second);
}

static void give_first(void *context)
{
    struct fixture *fixture = context;
    eb_calls_give(&fixture->calls, &fixture->calls.records[0]);
}

static void waits_for_a_record_that_is_given_back(void **state)
{
    struct fixture *fixture = *state;
    uv_thread_t thread;
    assert_ptr_equal(
        eb_calls_take(&fixture->calls, 0, &fixture->error), &fixture->calls.records[0]);
    struct eb_call *other = eb_calls_take(&fixture->calls, 0, &fixture->error);
    assert_int_equal(uv_thread_create(&thread, give_first, fixture), 0);
    struct eb_call *call = eb_calls_take(&fixture->calls, UINT64_MAX / 2, &fixture->error);
    assert_ptr_equal(call, &fixture->calls.records[0]);
    assert_int_equal(uv_thread_join(&thread), 0);
    eb_calls_give(&fixture->calls, call);
    eb_calls_give(&fixture->calls, other);
}

static struct eb_calls *reading;
static unsigned meant_count, read_count;

static void on_cancel(struct eb_mail *mail)
{
    read_count++;
    meant_count += eb_calls_on_cancel(reading, EB_CONTAINER_OF(mail, struct eb_call, cancel));
}

/* A record whose cancel mail is in flight must not be reused before the mail is delivered. */
static void keeps_a_record_until_its_mail_is_delivered(void **state)
{
    struct fixture *fixture = *state;
    reading = &fixture->calls;
    meant_count = 0;
    read_count = 0;
    struct eb_call *call = eb_calls_take(&fixture->calls, 0, &fixture->error);
    struct eb_call *other = eb_calls_take(&fixture->calls, 0, &fixture->error);
    call->cancel.deliver = on_cancel;
    eb_calls_post_cancel(&fixture->calls, &fixture->mailbox, call->id);
    eb_calls_post_cancel(&fixture->calls, &fixture->mailbox, call->id);
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(read_count, 1);
    assert_int_equal(meant_count, 1);
    eb_calls_post_cancel(&fixture->calls, &fixture->mailbox, call->id);
    eb_calls_give(&fixture->calls, call);
    assert_null(eb_calls_take(&fixture->calls, 0, &fixture->error));
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(read_count, 2);
    assert_int_equal(meant_count, 1);
    assert_ptr_equal(eb_calls_take(&fixture->calls, 0, &fixture->error), call);
    eb_calls_give(&fixture->calls, call);
    eb_calls_give(&fixture->calls, other);
}

EB_TEST_GROUP(calls)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(never_gives_a_number_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(says_why_there_is_no_record, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waits_for_a_record_that_is_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            keeps_a_record_until_its_mail_is_delivered, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
