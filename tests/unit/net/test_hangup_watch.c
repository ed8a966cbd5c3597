#include "server/net/watchers.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PAIRS 600 /* more than one epoll_wait call reports */

struct fixture {
    uv_loop_t loop;
    struct eb_hangup_watch watch;
    int ours[PAIRS];
    int theirs[PAIRS];
    unsigned told[PAIRS];
    unsigned told_count;
};

static struct fixture *current; /* the fixture that on_hangup reports to */

static void on_hangup(void *connection)
{
    unsigned number = (unsigned)((int *)connection - current->ours);
    current->told[number]++;
    current->told_count++;
    eb_hangup_watch_forget(&current->watch, current->ours[number]);
}

static int set_up(void **state)
{
    struct fixture *fixture = test_calloc(1, sizeof *fixture);
    assert_int_equal(uv_loop_init(&fixture->loop), 0);
    assert_int_equal(eb_hangup_watch_open(&fixture->watch, &fixture->loop, on_hangup), 0);
    for (int i = 0; i < PAIRS; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        fixture->ours[i] = pair[0];
        fixture->theirs[i] = pair[1];
        assert_int_equal(
            eb_hangup_watch_add(&fixture->watch, fixture->ours[i], &fixture->ours[i]), 0);
    }
    current = fixture;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PAIRS; i++) {
        close(fixture->ours[i]);
        if (fixture->theirs[i] >= 0) {
            close(fixture->theirs[i]);
        }
    }
    eb_hangup_watch_close(&fixture->watch);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->loop), 0);
    test_free(fixture);
    return 0;
}

static void end_peer(struct fixture *fixture, int number)
{
    close(fixture->theirs[number]);
    fixture->theirs[number] = -1;
}

static void tells_of_ends_and_of_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(send(fixture->theirs[i], "unread", 6, 0), 6);
    }
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(fixture->told_count, 0);
    end_peer(fixture, 7);
    assert_int_equal(shutdown(fixture->theirs[9], SHUT_WR), 0);
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(fixture->told_count, 2);
    assert_int_equal(fixture->told[7], 1);
    assert_int_equal(fixture->told[9], 1);
}

static void tells_of_many_ends_once_each(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PAIRS; i++) {
        end_peer(fixture, i);
    }
    for (int i = 0; i < 10 && fixture->told_count < PAIRS; i++) {
        uv_run(&fixture->loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(fixture->told[i], 1);
    }
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(fixture->told_count, PAIRS);
}

static void says_nothing_of_what_is_forgotten_or_closed(void **state)
{
    struct fixture *fixture = *state;
    eb_hangup_watch_forget(&fixture->watch, fixture->ours[3]);
    end_peer(fixture, 3);
    close(fixture->ours[4]);
    fixture->ours[4] = dup(fixture->ours[5]); /* a descriptor for tear_down to close */
    end_peer(fixture, 4);
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(fixture->told_count, 0);
}

static void refuses_a_socket_that_it_has(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(
        eb_hangup_watch_add(&fixture->watch, fixture->ours[0], &fixture->ours[0]), UV_EEXIST);
}

EB_TEST_GROUP(hangup_watch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tells_of_ends_and_of_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tells_of_many_ends_once_each, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            says_nothing_of_what_is_forgotten_or_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_a_socket_that_it_has, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
