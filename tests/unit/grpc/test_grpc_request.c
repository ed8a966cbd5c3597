/* Calls that expect one message and get it when the request ends. */
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/header_blocks.h"
#include "tests/unit/grpc/peer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *const one[2] = {":path", "/t/One"};
static const char *const later[2] = {":path", "/t/Later"};
static const uint8_t abc[] = {0, 0, 0, 0, 3, 'a', 'b', 'c'};

static void begin_request(
    struct peer_fixture *fixture, uint32_t stream_id, const char *const path[2])
{
    if (stream_id == 1) {
        frames_open(&fixture->in);
    }
    frames_request(&fixture->in, stream_id, false, path);
}

/* Adds a message of `size` zeros. */
static void add_zeros(struct peer_fixture *fixture, uint32_t stream_id, uint32_t size)
{
    static const uint8_t zeros[16000];
    const uint8_t prefix[] = {
        0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    frames_data(&fixture->in, stream_id, false, prefix, sizeof prefix);
    while (size > 0) {
        uint32_t piece = size < sizeof zeros ? size : sizeof zeros;
        frames_data(&fixture->in, stream_id, false, zeros, piece);
        size -= piece;
    }
}

static void end_request(struct peer_fixture *fixture, uint32_t stream_id)
{
    frames_data(&fixture->in, stream_id, true, NULL, 0);
    peer_fixture_deliver(fixture);
}

static void expect_status(
    struct peer_fixture *fixture, uint32_t stream_id, enum eb_status status, const char *text)
{
    host_write(&fixture->host);
    struct reply reply = header_blocks_read(&fixture->host.sent, stream_id);
    assert_int_equal(reply.grpc_status, status);
    if (text) {
        assert_string_equal(reply.message, text);
    }
}

static void delivers_the_message_with_the_end(void **state)
{
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, one);
    frames_data(&fixture->in, 1, false, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.request_count, 0);
    assert_int_equal(fixture->host.hold.bytes, 3);
    end_request(fixture, 1);
    assert_int_equal(fixture->host.request_count, 1);
    assert_int_equal(fixture->host.message_count, 0);
    assert_int_equal(fixture->host.end_count, 0);
    assert_int_equal(fixture->host.hold.bytes, 0);
    expect_status(fixture, 1, EB_STATUS_OK, NULL);
}

static void delivers_an_empty_message_too(void **state)
{
    static const uint8_t empty[5] = {0};
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, one);
    frames_data(&fixture->in, 1, true, empty, sizeof empty);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.request_count, 1);
    expect_status(fixture, 1, EB_STATUS_OK, NULL);
}

static void ends_a_call_without_a_message(void **state)
{
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, one);
    end_request(fixture, 1);
    assert_int_equal(fixture->host.request_count, 0);
    expect_status(
        fixture, 1, EB_STATUS_UNIMPLEMENTED, "the method takes one message, but the call has none");
}

static void ends_a_call_with_two_messages(void **state)
{
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, one);
    frames_data(&fixture->in, 1, false, abc, sizeof abc);
    frames_data(&fixture->in, 1, true, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.request_count, 0);
    assert_int_equal(fixture->host.hold.bytes, 0);
    expect_status(
        fixture, 1, EB_STATUS_UNIMPLEMENTED, "the method takes one message, but the call has more");
}

static void bounds_what_calls_hold_together(void **state)
{
    struct peer_fixture *fixture = *state;
    fixture->host.hold.bytes_max = 100;
    begin_request(fixture, 1, later);
    add_zeros(fixture, 1, 60);
    begin_request(fixture, 3, one);
    add_zeros(fixture, 3, 40);
    begin_request(fixture, 5, one);
    add_zeros(fixture, 5, 1);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.hold.bytes, 100);
    expect_status(fixture, 5, EB_STATUS_RESOURCE_EXHAUSTED,
        "too many bytes in messages of calls that the client has not ended");
    end_request(fixture, 3);
    assert_int_equal(fixture->host.hold.bytes, 60);
    expect_status(fixture, 3, EB_STATUS_OK, NULL);
}

static void holds_a_request_until_it_is_taken(void **state)
{
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, later);
    frames_data(&fixture->in, 1, true, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.request_count, 1);
    assert_int_equal(fixture->host.hold.bytes, 3);
    struct eb_grpc_message message = eb_grpc_call_take_message(fixture->host.call);
    assert_int_equal(fixture->host.hold.bytes, 0);
    assert_int_equal(message.size, 3);
    assert_memory_equal(message.bytes, "abc", 3);
    eb_grpc_message_give(&fixture->host.lender.memory, &message);
    eb_grpc_call_finish(fixture->host.call, EB_STATUS_OK, NULL, 0);
    expect_status(fixture, 1, EB_STATUS_OK, NULL);
}

