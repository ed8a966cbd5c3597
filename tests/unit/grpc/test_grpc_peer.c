/* Peers that break rules: how they are answered, and that they cost little. */
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/header_blocks.h"
#include "tests/unit/grpc/peer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CODE_FRAME_SIZE_ERROR 6
#define EMPTY_GZIP "\x1f\x8b\b\0\0\0\0\0\0\3\3\0\0\0\0\0\0\0\0\0"
#define CODE_ENHANCE_YOUR_CALM 11

/* Expects the connection to have ended with a GOAWAY of this code. */
static void assert_goaway(struct peer_fixture *fixture, uint32_t code)
{
    struct frame last = {0};
    host_write(&fixture->host);
    assert_true(fixture->host.is_over);
    assert_true(frames_count(&fixture->host.sent, FRAME_GOAWAY, &last) >= 1);
    assert_true(last.length >= 8);
    assert_int_equal(last.payload[7], code);
    assert_string_not_equal(eb_grpc_server_reason(fixture->host.server), "");
    assert_true(eb_grpc_server_is_done(fixture->host.server));
}

static void says_nothing_before_the_preface(void **state)
{
    struct peer_fixture *fixture = *state;
    host_write(&fixture->host);
    assert_int_equal(fixture->host.sent.size, 0);
    frames_open(&fixture->in);
    for (size_t i = 0; i < 23; i++) {
        host_receive(&fixture->host, fixture->in.bytes + i, 1);
        host_write(&fixture->host);
        assert_int_equal(fixture->host.sent.size, 0);
    }
    host_receive(&fixture->host, fixture->in.bytes + 23, 1);
    assert_false(eb_grpc_server_is_open(fixture->host.server));
    host_write(&fixture->host);
    struct frame first;
    size_t at = 0;
    assert_true(frames_next(&fixture->host.sent, &at, &first));
    assert_int_equal(first.type, FRAME_SETTINGS);
    assert_int_equal(first.flags, 0);
    host_receive(&fixture->host, fixture->in.bytes + 24, 9);
    assert_true(eb_grpc_server_is_open(fixture->host.server));
}

static void forgets_a_token_once_it_has_been_judged(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const token[] = {"authorization", "Bearer 0123456789abcdef"};
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, token);
    peer_fixture_deliver(fixture);
    assert_string_equal(fixture->host.authorization, token[1]);
    const struct eb_grpc_call *call = fixture->host.call;
    assert_null(call->authorization);
    for (size_t i = 0; i < sizeof call->headers.authorization; i++) {
        assert_int_equal(call->headers.authorization[i], 0);
    }
}

/* Clients written in Go do this, although the last stream should be one that the server has
 * opened. */
static void takes_the_farewell_of_a_peer_that_names_no_stream(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, NULL);
    frames_head(&fixture->in, 8, FRAME_GOAWAY, 0, 0);
    frames_put32(&fixture->in, INT32_MAX);
    frames_put32(&fixture->in, 0);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_string_equal(eb_grpc_server_reason(fixture->host.server), "");
    assert_true(eb_grpc_server_is_done(fixture->host.server));
}

static void tells_http_1_what_it_has_reached(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: t\r\n\r\n", "POST /x HTTP/1.1\r\n\r\n", "PRI * HTTP/1.1\r\n\r\n"};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        size_t size = strlen(requests[i]);
        for (size_t portion = 1; portion <= size; portion++) {
            struct host host;
            host_init(&host, 0);
            assert_true(host_start(&host));
            for (size_t at = 0; at < size && !host.is_over; at += portion) {
                host_receive(&host, requests[i] + at, size - at < portion ? size - at : portion);
            }
            host_write(&host);
            assert_true(host.is_over);
            assert_string_equal(eb_grpc_server_reason(host.server), "not HTTP/2");
            assert_memory_equal(host.sent.bytes, "HTTP/1.1 400 ", 13);
            const char *body = memmem(host.sent.bytes, host.sent.size, "\r\n\r\n", 4);
            assert_non_null(body);
            assert_int_equal((const char *)host.sent.bytes + host.sent.size - body, 4 + 34);
            assert_true(eb_grpc_server_is_done(host.server));
            host_deinit(&host);
        }
    }
}

