#include "tests/unit/grpc/frames.h"
#include "tests/unit/server/loop_host.h"
#include "tests/unit/server/wire_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000 /* of what must happen */
#define SHORT_MS 100     /* a limit that a test waits for */
#define MIB (UINT32_C(1) << 20)

static const bool never;

/* ---- time limits ---- */

/* A connection that has sent just these bytes is closed for it, after a while. */
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
    loop_host_stop(host);
}

static void closes_a_connection_that_says_nothing(void **state)
{
    (void)state;
    struct loop_host host;
    loop_host_init(&host);
    host.options.conn_limits.header_timeout_ms = SHORT_MS;
    expect_closed(&host, NULL, 0);
}

static void closes_a_connection_whose_preface_does_not_end(void **state)
{
    (void)state;
    struct loop_host host;
    loop_host_init(&host);
    host.options.conn_limits.header_timeout_ms = SHORT_MS;
    expect_closed(&host, WIRE_HELLO, 20);
}

static void closes_a_connection_whose_headers_do_not_end(void **state)
{
    (void)state;
    struct loop_host host;
    /* HEADERS of stream 1 that hold :method POST and are not the end of the block. */
    static const char half[] = WIRE_HELLO "\0\0\1\1\0\0\0\0\1\x83";
    loop_host_init(&host);
    host.options.conn_limits.header_timeout_ms = SHORT_MS;
    expect_closed(&host, half, sizeof half - 1);
}

/* On the loop's thread: whether its clock has come to *context. */
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

/* Until the loop's clock has moved on by `ms`. */
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
    (void)state;
    struct loop_host host;
    struct eb_address address;
    struct wire_peer peer;
    loop_host_init(&host);
    host.options.conn_limits.header_timeout_ms = SHORT_MS;
    host.options.conn_limits.write_timeout_ms = SHORT_MS;
    loop_host_serve(&host, &address);
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 10));
    let_pass(host.loops[0], 2 * SHORT_MS);
    let_pass(host.loops[1], 2 * SHORT_MS);
    assert_true(wire_peer_echo(&peer, 10));
    assert_int_equal(loop_host_conn_count(&host), 1);
    wire_peer_close(&peer);
    loop_host_stop(&host);
}

static void ends_a_call_whose_message_stalls(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    loop_host_init(&host);
    host.options.conn_limits.session.message_stall_ms_max = SHORT_MS;
    loop_host_serve(&host, &address);
    wire_peer_open(&peer, &address);
    wire_peer_call(&peer, &call, "/t/Echo");
    wire_peer_write(&call, 1000, 1, false);
    assert_true(wire_peer_run(&peer, &call.is_finished, TIMEOUT_MS));
    assert_int_equal(call.error.status, EB_STATUS_DEADLINE_EXCEEDED);
    assert_true(wire_peer_echo(&peer, 10));
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(&host, 0, TIMEOUT_MS));
    assert_int_equal(loop_host_taken_bytes(&host), 0);
    loop_host_stop(&host);
}

/* ---- writing ---- */

static void closes_a_peer_that_does_not_read_and_takes_its_memory_back(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    loop_host_init(&host);
    host.options.conn_limits.write_timeout_ms = SHORT_MS;
    loop_host_serve(&host, &address);
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 10));
    wire_peer_call(&peer, &call, "/t/Large");
    wire_peer_write_number(&call, 20 * MIB);
    wire_peer_send(&peer);
    assert_true(loop_host_wait_conns(&host, 0, TIMEOUT_MS));
    assert_int_equal(atomic_load(&host.message_count), 2);
    assert_int_equal(loop_host_taken_bytes(&host), 0);
    assert_false(call.is_finished);
    wire_peer_close(&peer);
    loop_host_stop(&host);
}

