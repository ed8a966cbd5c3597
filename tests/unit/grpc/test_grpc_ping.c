/* Pings of both sides: which are allowed, and how a peer that sends too many is turned away. */
#include "tests/unit/grpc/peer_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CODE_ENHANCE_YOUR_CALM 11

static void allows_pings_that_come_with_calls_or_slowly(void **state)
{
    struct peer_fixture *fixture = *state;
    static const uint8_t message[] = {0, 0, 0, 0, 0};
    frames_open(&fixture->in);
    peer_fixture_deliver(fixture);
    for (uint32_t i = 0; i < 1500; i++) {
        frames_request(&fixture->in, 2 * i + 1, false, NULL);
        frames_data(&fixture->in, 2 * i + 1, true, message, sizeof message);
        for (int n = 0; n < 3; n++) {
            frames_head(&fixture->in, 8, FRAME_PING, 0, 0);
            frames_put(&fixture->in, "12345678", 8);
        }
        peer_fixture_deliver(fixture);
        host_write(&fixture->host);
    }
    for (int i = 0; i < 5000; i++) {
        fixture->host.now_ms += 1000;
        frames_head(&fixture->in, 8, FRAME_PING, 0, 0);
        frames_put(&fixture->in, "12345678", 8);
        peer_fixture_deliver(fixture);
        host_write(&fixture->host);
    }
    assert_false(fixture->host.is_over);
    assert_int_equal(fixture->host.message_count, 1500);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_PING, NULL), 9500);
}

/* Sends a ping. Returns whether the connection is still open. */
static bool send_ping(struct peer_fixture *fixture)
{
    frames_head(&fixture->in, 8, FRAME_PING, 0, 0);
    frames_put(&fixture->in, "12345678", 8);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    return !fixture->host.is_over;
}

static void turns_away_who_pings_too_often(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frame first = {0};
    size_t at = 0;
    fixture->host.limits.ping_interval_min_ms = 10;
    fixture->host.limits.ping_idle_interval_min_ms = 100;
    frames_open(&fixture->in);
    for (int i = 0; i < 20; i++) {
        assert_true(send_ping(fixture));
        fixture->host.now_ms += 100;
    }
    frames_request(&fixture->in, 1, false, NULL);
    for (int i = 0; i < 20; i++) {
        assert_true(send_ping(fixture));
        fixture->host.now_ms += 10;
    }
    assert_true(send_ping(fixture));
    fixture->host.now_ms += 9;
    assert_true(send_ping(fixture));
    assert_true(send_ping(fixture));
    assert_false(send_ping(fixture));
    while (first.type != FRAME_GOAWAY) {
        assert_true(frames_next(&fixture->host.sent, &at, &first));
    }
    assert_int_equal(first.length, 8 + 14);
    assert_memory_equal(first.payload + 8, "too_many_pings", 14);
    assert_int_equal(first.payload[7], CODE_ENHANCE_YOUR_CALM);
}

static void pings_a_peer_when_told_to(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frame last = {0};
    eb_grpc_server_ping(fixture->host.server);
    frames_open(&fixture->in);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_PING, NULL), 0);
    eb_grpc_server_ping(fixture->host.server);
    host_write(&fixture->host);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_PING, &last), 1);
    assert_int_equal(last.flags, 0);
    frames_head(&fixture->in, 8, FRAME_PING, FLAG_ACK, 0);
    frames_put(&fixture->in, last.payload, 8);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_PING, NULL), 1);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_GOAWAY, NULL), 0);
    assert_false(fixture->host.is_over);
}

#define WITH_FIXTURE(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, peer_fixture_set_up, peer_fixture_tear_down)

EB_TEST_GROUP(grpc_ping)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(allows_pings_that_come_with_calls_or_slowly),
        WITH_FIXTURE(turns_away_who_pings_too_often),
        WITH_FIXTURE(pings_a_peer_when_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
