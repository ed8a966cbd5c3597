#include "tests/unit/rpc/service_host.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
/* The size of a large answer. The bytes taken from the loop's pools show whether such answers
 * exist. */
#define LARGE_BAGS 100000
#define LARGE_BYTES (LARGE_BAGS * SERVICE_HOST_ROW_BYTES)

static const struct service_request large = {.id = 1, .bags = LARGE_BAGS};
static const struct service_request small = {.id = 2, .bags = 1};

/* A large unary call and a large request of a stream, both waiting for the executor. */
struct fixture {
    struct service_host host;
    struct wire_peer peer;
    struct service_call unary;
    struct service_call stream;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    service_host_init(&fixture->host);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    wire_peer_abandon(&fixture->peer);
    service_host_stop(&fixture->host);
    free(fixture);
    return 0;
}

static void start_large(struct fixture *fixture)
{
    service_host_start(&fixture->host);
    service_host_hold(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
    service_call_lookup(&fixture->peer, &fixture->unary, &large);
    service_call_open(&fixture->peer, &fixture->stream, STREAM, 0);
    service_call_write(&fixture->stream, &large, false);
    service_peer_settle(&fixture->peer);
}

/* Expects the memory of both answers to be still there, because the executor may write to it. */
static void expect_held(struct fixture *fixture)
{
    assert_true(loop_host_taken_bytes(&fixture->host.loops) >= UINT64_C(2) * LARGE_BYTES);
}

/* Expects the executor to return both lookups, their memory to be given back, and the loop to
 * continue serving. */
static void expect_given_back(struct fixture *fixture)
{
    struct service_call call;
    struct wire_peer peer;
    service_host_release(&fixture->host);
    assert_true(service_host_wait_taken(&fixture->host, LARGE_BYTES / 2));
    wire_peer_open(&peer, &fixture->host.address);
    service_call_lookup(&peer, &call, &small);
    service_call_expect_end(&peer, &call, EB_STATUS_OK);
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
}

static void cancel_both(struct fixture *fixture)
{
    eb_grpc_client_cancel(fixture->unary.wire.call);
    eb_grpc_client_cancel(fixture->stream.wire.call);
    wire_peer_send(&fixture->peer);
}

/* ---- calls that end before their lookups ---- */

static void keeps_what_a_cancelled_call_has_with_the_executor(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    cancel_both(fixture);
    service_peer_settle(&fixture->peer);
    expect_held(fixture);
    wire_peer_close(&fixture->peer);
    expect_given_back(fixture);
}

static void serves_on_where_a_call_was_cancelled(void **state)
{
    struct fixture *fixture = *state;
    struct service_call next;
    start_large(fixture);
    cancel_both(fixture);
    service_call_open(&fixture->peer, &next, STREAM, 0);
    service_call_write(&next, &large, true);
    service_peer_settle(&fixture->peer);
    expect_held(fixture);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &next, EB_STATUS_OK);
    assert_int_equal(next.count, 1);
    assert_int_equal(next.answers[0].values_bytes, LARGE_BYTES);
    assert_int_equal(fixture->unary.count + fixture->stream.count, 0);
    wire_peer_close(&fixture->peer);
}

static void keeps_what_a_closed_connection_has_with_the_executor(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_held(fixture);
    expect_given_back(fixture);
}

static void keeps_what_was_cancelled_and_then_closed(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    cancel_both(fixture);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_held(fixture);
    expect_given_back(fixture);
}

/* ---- drain ---- */

static void answers_what_it_has_read_while_it_drains(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    service_call_write(&fixture->stream, &small, false);
    service_peer_settle(&fixture->peer);
    service_host_drain(&fixture->host);
    assert_false(service_host_is_drained(&fixture->host));
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->unary, EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &fixture->stream, EB_STATUS_UNAVAILABLE);
    assert_int_equal(fixture->unary.count, 1);
    assert_int_equal(fixture->stream.count, 2);
    assert_int_equal(service_call_find(&fixture->stream, 1)->values_bytes, LARGE_BYTES);
    assert_int_equal(service_call_find(&fixture->stream, 2)->error_code, EB_STATUS_OK);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_drained(&fixture->host.loops, SERVICE_HOST_TIMEOUT_MS));
}

