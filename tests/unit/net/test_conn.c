#include "tests/lib/test_group.h"
#include "tests/unit/grpc/frames.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000 /* time allowed for an event that must happen */
#define SHORT_MS 100     /* a time limit that a test lets pass */
#define MIB (UINT32_C(1) << 20)

static const bool never;

/* ---- time limits ---- */

/* Expects a connection that has sent only these bytes to be closed after a while. */
static void expect_closed(struct loop_host *host, const void *bytes, size_t count)
{
    struct eb_address address;
    loop_host_serve(host, &address);
    uint64_t begin_ns = uv_hrtime();
    int client = wire_connect(&address, 0);
    if (count > 0) {
        wire_send(client, bytes, count);
    }
    assert_true(wire_read_to_end(client, TIMEOUT_MS, NULL, 0));
    assert_true(uv_hrtime() - begin_ns >= UINT64_C(1000000) * (SHORT_MS / 2));
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    close(client);
}

static void closes_a_connection_that_says_nothing(void **state)
{
    struct loop_host *host = *state;
    host->options.limits.conn.header_timeout_ms = SHORT_MS;
    expect_closed(host, NULL, 0);
}

static void closes_a_connection_whose_preface_does_not_end(void **state)
{
    struct loop_host *host = *state;
    host->options.limits.conn.header_timeout_ms = SHORT_MS;
    expect_closed(host, WIRE_HELLO, 20);
}

static void closes_a_connection_whose_headers_do_not_end(void **state)
{
    struct loop_host *host = *state;
    /* HEADERS of stream 1 that contain :method POST and do not end the block. */
    static const char half[] = WIRE_HELLO "\0\0\1\1\0\0\0\0\1\x83";
    host->options.limits.conn.header_timeout_ms = SHORT_MS;
    expect_closed(host, half, sizeof half - 1);
}

/* Runs on the loop's thread. Sets *context to 0 once the loop's clock has reached *context. */
static void look_at_clock(struct eb_loop *loop, void *context)
{
    uint64_t *until_ms = context;
    if (eb_loop_now_ms(loop) >= *until_ms) {
        *until_ms = 0;
    }
}

static void add_now(struct eb_loop *loop, void *context)
{
    *(uint64_t *)context += eb_loop_now_ms(loop);
}

/* Waits until the loop's clock has advanced by `ms`. */
static void let_pass(struct eb_loop *loop, uint64_t ms)
{
    uint64_t until_ms = ms;
    loop_host_act(loop, add_now, &until_ms);
    while (until_ms > 0) {
        loop_host_act(loop, look_at_clock, &until_ms);
        uv_sleep(1);
    }
}

static void keeps_an_idle_connection_that_speaks_http2(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    host->options.limits.conn.header_timeout_ms = SHORT_MS;
    host->options.limits.conn.write_timeout_ms = SHORT_MS;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 10));
    let_pass(host->loops[0], 2 * SHORT_MS);
    let_pass(host->loops[1], 2 * SHORT_MS);
    assert_true(wire_peer_echo(&peer, 10));
    assert_int_equal(loop_host_conn_count(host), 1);
    wire_peer_close(&peer);
}

static void ends_a_call_whose_message_stalls(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    host->options.limits.conn.session.message_stall_ms_max = SHORT_MS;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    wire_peer_call(&peer, &call, "/t/Echo");
    wire_peer_write(&call, 1000, 1, false);
    assert_true(wire_peer_run(&peer, &call.is_finished, TIMEOUT_MS));
    assert_int_equal(call.error.status, EB_STATUS_DEADLINE_EXCEEDED);
    assert_true(wire_peer_echo(&peer, 10));
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    assert_int_equal(loop_host_taken_bytes(host), 0);
}

/* ---- writing ---- */

static void closes_a_peer_that_does_not_read_and_takes_its_memory_back(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    host->options.limits.conn.write_timeout_ms = SHORT_MS;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 10));
    wire_peer_call(&peer, &call, "/t/Large");
    wire_peer_write_number(&call, 20 * MIB);
    wire_peer_send(&peer);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    assert_int_equal(atomic_load(&host->message_count), 2);
    assert_int_equal(loop_host_taken_bytes(host), 0);
    assert_false(call.is_finished);
    wire_peer_close(&peer);
}

