/* Header blocks that are small on the wire and large once decompressed. A connection that sends
 * such blocks ends before they have cost much. A single block that is too large does not end the
 * connection. */
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/header_blocks.h"
#include "tests/unit/grpc/peer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CODE_ENHANCE_YOUR_CALM 11
#define LARGE_BYTES 4000 /* of the value in the dynamic table, which has room for 4 096 */
#define LARGE_NAME "x-large"
#define BLOCKS_MAX 1500

/* Adds the fields of a call to /t/Echo. */
static void put_usual(struct frames *block)
{
    frames_field(block, ":method", "POST");
    frames_field(block, ":scheme", "http");
    frames_field(block, ":path", "/t/Echo");
    frames_field(block, ":authority", "t");
    frames_field(block, "content-type", "application/grpc");
}

static void send_block(
    struct peer_fixture *fixture, uint32_t stream_id, bool ends, const struct frames *block)
{
    frames_head(&fixture->in, block->size, FRAME_HEADERS,
        (uint8_t)(FLAG_END_HEADERS | (ends ? FLAG_END_STREAM : 0)), stream_id);
    frames_put(&fixture->in, block->bytes, block->size);
    peer_fixture_deliver(fixture);
}

/* Opens the connection and acknowledges the server's settings, which above all allow larger
 * frames. */
static void open_connection(struct peer_fixture *fixture)
{
    frames_open(&fixture->in);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    frames_head(&fixture->in, 0, FRAME_SETTINGS, FLAG_ACK, 0);
}

/* Opens the connection and begins a call on stream 1 that puts the large field into the dynamic
 * table. The field's value ends with `last`. */
static void open_with_large(struct peer_fixture *fixture, bool ends, char last)
{
    struct frames block = {0};
    open_connection(fixture);
    put_usual(&block);
    frames_large_field(&block, 0x40, LARGE_NAME, LARGE_BYTES, last);
    send_block(fixture, 1, ends, &block);
    frames_deinit(&block);
}

/* Makes a call that refers to the large field `times` times. If `bytes` is not 0, the call also has
 * a field of that size outside the table. */
static void call_with_large(
    struct peer_fixture *fixture, uint32_t stream_id, size_t times, size_t bytes)
{
    struct frames block = {0};
    put_usual(&block);
    frames_repeat(&block, HPACK_NEWEST, times);
    if (bytes > 0) {
        frames_large_field(&block, 0, LARGE_NAME, bytes, 'a');
    }
    send_block(fixture, stream_id, true, &block);
    frames_deinit(&block);
    if (!fixture->host.is_over) {
        host_write(&fixture->host);
    }
}

static void assert_calmed(struct peer_fixture *fixture)
{
    struct frame last = {0};
    assert_true(fixture->host.is_over);
    host_write(&fixture->host);
    assert_true(frames_count(&fixture->host.sent, FRAME_GOAWAY, &last) >= 1);
    assert_true(last.length >= 8);
    assert_int_equal(last.payload[7], CODE_ENHANCE_YOUR_CALM);
    assert_string_not_equal(eb_grpc_server_reason(fixture->host.server), "");
    assert_true(eb_grpc_server_is_done(fixture->host.server));
}

/* Sends an endless block byte by byte. Returns how many references to the large field are
 * accepted. */
static size_t count_taken(struct peer_fixture *fixture)
{
    size_t count = 0;
    while (count < 60000 && !fixture->host.is_over) {
        frames_repeat(&fixture->in, HPACK_NEWEST, 1);
        peer_fixture_deliver(fixture);
        count++;
    }
    return count;
}

static void ends_a_block_that_expands_past_four_limits(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    frames_head(&fixture->in, 60000, FRAME_HEADERS, FLAG_END_HEADERS, 3);
    /* 16 references are 64 KiB. 20 are more than that plus the slack of a connection. */
    assert_in_range(count_taken(fixture), 12, 20);
    assert_calmed(fixture);
}

static void ends_trailers_that_expand(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, false, 'a');
    frames_head(&fixture->in, 60000, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1);
    assert_in_range(count_taken(fixture), 12, 20);
    assert_calmed(fixture);
}

/* nghttp2 checks an invalid field to its end, and passes it to another callback. */
static void ends_a_block_of_fields_that_are_not_valid(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, '\1');
    frames_head(&fixture->in, 60000, FRAME_HEADERS, FLAG_END_HEADERS, 3);
    assert_in_range(count_taken(fixture), 12, 20);
    assert_calmed(fixture);
}