static void reads_no_stream_while_it_drains(void **state)
{
    struct fixture *fixture = *state;
    struct service_call late_stream;
    struct service_call late_unary;
    start_large(fixture);
    service_host_drain(&fixture->host);
    /* The peer has not received the drain notice yet. */
    service_call_write(&fixture->stream, &small, true);
    service_call_open(&fixture->peer, &late_stream, STREAM, 0);
    service_call_write(&late_stream, &small, true);
    service_call_lookup(&fixture->peer, &late_unary, &small);
    service_call_expect_end(&fixture->peer, &late_stream, EB_STATUS_UNAVAILABLE);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->unary, EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &late_unary, EB_STATUS_OK);
    /* The peer has ended its request, but the last message gets no answer. */
    service_call_expect_end(&fixture->peer, &fixture->stream, EB_STATUS_UNAVAILABLE);
    assert_int_equal(fixture->stream.count, 1);
    assert_int_equal(late_stream.count, 0);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_drained(&fixture->host.loops, SERVICE_HOST_TIMEOUT_MS));
}

static void ends_idle_streams_when_it_drains(void **state)
{
    struct fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    struct wire_peer peer;
    struct service_call call;
    service_host_start(host);
    wire_peer_open(&peer, &host->address);
    service_call_open(&peer, &call, STREAM, 0);
    service_peer_settle(&peer);
    service_host_drain(host);
    service_call_expect_end(&peer, &call, EB_STATUS_UNAVAILABLE);
    wire_peer_close(&peer);
    assert_true(loop_host_wait_drained(&host->loops, SERVICE_HOST_TIMEOUT_MS));
}

/* Both calls have ended during a drain. Expects the loop to stay until the executor has returned
 * their lookups, and no longer. */
static void expect_drained_when_given_back(struct fixture *fixture)
{
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_held(fixture);
    assert_false(service_host_is_drained(&fixture->host));
    service_host_release(&fixture->host);
    assert_true(loop_host_wait_drained(&fixture->host.loops, SERVICE_HOST_TIMEOUT_MS));
    assert_true(loop_host_taken_bytes(&fixture->host.loops) < LARGE_BYTES);
}

static void waits_for_cancelled_lookups_before_it_has_drained(void **state)
{
    struct fixture *fixture = *state;
    static const bool never;
    start_large(fixture);
    service_host_drain(&fixture->host);
    cancel_both(fixture);
    /* Runs until the server closes the connection, because it has no calls left. */
    assert_false(wire_peer_run(&fixture->peer, &never, SERVICE_HOST_TIMEOUT_MS));
    assert_true(fixture->peer.is_over);
    wire_peer_close(&fixture->peer);
    expect_drained_when_given_back(fixture);
}

static void waits_for_lookups_of_closed_connections_before_it_has_drained(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    service_host_drain(&fixture->host);
    wire_peer_close(&fixture->peer);
    expect_drained_when_given_back(fixture);
}

static void waits_for_lookups_of_connections_that_it_cuts(void **state)
{
    struct fixture *fixture = *state;
    start_large(fixture);
    service_host_drain(&fixture->host);
    loop_host_cut(&fixture->host.loops);
    expect_drained_when_given_back(fixture);
    wire_peer_close(&fixture->peer);
}

EB_TEST_GROUP(service_end)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(keeps_what_a_cancelled_call_has_with_the_executor),
        FIXTURE(serves_on_where_a_call_was_cancelled),
        FIXTURE(keeps_what_a_closed_connection_has_with_the_executor),
        FIXTURE(keeps_what_was_cancelled_and_then_closed),
        FIXTURE(answers_what_it_has_read_while_it_drains),
        FIXTURE(reads_no_stream_while_it_drains),
        FIXTURE(ends_idle_streams_when_it_drains),
        FIXTURE(waits_for_cancelled_lookups_before_it_has_drained),
        FIXTURE(waits_for_lookups_of_closed_connections_before_it_has_drained),
        FIXTURE(waits_for_lookups_of_connections_that_it_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