static void takes_its_memory_back_from_a_peer_that_opens_no_window(void **state)
{
    (void)state;
    static const char *const path[2] = {":path", "/t/Large"};
    static const uint8_t message[] = {0, 0, 0, 0, 4, 0, 0, 16, 0};
    struct loop_host host;
    struct eb_address address;
    struct frames request = {0};
    loop_host_init(&host);
    host.options.conn_limits.session.answer_stall_ms_max = SHORT_MS;
    loop_host_serve(&host, &address);
    frames_open(&request);
    frames_request(&request, 1, false, path);
    frames_data(&request, 1, true, message, sizeof message);
    int client = wire_connect(&address, 0);
    wire_send(client, request.bytes, request.size);
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while ((atomic_load(&host.message_count) == 0 || loop_host_taken_bytes(&host) >= MIB) &&
           uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(atomic_load(&host.message_count), 1);
    assert_true(loop_host_taken_bytes(&host) < MIB);
    assert_int_equal(loop_host_conn_count(&host), 1);
    close(client);
    frames_deinit(&request);
    loop_host_stop(&host);
}

static void takes_its_memory_back_from_a_peer_that_vanishes(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call calls[3];
    loop_host_init(&host);
    loop_host_serve(&host, &address);
    wire_peer_open(&peer, &address);
    for (int i = 0; i < 3; i++) {
        wire_peer_call(&peer, &calls[i], "/t/Large");
        wire_peer_write_number(&calls[i], 8 * MIB);
    }
    wire_peer_send(&peer);
    assert_false(wire_peer_run(&peer, &never, 20));
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(&host, 0, TIMEOUT_MS));
    assert_int_equal(loop_host_taken_bytes(&host), 0);
    loop_host_stop(&host);
}

static void sends_a_large_answer_without_waiting_for_a_tick(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    loop_host_init(&host);
    host.options.tick_ms = 1000000;
    loop_host_serve(&host, &address);
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
    loop_host_stop(&host);
}

static void tells_a_client_of_http1_what_it_has_reached(void **state)
{
    (void)state;
    static const char request[] = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    struct loop_host host;
    struct eb_address address;
    char answer[1024] = "";
    loop_host_init(&host);
    loop_host_serve(&host, &address);
    int client = wire_connect(&address, 0);
    wire_send(client, request, sizeof request - 1);
    assert_true(wire_read_to_end(client, TIMEOUT_MS, answer, sizeof answer));
    assert_memory_equal(answer, "HTTP/1.1 400 ", 13);
    assert_non_null(strstr(answer, "this port speaks gRPC over HTTP/2"));
    close(client);
    assert_true(loop_host_wait_conns(&host, 0, TIMEOUT_MS));
    loop_host_stop(&host);
}

static void closes_a_client_that_does_not_end_its_side_after_a_while(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_address address;
    loop_host_init(&host);
    loop_host_serve(&host, &address);
    int client = wire_connect(&address, 0);
    wire_send(client, "junk", 4);
    assert_true(wire_read_to_end(client, TIMEOUT_MS, NULL, 0));
    wire_send(client, WIRE_HELLO, WIRE_HELLO_BYTES);
    assert_true(loop_host_wait_conns(&host, 0, TIMEOUT_MS));
    close(client);
    loop_host_stop(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closes_a_connection_that_says_nothing),
        cmocka_unit_test(closes_a_connection_whose_preface_does_not_end),
        cmocka_unit_test(closes_a_connection_whose_headers_do_not_end),
        cmocka_unit_test(keeps_an_idle_connection_that_speaks_http2),
        cmocka_unit_test(ends_a_call_whose_message_stalls),
        cmocka_unit_test(closes_a_peer_that_does_not_read_and_takes_its_memory_back),
        cmocka_unit_test(takes_its_memory_back_from_a_peer_that_opens_no_window),
        cmocka_unit_test(takes_its_memory_back_from_a_peer_that_vanishes),
        cmocka_unit_test(sends_a_large_answer_without_waiting_for_a_tick),
        cmocka_unit_test(tells_a_client_of_http1_what_it_has_reached),
        cmocka_unit_test(closes_a_client_that_does_not_end_its_side_after_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