static void hangs_up_on_garbage(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_put(&fixture->in, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_true(fixture->host.is_over);
    assert_int_equal(fixture->host.sent.size, 0);
    assert_true(eb_grpc_server_is_done(fixture->host.server));
    host_receive(&fixture->host, "more", 4);
    eb_grpc_server_tick(fixture->host.server, 1, 0);
    eb_grpc_server_drain(fixture->host.server);
    host_write(&fixture->host);
}

static void survives_random_frames(void **state)
{
    (void)state;
    uint32_t seed = 12345;
    for (int run = 0; run < 2000; run++) {
        struct host host;
        struct frames in = {0};
        host_init(&host, 0);
        assert_true(host_start(&host));
        frames_open(&in);
        frames_request(&in, 1, false, NULL);
        for (int i = 0; i < 20; i++) {
            uint8_t payload[64];
            for (size_t b = 0; b < sizeof payload; b++) {
                seed = seed * 1664525u + 1013904223u;
                payload[b] = (uint8_t)(seed >> 24);
            }
            size_t length = payload[0] % 40;
            frames_head(&in, length, payload[1] % 12, payload[2], payload[3] % 6);
            frames_put(&in, payload + 8, length);
        }
        host_receive(&host, in.bytes, in.size);
        host_write(&host);
        frames_deinit(&in);
        host_deinit(&host);
        assert_int_equal(host.lender.lent_count, 0);
        assert_int_equal(host.call_count, host.close_count);
    }
}

/* A request with one field changed or added, unless field[1] is NULL, and with one DATA frame,
 * unless `data` is NULL. */
struct bad_request {
    const char *field[2];
    const char *data;
    size_t data_size;
    bool ends;
    int http_status;
    int grpc_status;
};

static void make_request(const struct bad_request *request)
{
    struct host host;
    struct frames in = {0};
    host_init(&host, 0);
    assert_true(host_start(&host));
    frames_open(&in);
    bool ends_early = request->ends && !request->data;
    frames_request(&in, 1, ends_early, request->field[1] ? request->field : NULL);
    if (request->data) {
        frames_data(&in, 1, request->ends, request->data, request->data_size);
    }
    host_receive(&host, in.bytes, in.size);
    host_write(&host);
    struct reply reply = header_blocks_read(&host.sent, 1);
    struct frame last = {0};
    assert_int_equal(reply.http_status, request->http_status);
    assert_int_equal(reply.grpc_status, request->grpc_status);
    assert_true(frames_count(&host.sent, FRAME_HEADERS, &last) > 0);
    if (request->http_status == 200) {
        assert_true(last.flags & FLAG_END_STREAM);
    } else {
        assert_int_equal(frames_count(&host.sent, FRAME_DATA, &last), 1);
        assert_true(last.flags & FLAG_END_STREAM);
    }
    assert_int_equal(frames_count(&host.sent, FRAME_RST_STREAM, NULL), request->ends ? 0 : 1);
    assert_int_equal(eb_grpc_server_call_count(host.server), 0);
    assert_false(host.is_over);
    frames_deinit(&in);
    host_deinit(&host);
    assert_int_equal(host.lender.lent_count, 0);
}

static void answers_each_mistake_with_its_status(void **state)
{
    (void)state;
    static const struct bad_request cases[] = {
        {{":method", "PUT"}, NULL, 0, true, 405, -1},
        {{"content-type", "text/html"}, NULL, 0, true, 415, -1},
        {{"content-type", "application/grpcx"}, "x", 1, true, 415, -1},
        {{"grpc-timeout", "1 h"}, NULL, 0, true, 200, 3},
        {{"x", NULL}, "\1\0\0\0\1x", 6, true, 200, 13},
        {{"grpc-encoding", "identity"}, "\1\0\0\0\1x", 6, true, 200, 13},
        {{"grpc-encoding", "deflate"}, "\1\0\0\0\1x", 6, true, 200, 12},
        {{"grpc-encoding", "deflate"}, "\0\0\0\0\1x", 6, true, 200, 0},
        {{"grpc-encoding", "gzip"}, "\1\0\0\0\1x", 6, true, 200, 13},
        {{"grpc-encoding", "gzip"}, "\1\0\0\0\24" EMPTY_GZIP, 25, true, 200, 0},
        {{"grpc-encoding", "gzip"}, "\0\0\0\0\1x", 6, true, 200, 0},
        {{"x", NULL}, "\7\0\0\0\1x", 6, true, 200, 13},
        {{"x", NULL}, "\0\0\0\0\2x", 6, true, 200, 13},
        {{"x", NULL}, "\0\0\0", 3, true, 200, 13},
        {{"x", NULL}, "\0\xff\xff\xff\xff", 5, false, 200, 8},
        {{"x", NULL}, "\0\0\0\0\0", 5, true, 200, 0},
        {{"x", NULL}, NULL, 0, true, 200, 0},
        {{":path", "/t/Refuse"}, NULL, 0, false, 200, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_request(&cases[i]);
    }
}

static void answers_what_is_no_grpc_when_its_end_does_not_come(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const type[2] = {"content-type", "text/html"};
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, type);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_int_equal(header_blocks_read(&fixture->host.sent, 1).http_status, -1);
    eb_grpc_server_tick(fixture->host.server, fixture->host.now_ms + 15000, 0);
    host_write(&fixture->host);
    assert_int_equal(header_blocks_read(&fixture->host.sent, 1).http_status, 415);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_RST_STREAM, NULL), 1);
    assert_int_equal(eb_grpc_server_call_count(fixture->host.server), 0);
}