static void gives_back_what_was_not_taken(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, 8};
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, later);
    frames_data(&fixture->in, 1, true, abc, sizeof abc);
    begin_request(fixture, 3, later);
    frames_data(&fixture->in, 3, false, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    eb_grpc_call_finish(fixture->host.older, EB_STATUS_UNAVAILABLE, NULL, 0);
    assert_int_equal(fixture->host.hold.bytes, 3);
    frames_head(&fixture->in, sizeof cancel, FRAME_RST_STREAM, 0, 3);
    frames_put(&fixture->in, cancel, sizeof cancel);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.hold.bytes, 0);
}

static void tick_at(struct peer_fixture *fixture, uint64_t passed_ms, uint64_t unread_ms)
{
    fixture->host.now_ms += passed_ms;
    eb_grpc_server_tick(fixture->host.server, fixture->host.now_ms, unread_ms);
}

static void ends_a_request_that_is_not_ended_in_time(void **state)
{
    struct peer_fixture *fixture = *state;
    uint64_t wait_ms = fixture->host.limits.message_stall_ms_max;
    begin_request(fixture, 1, one);
    frames_data(&fixture->in, 1, false, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    tick_at(fixture, wait_ms - 1, 0);
    assert_int_equal(fixture->host.hold.bytes, 3);
    tick_at(fixture, 1, 0);
    assert_int_equal(fixture->host.hold.bytes, 0);
    expect_status(fixture, 1, EB_STATUS_DEADLINE_EXCEEDED,
        "the client did not end the request in time after its message (message_timeout_ms)");
}

static void does_not_count_the_time_in_which_nothing_was_read(void **state)
{
    struct peer_fixture *fixture = *state;
    uint64_t wait_ms = fixture->host.limits.message_stall_ms_max;
    begin_request(fixture, 1, one);
    frames_data(&fixture->in, 1, false, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    tick_at(fixture, wait_ms, 1000);
    assert_int_equal(fixture->host.hold.bytes, 3);
    tick_at(fixture, 999, 0);
    assert_int_equal(fixture->host.hold.bytes, 3);
    tick_at(fixture, 1, 0);
    assert_int_equal(fixture->host.hold.bytes, 0);
}

static void waits_for_an_ended_request_as_long_as_it_takes(void **state)
{
    struct peer_fixture *fixture = *state;
    begin_request(fixture, 1, later);
    frames_data(&fixture->in, 1, true, abc, sizeof abc);
    peer_fixture_deliver(fixture);
    tick_at(fixture, 10 * (uint64_t)fixture->host.limits.message_stall_ms_max, 0);
    assert_int_equal(fixture->host.hold.bytes, 3);
    eb_grpc_call_finish(fixture->host.call, EB_STATUS_OK, NULL, 0);
}

static void tells_what_was_decompressed_before_the_end(void **state)
{
    static const char *const gzip[2] = {"grpc-encoding", "gzip"};
    static const uint8_t hello[] = {1, 0, 0, 0, 25, 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x86, 0xa6, 0x10, 0x36, 0x05, 0x00,
        0x00, 0x00};
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, gzip);
    peer_fixture_deliver(fixture);
    eb_grpc_call_expect_one(fixture->host.call, &fixture->host.hold);
    frames_data(&fixture->in, 1, false, hello, sizeof hello);
    peer_fixture_deliver(fixture);
    assert_int_equal(fixture->host.inflated_count, 1);
    assert_int_equal(fixture->host.request_count, 0);
    assert_int_equal(fixture->host.hold.bytes, 5);
}

EB_TEST_GROUP(grpc_request)
{
    static const struct CMUnitTest tests[] = {
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, peer_fixture_set_up, peer_fixture_tear_down)
        TEST(delivers_the_message_with_the_end),
        TEST(delivers_an_empty_message_too),
        TEST(ends_a_call_without_a_message),
        TEST(ends_a_call_with_two_messages),
        TEST(bounds_what_calls_hold_together),
        TEST(holds_a_request_until_it_is_taken),
        TEST(gives_back_what_was_not_taken),
        TEST(ends_a_request_that_is_not_ended_in_time),
        TEST(does_not_count_the_time_in_which_nothing_was_read),
        TEST(waits_for_an_ended_request_as_long_as_it_takes),
        TEST(tells_what_was_decompressed_before_the_end),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