static void takes_its_memory_back_from_a_peer_that_opens_no_window(void **state)
{
    struct loop_host *host = *state;
    static const char *const path[2] = {":path", "/t/Large"};
    static const uint8_t message[] = {0, 0, 0, 0, 4, 0, 0, 16, 0};
    struct eb_address address;
    struct frames request = {0};
    host->options.limits.conn.session.answer_stall_ms_max = SHORT_MS;
    loop_host_serve(host, &address);
    frames_open(&request);
    frames_request(&request, 1, false, path);
    frames_data(&request, 1, true, message, sizeof message);
    int client = wire_connect(&address, 0);
    wire_send(client, request.bytes, request.size);
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while ((atomic_load(&host->message_count) == 0 || loop_host_taken_bytes(host) >= MIB) &&
           uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(atomic_load(&host->message_count), 1);
    assert_true(loop_host_taken_bytes(host) < MIB);
    assert_int_equal(loop_host_conn_count(host), 1);
    close(client);
    frames_deinit(&request);
}

static void takes_its_memory_back_from_a_peer_that_vanishes(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call calls[3];
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    for (int i = 0; i < 3; i++) {
        wire_peer_call(&peer, &calls[i], "/t/Large");
        wire_peer_write_number(&calls[i], 8 * MIB);
    }
    wire_peer_send(&peer);
    assert_false(wire_peer_run(&peer, &never, 20));
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    assert_int_equal(loop_host_taken_bytes(host), 0);
}

static void sends_a_large_answer_without_waiting_for_a_tick(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    host->options.limits.tick_ms = 1000000;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    for (int i = 0; i < 3; i++) {
        wire_peer_call(&peer, &call, "/t/Large");
        wire_peer_write_number(&call, 30 * MIB);
        assert_true(wire_peer_run(&peer, &call.is_finished, TIMEOUT_MS));
        assert_int_equal(call.error.status, EB_STATUS_OK);
        assert_int_equal(call.message_bytes, 30 * MIB);
        assert_false(call.is_wrong);
    }
    wire_peer_close(&peer);
}

static void tells_a_client_of_http1_what_it_has_reached(void **state)
{
    struct loop_host *host = *state;
    static const char request[] = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    struct eb_address address;
    char answer[1024] = "";
    loop_host_serve(host, &address);
    int client = wire_connect(&address, 0);
    wire_send(client, request, sizeof request - 1);
    assert_true(wire_read_to_end(client, TIMEOUT_MS, answer, sizeof answer));
    assert_memory_equal(answer, "HTTP/1.1 400 ", 13);
    assert_non_null(strstr(answer, "this port speaks gRPC over HTTP/2"));
    close(client);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
}

static void closes_a_client_that_does_not_end_its_side_after_a_while(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    loop_host_serve(host, &address);
    int client = wire_connect(&address, 0);
    wire_send(client, "junk", 4);
    assert_true(wire_read_to_end(client, TIMEOUT_MS, NULL, 0));
    wire_send(client, WIRE_HELLO, WIRE_HELLO_BYTES);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    close(client);
}

/* ---- bytes that arrive after the end ---- */

#define LINGER_BYTES 65536
#define BODY_BYTES (20 * MIB)
#define ANSWER_BYTES 200000

static void add_received(struct eb_loop *loop, void *context)
{
    *(uint64_t *)context += eb_loop_counters(loop)->received_bytes;
}

/* Waits until the server has read `bytes` bytes or has no connections left. Returns whether it has
 * read that many. */
static bool wait_received(struct loop_host *host, uint64_t bytes)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    uint64_t received = 0;
    while (received < bytes && loop_host_conn_count(host) > 0 && uv_hrtime() < deadline_ns) {
        received = 0;
        loop_host_act(host->loops[0], add_received, &received);
        loop_host_act(host->loops[1], add_received, &received);
        uv_sleep(1);
    }
    return received >= bytes;
}