static void resets_what_is_no_grpc_and_does_not_take_its_answer(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const type[2] = {"content-type", "text/html"};
    static const uint8_t no_window[] = {0, 4, 0, 0, 0, 0};
    frames_put(&fixture->in, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    frames_head(&fixture->in, sizeof no_window, FRAME_SETTINGS, 0, 0);
    frames_put(&fixture->in, no_window, sizeof no_window);
    frames_request(&fixture->in, 1, true, type);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_DATA, NULL), 0);
    assert_int_equal(eb_grpc_server_call_count(fixture->host.server), 1);
    eb_grpc_server_tick(fixture->host.server, fixture->host.now_ms + 30000, 0);
    host_write(&fixture->host);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_RST_STREAM, NULL), 1);
    assert_int_equal(eb_grpc_server_call_count(fixture->host.server), 0);
}

static void says_when_to_come_back(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const path[2] = {":path", "/t/Refuse"};
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, true, path);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    struct reply reply = header_blocks_read(&fixture->host.sent, 1);
    assert_int_equal(reply.pushback_ms, 250);
    assert_string_equal(reply.message, "no such thing: 100%25");
}

static void refuses_too_many_header_fields(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const usual[][2] = {{":method", "POST"}, {":scheme", "http"},
        {":path", "/t/Echo"}, {":authority", "t"}, {"content-type", "application/grpc"}};
    frames_open(&fixture->in);
    for (uint32_t extra = 59; extra <= 60; extra++) {
        struct frames block = {0};
        for (size_t i = 0; i < 5; i++) {
            frames_field(&block, usual[i][0], usual[i][1]);
        }
        for (uint32_t i = 0; i < extra; i++) {
            frames_field(&block, "a", "b");
        }
        frames_head(&fixture->in, block.size, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM,
            2 * extra + 1);
        frames_put(&fixture->in, block.bytes, block.size);
        frames_deinit(&block);
    }
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    assert_int_equal(header_blocks_read(&fixture->host.sent, 119).grpc_status, EB_STATUS_OK);
    assert_int_equal(
        header_blocks_read(&fixture->host.sent, 121).grpc_status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(fixture->host.call_count, 1);
}

static void ends_a_header_block_without_end(void **state)
{
    struct peer_fixture *fixture = *state;
    struct frames field = {0};
    frames_field(&field, "a", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    frames_open(&fixture->in);
    frames_head(&fixture->in, field.size, FRAME_HEADERS, 0, 1);
    frames_put(&fixture->in, field.bytes, field.size);
    peer_fixture_deliver(fixture);
    assert_true(eb_grpc_server_is_in_headers(fixture->host.server));
    size_t count = 0;
    while (count < 100000 && !fixture->host.is_over) {
        frames_head(&fixture->in, field.size, FRAME_CONTINUATION, 0, 1);
        frames_put(&fixture->in, field.bytes, field.size);
        peer_fixture_deliver(fixture);
        count++;
    }
    frames_deinit(&field);
    assert_true(count < 1000);
    assert_true(fixture->host.is_over);
}

static void ends_a_header_block_that_is_huge(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    frames_head(&fixture->in, 0, FRAME_SETTINGS, FLAG_ACK, 0);
    frames_head(&fixture->in, 200000, FRAME_HEADERS, FLAG_END_HEADERS, 1);
    peer_fixture_deliver(fixture);
    assert_goaway(fixture, CODE_ENHANCE_YOUR_CALM);
}

static void refuses_a_frame_over_the_frame_limit(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    frames_head(&fixture->in, 300000, FRAME_DATA, 0, 1);
    peer_fixture_deliver(fixture);
    assert_goaway(fixture, CODE_FRAME_SIZE_ERROR);
    assert_non_null(strstr(eb_grpc_server_reason(fixture->host.server), "HTTP/2 violation"));
}

/* Repeats a frame until the connection ends, and reads the output. Returns how many frames were
 * sent. */
static size_t flood(struct peer_fixture *fixture, const struct frames *frame)
{
    size_t count = 0;
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, NULL);
    peer_fixture_deliver(fixture);
    while (count < 20000 && !fixture->host.is_over) {
        frames_put(&fixture->in, frame->bytes, frame->size);
        peer_fixture_deliver(fixture);
        host_write(&fixture->host);
        count++;
    }
    return count;
}

static void turns_away_floods_that_are_read(void **state)
{
    (void)state;
    static const struct {
        uint8_t type;
        uint8_t length;
        uint32_t stream_id;
    } cases[] = {{FRAME_PING, 8, 0}, {FRAME_SETTINGS, 0, 0}, {FRAME_DATA, 0, 1},
        {FRAME_PRIORITY, 5, 77}, {0xB7, 3, 1}, {0x10, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct peer_fixture *fixture = NULL;
        assert_int_equal(peer_fixture_set_up((void **)&fixture), 0);
        struct frames frame = {0};
        frames_head(&frame, cases[i].length, cases[i].type, 0, cases[i].stream_id);
        frames_put(&frame, "\0\0\0\0\1\0\0\0", cases[i].length);
        assert_in_range(flood(fixture, &frame), 990, 1010);
        assert_goaway(fixture, CODE_ENHANCE_YOUR_CALM);
        frames_deinit(&frame);
        assert_int_equal(peer_fixture_tear_down((void **)&fixture), 0);
    }
}

/* The peer sends frames that require an answer, and reads nothing. */
static void gives_up_a_peer_that_does_not_read(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    peer_fixture_deliver(fixture);
    uint32_t id = 1;
    while (id < 100000 && !fixture->host.is_over) {
        frames_request(&fixture->in, id, true, NULL);
        frames_head(&fixture->in, 8, FRAME_PING, 0, 0);
        frames_put(&fixture->in, "12345678", 8);
        peer_fixture_deliver(fixture);
        fixture->host.is_over = !eb_grpc_server_send(fixture->host.server) || fixture->host.is_over;
        id += 2;
    }
    assert_true(fixture->host.is_over);
    assert_true(fixture->host.lender.lent_bytes < 400000);
    assert_true(eb_grpc_server_call_count(fixture->host.server) <= 256);
}

static void counts_resets_of_calls_that_were_answered_at_once(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    static const char *const html[2] = {"content-type", "text/html"};
    uint32_t id = 1;
    while (id < 100000 && !fixture->host.is_over) {
        frames_request(&fixture->in, id, true, html);
        frames_head(&fixture->in, 4, FRAME_RST_STREAM, 0, id);
        frames_put32(&fixture->in, 8);
        peer_fixture_deliver(fixture);
        host_write(&fixture->host);
        id += 2;
    }
    assert_goaway(fixture, CODE_ENHANCE_YOUR_CALM);
    assert_in_range(id / 2, 1000, 1010);
}

static void refuses_streams_over_the_limit(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_open(&fixture->in);
    for (uint32_t i = 0; i < 257; i++) {
        frames_request(&fixture->in, 2 * i + 1, false, NULL);
    }
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    struct frame last = {0};
    assert_int_equal(fixture->host.call_count, 256);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_RST_STREAM, &last), 1);
    assert_int_equal(last.stream_id, 513);
    assert_int_equal(last.payload[3], 7);
    assert_false(fixture->host.is_over);
}