static void ends_a_block_of_many_short_fields(void **state)
{
    struct peer_fixture *fixture = *state;
    open_connection(fixture);
    frames_head(&fixture->in, 60000, FRAME_HEADERS, FLAG_END_HEADERS, 1);
    peer_fixture_deliver(fixture);
    size_t count = 0;
    while (count < 60000 && !fixture->host.is_over) {
        frames_repeat(&fixture->in, HPACK_ACCEPT_ENCODING, 1);
        peer_fixture_deliver(fixture);
        count++;
    }
    /* Fields up to the limit, one for each 32 bytes on the wire, the connection's budget for excess
     * fields, and the one that is too many. */
    assert_int_equal(count, 64 + 60000 / 32 + 3 * 64 + 1);
    assert_calmed(fixture);
}

static void refuses_one_block_past_the_limit_and_serves_the_next(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    call_with_large(fixture, 3, 0, 40000);
    call_with_large(fixture, 5, 1, 0);
    struct reply reply = header_blocks_read(&fixture->host.sent, 3);
    assert_int_equal(reply.grpc_status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(reply.message,
        "the call has 40080 bytes of header fields, more than header_bytes_max (16384): send fewer "
        "or shorter ones");
    assert_int_equal(header_blocks_read(&fixture->host.sent, 5).grpc_status, EB_STATUS_OK);
    assert_false(fixture->host.is_over);
}

static void tells_how_many_fields_are_too_many(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames block = {0};
    open_connection(fixture);
    put_usual(&block);
    frames_repeat(&block, HPACK_ACCEPT_ENCODING, 60);
    send_block(fixture, 1, true, &block);
    frames_deinit(&block);
    host_write(&fixture->host);
    struct reply reply = header_blocks_read(&fixture->host.sent, 1);
    assert_int_equal(reply.grpc_status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(reply.message,
        "the call has 65 header fields, more than header_fields_max (64): send fewer");
    assert_false(fixture->host.is_over);
}

/* Makes one call after the other, each of which is answered. Returns how many were made until the
 * connection ended. */
static size_t count_calls(
    struct peer_fixture *fixture, size_t times, size_t bytes, uint64_t pause_ms)
{
    size_t count = 0;
    while (count < BLOCKS_MAX && !fixture->host.is_over) {
        fixture->host.now_ms += pause_ms;
        call_with_large(fixture, (uint32_t)(2 * count + 3), times, bytes);
        count++;
    }
    return count;
}

/* The connection may belong to a proxy, and one client behind it, which does not know the limit,
 * may make all the calls. */
static void refuses_calls_past_the_limit_again_and_again(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    assert_int_equal(count_calls(fixture, 0, 30000, 0), BLOCKS_MAX);
    assert_false(fixture->host.is_over);
    assert_int_equal(header_blocks_read(&fixture->host.sent, 2 * BLOCKS_MAX + 1).grpc_status,
        EB_STATUS_RESOURCE_EXHAUSTED);
}

/* Each block is 40 KB from about 90 bytes on the wire. */
static void ends_a_peer_whose_blocks_expand_past_the_limit(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    assert_int_equal(count_calls(fixture, 10, 0, 0), 1);
    assert_calmed(fixture);
}

/* Each block is 12 KB, which is within the limit, from about 80 bytes on the wire. */
static void ends_a_peer_whose_blocks_expand_within_the_limit_again_and_again(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    assert_int_equal(count_calls(fixture, 3, 0, 0), 2);
    assert_calmed(fixture);
}

static void forgives_with_time(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    assert_int_equal(count_calls(fixture, 3, 0, 2000), BLOCKS_MAX);
    assert_false(fixture->host.is_over);
}

/* Honest use of the dynamic table is not limited. */
static void takes_a_table_that_is_used_once_in_each_call(void **state)
{
    struct peer_fixture *fixture = *state;
    open_with_large(fixture, true, 'a');
    assert_int_equal(count_calls(fixture, 1, 0, 0), BLOCKS_MAX);
    assert_int_equal(
        header_blocks_read(&fixture->host.sent, 2 * BLOCKS_MAX + 1).grpc_status, EB_STATUS_OK);
}

/* Large fields that are not compressed cost their sender work, too. */
static void takes_blocks_at_the_limit_that_are_as_large_on_the_wire(void **state)
{
    struct peer_fixture *fixture = *state;
    open_connection(fixture);
    assert_int_equal(count_calls(fixture, 0, 16384 - 80, 0), BLOCKS_MAX);
    assert_int_equal(
        header_blocks_read(&fixture->host.sent, 2 * BLOCKS_MAX + 1).grpc_status, EB_STATUS_OK);
    assert_false(fixture->host.is_over);
}

/* Opens a connection on which the server has forgotten stream 1. `block` becomes the header block
 * of a call. */
static void open_and_forget(struct peer_fixture *fixture, struct frames *block)
{
    eb_grpc_server_destroy(fixture->host.server);
    fixture->host.limits.streams_max = 1;
    assert_true(host_start(&fixture->host));
    open_connection(fixture);
    put_usual(block);
    send_block(fixture, 1, false, block);
    frames_head(&fixture->in, 4, FRAME_RST_STREAM, 0, 1);
    frames_put32(&fixture->in, 8);
    send_block(fixture, 3, false, block);
    assert_int_equal(fixture->host.call_count, 2);
}

/* nghttp2 decompresses the headers of a closed stream but does not report them. */
static void ends_a_peer_that_sends_headers_for_streams_that_are_over(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames block = {0};
    open_and_forget(fixture, &block);
    frames_repeat(&block, HPACK_METHOD_POST, 3000);
    size_t count = 0;
    while (count < BLOCKS_MAX && !fixture->host.is_over) {
        send_block(fixture, 1, true, &block);
        count++;
    }
    frames_deinit(&block);
    assert_in_range(count, 500, 1100);
    assert_calmed(fixture);
}

static void ends_a_peer_whose_headers_for_such_streams_are_large(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames block = {0};
    open_and_forget(fixture, &block);
    frames_repeat(&block, HPACK_METHOD_POST, 14000);
    size_t count = 0;
    while (count < BLOCKS_MAX && !fixture->host.is_over) {
        send_block(fixture, 1, true, &block);
        count++;
    }
    frames_deinit(&block);
    assert_in_range(count, 2, 10);
    assert_calmed(fixture);
}

/* nghttp2 does not report CONTINUATION frames for a closed stream either. Honest clients that split
 * their blocks may send some of these frames before they learn that the stream has ended. */
static void ends_a_peer_that_continues_headers_for_such_streams(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames block = {0};
    size_t count = 0;
    open_and_forget(fixture, &block);
    while (count < BLOCKS_MAX && !fixture->host.is_over) {
        frames_head(&fixture->in, block.size, FRAME_HEADERS, 0, 1);
        frames_put(&fixture->in, block.bytes, block.size);
        frames_head(&fixture->in, 16384, FRAME_CONTINUATION, FLAG_END_HEADERS, 1);
        frames_repeat(&fixture->in, HPACK_METHOD_POST, 16384);
        /* The server learns of the block only when the next frame begins. */
        frames_head(&fixture->in, 8, FRAME_PING, FLAG_ACK, 0);
        frames_put(&fixture->in, "12345678", 8);
        peer_fixture_deliver(fixture);
        count++;
    }
    frames_deinit(&block);
    assert_int_equal(count, 3);
    assert_calmed(fixture);
}

/* grpc-go splits blocks like this if the server accepts blocks of this size. */
static void takes_a_large_block_that_crosses_the_end_of_its_stream(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames block = {0};
    fixture->host.limits.header_bytes_max = 65536;
    open_and_forget(fixture, &block);
    for (int i = 0; i < 2; i++) {
        frames_head(&fixture->in, 16384, FRAME_HEADERS, 0, 1);
        frames_repeat(&fixture->in, HPACK_METHOD_POST, 16384);
        frames_head(&fixture->in, 16384, FRAME_CONTINUATION, FLAG_END_HEADERS, 1);
        frames_repeat(&fixture->in, HPACK_METHOD_POST, 16384);
        frames_head(&fixture->in, 8, FRAME_PING, FLAG_ACK, 0);
        frames_put(&fixture->in, "12345678", 8);
        peer_fixture_deliver(fixture);
        assert_false(fixture->host.is_over);
    }
    frames_deinit(&block);
}

#define WITH_FIXTURE(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, peer_fixture_set_up, peer_fixture_tear_down)

EB_TEST_GROUP(grpc_expansion)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(ends_a_block_that_expands_past_four_limits),
        WITH_FIXTURE(ends_trailers_that_expand),
        WITH_FIXTURE(ends_a_block_of_fields_that_are_not_valid),
        WITH_FIXTURE(ends_a_block_of_many_short_fields),
        WITH_FIXTURE(refuses_one_block_past_the_limit_and_serves_the_next),
        WITH_FIXTURE(tells_how_many_fields_are_too_many),
        WITH_FIXTURE(refuses_calls_past_the_limit_again_and_again),
        WITH_FIXTURE(ends_a_peer_whose_blocks_expand_past_the_limit),
        WITH_FIXTURE(ends_a_peer_whose_blocks_expand_within_the_limit_again_and_again),
        WITH_FIXTURE(forgives_with_time),
        WITH_FIXTURE(takes_a_table_that_is_used_once_in_each_call),
        WITH_FIXTURE(takes_blocks_at_the_limit_that_are_as_large_on_the_wire),
        WITH_FIXTURE(ends_a_peer_that_sends_headers_for_streams_that_are_over),
        WITH_FIXTURE(ends_a_peer_whose_headers_for_such_streams_are_large),
        WITH_FIXTURE(ends_a_peer_that_continues_headers_for_such_streams),
        WITH_FIXTURE(takes_a_large_block_that_crosses_the_end_of_its_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