static int find_socket_error(int socket)
{
    int error = 0;
    socklen_t size = sizeof error;
    assert_int_equal(getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    return error;
}

static void resets_a_bad_peer_that_sends_on(void **state)
{
    struct loop_host *host = *state;
    static const uint8_t more[LINGER_BYTES];
    struct eb_address address;
    loop_host_serve(host, &address);
    int client = wire_connect(&address, 0);
    wire_send(client, "junk", 4);
    assert_true(wire_read_to_end(client, TIMEOUT_MS, NULL, 0));
    wire_send(client, more, sizeof more);
    assert_true(wait_received(host, 4 + sizeof more));
    assert_int_equal(find_socket_error(client), 0);
    wire_send(client, more, 1);
    struct pollfd waited = {.fd = client, .events = 0};
    assert_int_equal(poll(&waited, 1, TIMEOUT_MS), 1);
    assert_true(waited.revents & POLLERR);
    assert_int_equal(find_socket_error(client), EPIPE);
    close(client);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
}

/* Reads the server's frames up to the ping with which it drains. */
static void read_drain_ping(int client)
{
    struct frames got = {0};
    struct frame ping = {0};
    uint8_t bytes[256];
    while (frames_count(&got, FRAME_PING, &ping) == 0) {
        ssize_t count = recv(client, bytes, sizeof bytes, 0);
        assert_true(count > 0);
        frames_put(&got, bytes, (size_t)count);
    }
    assert_memory_equal(ping.payload, "drain\0\0\0", 8);
    frames_deinit(&got);
}

/* Adds a call of /t/Large and then the ping acknowledgement that lets the server end the
 * connection. */
static void put_last_call(struct frames *said)
{
    static const char *const path[2] = {":path", "/t/Large"};
    uint32_t number = ANSWER_BYTES;
    uint8_t message[9] = {0, 0, 0, 0, sizeof number};
    memcpy(message + 5, &number, sizeof number);
    frames_request(said, 1, false, path);
    frames_data(said, 1, true, message, sizeof message);
    frames_head(said, 8, FRAME_PING, FLAG_ACK, 0);
    frames_put(said, "drain\0\0\0", 8);
}

/* Adds a call that the server no longer accepts. */
static void put_crossing_call(struct frames *said)
{
    static const uint8_t part[16384];
    frames_request(said, 3, false, NULL);
    for (size_t at = 0; at < BODY_BYTES; at += sizeof part) {
        frames_data(said, 3, false, part, sizeof part);
    }
}

/* Sends the frames, waits until the server has read them and acted on them, and empties `said`. */
static void say_frames(
    struct loop_host *host, int client, struct frames *said, uint64_t *said_bytes)
{
    uint64_t ignored = 0;
    *said_bytes += said->size;
    wire_send(client, said->bytes, said->size);
    assert_true(wait_received(host, *said_bytes));
    for (int i = 0; i < 4; i++) {
        loop_host_act(host->loops[i % 2], add_received, &ignored);
    }
    frames_deinit(said);
    *said = (struct frames){0};
}

/* The client reads nothing until the server has received everything, and then gets the whole
 * answer. */
static void loses_no_answer_to_a_body_that_crosses_an_orderly_end(void **state)
{
    struct loop_host *host = *state;
    static const uint8_t windows[] = {0, 4, 0x7f, 0xff, 0xff, 0xff};
    struct eb_address address;
    struct frames said = {0};
    char answer[4096];
    uint64_t said_bytes = 0;
    size_t got = 0;
    ssize_t count;
    loop_host_serve(host, &address);
    int client = wire_connect(&address, sizeof answer);
    assert_true(loop_host_wait_conns(host, 1, TIMEOUT_MS));
    frames_put(&said, WIRE_HELLO, WIRE_HELLO_BYTES);
    frames_head(&said, sizeof windows, FRAME_SETTINGS, 0, 0);
    frames_put(&said, windows, sizeof windows);
    frames_head(&said, 4, FRAME_WINDOW_UPDATE, 0, 0);
    frames_put32(&said, 0x7ffe0000);
    say_frames(host, client, &said, &said_bytes);
    loop_host_drain(host);
    read_drain_ping(client);
    put_last_call(&said);
    say_frames(host, client, &said, &said_bytes);
    put_crossing_call(&said);
    say_frames(host, client, &said, &said_bytes);
    while ((count = recv(client, answer, sizeof answer, 0)) > 0) {
        got += (size_t)count;
    }
    assert_int_equal(count, 0);
    assert_true(got > ANSWER_BYTES);
    close(client);
}

EB_TEST_GROUP(conn)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, loop_host_set_up, loop_host_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(closes_a_connection_that_says_nothing),
        FIXTURE(closes_a_connection_whose_preface_does_not_end),
        FIXTURE(closes_a_connection_whose_headers_do_not_end),
        FIXTURE(keeps_an_idle_connection_that_speaks_http2),
        FIXTURE(ends_a_call_whose_message_stalls),
        FIXTURE(closes_a_peer_that_does_not_read_and_takes_its_memory_back),
        FIXTURE(takes_its_memory_back_from_a_peer_that_opens_no_window),
        FIXTURE(takes_its_memory_back_from_a_peer_that_vanishes),
        FIXTURE(sends_a_large_answer_without_waiting_for_a_tick),
        FIXTURE(tells_a_client_of_http1_what_it_has_reached),
        FIXTURE(closes_a_client_that_does_not_end_its_side_after_a_while),
        FIXTURE(resets_a_bad_peer_that_sends_on),
        FIXTURE(loses_no_answer_to_a_body_that_crosses_an_orderly_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