static void answers_within_a_small_window(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_put(&fixture->in, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    frames_head(&fixture->in, 6, FRAME_SETTINGS, 0, 0);
    frames_put(&fixture->in, "\0\4\0\0\0\x64", 6);
    frames_request(&fixture->in, 1, false, NULL);
    struct eb_outgoing *message = host_outgoing(5000);
    frames_data(&fixture->in, 1, true, message->bytes, message->size);
    eb_outgoing_drop(message);
    peer_fixture_deliver(fixture);
    host_write(&fixture->host);
    for (int i = 1; i < 51; i++) {
        struct frame last = {0};
        assert_int_equal(frames_count(&fixture->host.sent, FRAME_DATA, &last), i);
        assert_int_equal(last.length, 100);
        assert_int_equal(frames_count(&fixture->host.sent, FRAME_HEADERS, NULL), 1);
        frames_head(&fixture->in, 4, FRAME_WINDOW_UPDATE, 0, 1);
        frames_put32(&fixture->in, 100);
        peer_fixture_deliver(fixture);
        host_write(&fixture->host);
    }
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_DATA, NULL), 51);
    assert_int_equal(frames_count(&fixture->host.sent, FRAME_HEADERS, NULL), 2);
    assert_int_equal(fixture->host.close_count, 1);
}

