/* Tests which lookups are sent, and when: many to a distant server, few to a slow server, and batch
 * lookups last. */
#include "tests/unit/client/client_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How the lookups of a burst ended. */
struct burst_counts {
    int answered;
    int late;
    int lost; /* the connection was lost too shortly before the deadline to send them again */
};

/* Submits `count` lookups at once, and expects no other ends than the three. */
static struct burst_counts run_any_burst(
    struct client_fixture *fixture, const char *model, int count, uint64_t timeout_us)
{
    struct burst_counts counts = {0};
    struct embag_request request = {.model = model, .timeout_us = timeout_us};
    for (int i = 0; i < count; i++) {
        assert_int_equal(embag_submit(fixture->client, &request, NULL, NULL, NULL), EMBAG_OK);
    }
    for (int i = 0; i < count; i++) {
        struct embag_completion completion;
        assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        counts.answered += completion.error.status == EMBAG_OK;
        counts.late += completion.error.status == EMBAG_DEADLINE_EXCEEDED;
        counts.lost += completion.error.status == EMBAG_UNAVAILABLE;
        embag_answer_free(completion.answer);
    }
    assert_int_equal(counts.answered + counts.late + counts.lost, count);
    return counts;
}

/* As above, for a connection that is not lost. Returns how many were answered in time. */
static int run_burst(
    struct client_fixture *fixture, const char *model, int count, uint64_t timeout_us)
{
    struct burst_counts counts = run_any_burst(fixture, model, count, timeout_us);
    assert_int_equal(counts.lost, 0);
    return counts.answered;
}

/* Repeatedly submits more lookups at once than a slow server answers in time. */
static void sends_no_more_than_is_answered_in_time(void **state)
{
    (void)state;
    enum { BURSTS = 10, BURST = 40, IN_TIME = 4 };
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    unsigned before = 0;
    for (int i = 0; i < BURSTS; i++) {
        before = atomic_load(&fixture->server.call_count);
        (void)run_burst(fixture, "slow", BURST, IN_TIME * FAKE_SERVER_SLOW_MS * 1000);
        /* The server answers this after all lookups that were sent. */
        assert_int_equal(client_fixture_run(fixture, "echo").error.status, EMBAG_OK);
    }
    assert_in_range(atomic_load(&fixture->server.call_count) - before, 1, BURST / 2);
    client_fixture_close(fixture);
}

/* Expects most lookups to be answered in at least one round, although the way to the server takes a
 * third of their timeout. Other load on the machine may spoil the other rounds. */
static void assert_most_are_answered(enum fake_server_mode server_mode, uint32_t connections)
{
    enum { ROUNDS = 50, BURST = 20 };
    int most = 0;
    struct client_fixture *fixture =
        client_fixture_open_of(server_mode, (struct embag_options){.connections = connections});
    for (int i = 0; i < ROUNDS && most <= BURST / 2; i++) {
        int answered = run_burst(fixture, "echo", BURST, 3 * FAKE_SERVER_WAY_MS * 1000);
        most = answered > most ? answered : most;
    }
    assert_in_range(most, BURST / 2 + 1, BURST);
    client_fixture_close(fixture);
}

static void fills_a_long_way(void **state)
{
    (void)state;
    assert_most_are_answered(FAKE_SERVER_IS_FAR, 1);
}

static void leaves_a_connection_that_does_not_answer(void **state)
{
    (void)state;
    assert_most_are_answered(FAKE_SERVER_IS_HALF_MUTE, 2);
}

/* If the server is there but never answers on a connection, the client tries another connection. */
static void gives_a_silent_connection_up(void **state)
{
    (void)state;
    struct client_fixture *fixture =
        client_fixture_open_of(FAKE_SERVER_IS_HALF_MUTE, (struct embag_options){0});
    uint64_t patience_ns = uv_hrtime() + UINT64_C(2000) * CLIENT_FIXTURE_PATIENCE_US;
    while (atomic_load(&fixture->server.conn_count) < 2 && uv_hrtime() < patience_ns) {
        (void)run_any_burst(fixture, "echo", 100, 20000);
    }
    assert_true(atomic_load(&fixture->server.conn_count) >= 2);
    assert_int_equal(client_fixture_run(fixture, "echo").error.status, EMBAG_OK);
    client_fixture_close(fixture);
}

static enum embag_status submit_with_priority(
    struct client_fixture *fixture, const char *model, enum embag_priority priority, void *context)
{
    struct embag_request request = {.model = model, .priority = priority};
    struct embag_call how = {.context = context};
    return embag_submit(fixture->client, &request, &how, NULL, NULL);
}

static void sends_interactive_lookups_before_batch_ones(void **state)
{
    (void)state;
    enum { BATCH = 160, SENT_AT_ONCE = 64 };
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion = {0};
    int mark = 0;
    int before = 0;
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(
            submit_with_priority(fixture, i < SENT_AT_ONCE ? "slow" : "echo", EMBAG_BATCH, NULL),
            EMBAG_OK);
    }
    assert_int_equal(submit_with_priority(fixture, "echo", EMBAG_INTERACTIVE, &mark), EMBAG_OK);
    for (int i = 0; i <= BATCH; i++) {
        assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        assert_int_equal(completion.error.status, EMBAG_OK);
        embag_answer_free(completion.answer);
        before += completion.context == &mark ? BATCH - i : 0;
    }
    /* `before` batch lookups were answered after the interactive one. */
    assert_in_range(before, 1, BATCH);
    client_fixture_close(fixture);
}

/* The server receives all lookups, although it answers none. */
static void sends_everything_at_once_where_told_so(void **state)
{
    (void)state;
    enum { BURST = 200 };
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.unpaced = true});
    for (int i = 0; i < BURST; i++) {
        assert_int_equal(client_fixture_submit(fixture, "silent", i, NULL, NULL), EMBAG_OK);
    }
    client_fixture_await(&fixture->server.call_count, BURST);
    client_fixture_close(fixture);
}

EB_TEST_GROUP(pacing)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_no_more_than_is_answered_in_time),
        cmocka_unit_test(fills_a_long_way),
        cmocka_unit_test(leaves_a_connection_that_does_not_answer),
        cmocka_unit_test(gives_a_silent_connection_up),
        cmocka_unit_test(sends_interactive_lookups_before_batch_ones),
        cmocka_unit_test(sends_everything_at_once_where_told_so),
    };
    client_mode = EMBAG_MODE_STREAM;
    int failed = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    client_mode = EMBAG_MODE_UNARY;
    return failed + cmocka_run_group_tests_name("unary", tests, NULL, NULL);
}