/* Sends a piece of one long message every 500 ms to a server that lets a message stall for 1000 ms.
 * Returns after how many pieces the call is over. */
static int send_slowly(struct peer_fixture *fixture, size_t piece_bytes)
{
    static const uint8_t prefix[] = {0, 0, 0x01, 0x86, 0xa0}; /* HOST_REQUEST_BYTES_MAX */
    struct eb_outgoing *piece = host_outgoing(piece_bytes);
    fixture->host.limits.message_stall_ms_max = 1000;
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, false, NULL);
    frames_data(&fixture->in, 1, false, prefix, sizeof prefix);
    peer_fixture_deliver(fixture);
    int count = 0;
    while (count < 12 && eb_grpc_server_call_count(fixture->host.server) > 0) {
        fixture->host.now_ms += 500;
        frames_data(&fixture->in, 1, false, piece->bytes, piece->size);
        peer_fixture_deliver(fixture);
        eb_grpc_server_tick(fixture->host.server, fixture->host.now_ms, 0);
        host_write(&fixture->host);
        count++;
    }
    eb_outgoing_drop(piece);
    return count;
}

static void ends_a_message_that_trickles(void **state)
{
    struct peer_fixture *fixture = *state;
    assert_int_equal(send_slowly(fixture, 1), 9);
    assert_int_equal(
        header_blocks_read(&fixture->host.sent, 1).grpc_status, EB_STATUS_DEADLINE_EXCEEDED);
}

static void lets_a_slow_message_come(void **state)
{
    assert_int_equal(send_slowly(*state, 5000), 12);
}

/* Opens the windows of the connection and of stream 1 by the initial window size of HTTP/2. */
static void open_windows(struct peer_fixture *fixture)
{
    for (uint32_t id = 0; id <= 1; id++) {
        frames_head(&fixture->in, 4, FRAME_WINDOW_UPDATE, 0, id);
        frames_put32(&fixture->in, 65535);
    }
    peer_fixture_deliver(fixture);
}

static void answers_20_mib_within_windows_of_64_kib(void **state)
{
    struct peer_fixture *fixture = *state;
    static const char *const path[2] = {":path", "/t/Keep"};
    size_t size = 20u << 20;
    frames_open(&fixture->in);
    frames_request(&fixture->in, 1, true, path);
    peer_fixture_deliver(fixture);
    eb_grpc_call_answer(fixture->host.call, host_outgoing(size));
    eb_grpc_call_finish(fixture->host.call, EB_STATUS_OK, NULL, 0);
    size_t turns = 0;
    while (fixture->host.close_count == 0 && turns < 1000) {
        size_t before = fixture->host.sent.size;
        host_write(&fixture->host);
        assert_in_range(fixture->host.sent.size - before, 1, 66000);
        assert_true(fixture->host.lender.lent_bytes < 20000);
        open_windows(fixture);
        turns++;
    }
    assert_int_equal(turns, (size + 5) / 65535 + 1);
    assert_int_equal(header_blocks_read(&fixture->host.sent, 1).grpc_status, EB_STATUS_OK);
    assert_int_equal(host_outgoing_live(), 0);
}

#define WITH_FIXTURE(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, peer_fixture_set_up, peer_fixture_tear_down)

EB_TEST_GROUP(grpc_peer)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(says_nothing_before_the_preface),
        WITH_FIXTURE(forgets_a_token_once_it_has_been_judged),
        WITH_FIXTURE(takes_the_farewell_of_a_peer_that_names_no_stream),
        cmocka_unit_test(tells_http_1_what_it_has_reached),
        WITH_FIXTURE(ends_a_message_that_trickles),
        WITH_FIXTURE(lets_a_slow_message_come),
        WITH_FIXTURE(answers_what_is_no_grpc_when_its_end_does_not_come),
        WITH_FIXTURE(resets_what_is_no_grpc_and_does_not_take_its_answer),
        WITH_FIXTURE(hangs_up_on_garbage),
        cmocka_unit_test(survives_random_frames),
        cmocka_unit_test(answers_each_mistake_with_its_status),
        WITH_FIXTURE(says_when_to_come_back),
        WITH_FIXTURE(refuses_too_many_header_fields),
        WITH_FIXTURE(ends_a_header_block_without_end),
        WITH_FIXTURE(ends_a_header_block_that_is_huge),
        WITH_FIXTURE(refuses_a_frame_over_the_frame_limit),
        cmocka_unit_test(turns_away_floods_that_are_read),
        WITH_FIXTURE(gives_up_a_peer_that_does_not_read),
        WITH_FIXTURE(counts_resets_of_calls_that_were_answered_at_once),
        WITH_FIXTURE(refuses_streams_over_the_limit),
        WITH_FIXTURE(answers_within_a_small_window),
        WITH_FIXTURE(answers_20_mib_within_windows_of_64_kib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
