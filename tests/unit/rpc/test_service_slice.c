#include "server/net/time_slice.h"
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/frames.h"
#include "tests/unit/rpc/service_host.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define UNARY SERVICE_HOST_METHOD("Lookup")
#define FLOOD_BYTES (UINT32_C(8) << 20)
#define FLOOD_MIN 4000 /* the test proves nothing if the sockets hold fewer messages */
#define FRAME_BYTES 16384
#define WINDOW_BYTES (UINT32_C(1) << 30)
#define FLOODS 8

/* What the loop has seen: messages of the floods, and the end of the other connection's call. Each
 * connection has one stream, and only the stream of the other connection ends. Only the loop's
 * thread may use this struct until the loop is held. */
static struct {
    struct eb_grpc_server_handler calls; /* the handlers of the service */
    size_t flood_count;
    size_t flood_count_at;     /* flood_count when the other connection sent its request */
    size_t flood_count_before; /* flood messages before the other connection's call was over */
    bool is_other_over;
} watch;

static void count_message(void *context, struct eb_grpc_call *call, struct eb_grpc_message message)
{
    watch.flood_count++;
    watch.calls.on_message(context, call, message);
}

static void note_close(void *context, struct eb_grpc_call *call)
{
    if (!watch.is_other_over) {
        watch.is_other_over = true;
        watch.flood_count_before = watch.flood_count - 1;
    }
    watch.calls.on_close(context, call);
}

struct fixture {
    struct service_host host;
    int floods[FLOODS];
    unsigned flood_count;
    int other;
    struct frames flood_bytes;
    struct frames other_bytes;
    size_t message_bytes; /* size of one flood message, including its prefix */
    size_t sent_bytes;    /* bytes of floods sent while the loop was held */
    ssize_t other_sent_bytes;
};

static void watch_calls(struct eb_loop *loop, void *context)
{
    struct fixture *fixture = context;
    struct eb_grpc_server_handler *calls = &fixture->host.loops.options.events.calls;
    (void)loop;
    memset(&watch, 0, sizeof watch);
    watch.calls = *calls;
    calls->on_message = count_message;
    calls->on_close = note_close;
}

/* Reads until a frame of this type and with this flag has arrived. */
static void read_until(int socket, uint8_t type, uint8_t flag)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    struct frames in = {0};
    struct frame frame;
    size_t at = 0;
    bool is_found = false;
    while (!is_found && uv_hrtime() < deadline_ns) {
        uint8_t bytes[65536];
        struct pollfd waited = {.fd = socket, .events = POLLIN};
        if (frames_next(&in, &at, &frame)) {
            is_found = frame.type == type && (frame.flags & flag) == flag;
        } else if (poll(&waited, 1, SERVICE_HOST_TIMEOUT_MS) > 0) {
            ssize_t got = recv(socket, bytes, sizeof bytes, 0);
            assert_true(got > 0);
            frames_put(&in, bytes, (size_t)got);
        }
    }
    frames_deinit(&in);
    assert_true(is_found);
}

static void put_message(struct frames *out)
{
    uint8_t prefix[] = {0, 0, 0, 0, 0};
    size_t size;
    uint8_t *bytes = service_request_encode(&(struct service_request){.id = 1, .bags = 1}, &size);
    assert_true(size < 256);
    prefix[4] = (uint8_t)size;
    frames_put(out, prefix, sizeof prefix);
    frames_put(out, bytes, size);
    free(bytes);
}

/* Opens a connection that has acknowledged the server's settings and opened its own windows. */
static int open_peer(const struct service_host *host, const char *path)
{
    const char *const field[2] = {":path", path};
    struct frames hello = {0};
    int socket = wire_connect(&host->address, 0);
    assert_true(socket >= 0);
    frames_open(&hello);
    frames_head(&hello, 0, FRAME_SETTINGS, FLAG_ACK, 0);
    frames_request(&hello, 1, false, field);
    for (uint32_t stream_id = 0; stream_id < 2; stream_id++) {
        frames_head(&hello, 4, FRAME_WINDOW_UPDATE, 0, stream_id);
        frames_put32(&hello, WINDOW_BYTES);
    }
    frames_head(&hello, 8, FRAME_PING, 0, 0);
    frames_put(&hello, "12345678", 8);
    wire_send(socket, hello.bytes, hello.size);
    read_until(socket, FRAME_PING, FLAG_ACK);
    frames_deinit(&hello);
    return socket;
}

static void make_flood(struct fixture *fixture)
{
    struct frames message = {0};
    struct frames messages = {0};
    put_message(&message);
    fixture->message_bytes = message.size;
    while (messages.size < FLOOD_BYTES) {
        frames_put(&messages, message.bytes, message.size);
    }
    for (size_t at = 0; at < FLOOD_BYTES; at += FRAME_BYTES) {
        frames_data(&fixture->flood_bytes, 1, false, messages.bytes + at, FRAME_BYTES);
    }
    frames_deinit(&messages);
    frames_deinit(&message);
}

/* Sends as much of the floods as their sockets take. */
static void send_floods(struct eb_loop *loop, void *context)
{
    struct fixture *fixture = context;
    const struct frames *flood = &fixture->flood_bytes;
    (void)loop;
    for (unsigned i = 0; i < fixture->flood_count; i++) {
        size_t sent_bytes = 0;
        ssize_t got = 1;
        while (got > 0 && sent_bytes < flood->size) {
            got = send(fixture->floods[i], flood->bytes + sent_bytes, flood->size - sent_bytes,
                MSG_NOSIGNAL | MSG_DONTWAIT);
            sent_bytes += got > 0 ? (size_t)got : 0;
        }
        fixture->sent_bytes += sent_bytes;
    }
}

static void send_other(struct eb_loop *loop, void *context)
{
    struct fixture *fixture = context;
    (void)loop;
    watch.flood_count_at = watch.flood_count;
    fixture->other_sent_bytes =
        send(fixture->other, fixture->other_bytes.bytes, fixture->other_bytes.size, MSG_NOSIGNAL);
}

static void send_floods_and_other(struct eb_loop *loop, void *context)
{
    send_floods(loop, context);
    send_other(loop, context);
}

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
    service_host_stop(&fixture->host);
    free(fixture);
    return 0;
}

static void start_floods(struct fixture *fixture, unsigned flood_count, uint64_t slice_ns)
{
    struct frames message = {0};
    fixture->flood_count = flood_count;
    fixture->host.limits.inline_below_us = 15;
    fixture->host.loops.options.limits.conn.slice_ns = slice_ns;
    service_host_start(&fixture->host);
    loop_host_act(fixture->host.loops.loops[0], watch_calls, fixture);
    for (unsigned i = 0; i < flood_count; i++) {
        fixture->floods[i] = open_peer(&fixture->host, STREAM);
    }
    fixture->other = open_peer(&fixture->host, STREAM);
    make_flood(fixture);
    put_message(&message);
    frames_data(&fixture->other_bytes, 1, true, message.bytes, message.size);
    frames_deinit(&message);
}

/* Waits until the call of the other connection is over, and ends the floods. Returns how many flood
 * messages were sent. */
static size_t stop_floods(struct fixture *fixture)
{
    read_until(fixture->other, FRAME_HEADERS, FLAG_END_STREAM);
    service_host_settle(&fixture->host);
    size_t sent_count = fixture->sent_bytes / fixture->message_bytes;
    for (unsigned i = 0; i < fixture->flood_count; i++) {
        close(fixture->floods[i]);
    }
    close(fixture->other);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_stop(&fixture->host);
    frames_deinit(&fixture->flood_bytes);
    frames_deinit(&fixture->other_bytes);
    assert_true(fixture->other_sent_bytes > 0);
    assert_true(watch.is_other_over);
    return sent_count;
}

static void serves_others_before_the_rest_of_a_flood(void **state)
{
    struct fixture *fixture = *state;
    start_floods(fixture, 1, EB_TIME_SLICE_NS);
    loop_host_act(fixture->host.loops.loops[0], send_floods_and_other, fixture);
    assert_true(stop_floods(fixture) >= FLOOD_MIN);
    /* The flood had one or two time slices, each of at most EB_TIME_SLICE_READ_FIRST bytes. */
    assert_true(watch.flood_count_before <= 2 * EB_TIME_SLICE_READ_FIRST / fixture->message_bytes);
}

static void read_flood_count(struct eb_loop *loop, void *context)
{
    (void)loop;
    *(size_t *)context = watch.flood_count;
}

/* Every message ends a time slice. */
static void serves_one_of_many_floods_before_others(void **state)
{
    struct fixture *fixture = *state;
    size_t flood_count = 0;
    start_floods(fixture, FLOODS, 1);
    loop_host_act(fixture->host.loops.loops[0], send_floods, fixture);
    while (flood_count < 10 * FLOODS) {
        loop_host_act(fixture->host.loops.loops[0], read_flood_count, &flood_count);
    }
    loop_host_act(fixture->host.loops.loops[0], send_other, fixture);
    assert_true(stop_floods(fixture) > watch.flood_count_before);
    /* One flood may be in the middle of a message, and another may have a slice before the loop
     * next polls its sockets. */
    assert_true(watch.flood_count_before - watch.flood_count_at < FLOODS);
}

#define CALLS 8
#define MESSAGES 25 /* per stream */

/* Every message ends a time slice. */
static void loses_nothing_that_is_put_off(void **state)
{
    struct fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    struct wire_peer peer;
    struct service_call streams[CALLS];
    struct service_call unary[CALLS];
    host->limits.inline_below_us = 15;
    host->loops.options.limits.conn.slice_ns = 1;
    host->loops.options.limits.tick_ms = 1000000;
    service_host_start(host);
    wire_peer_open(&peer, &host->address);
    for (int i = 0; i < CALLS; i++) {
        service_call_open(&peer, &streams[i], STREAM, 0);
        service_call_lookup(&peer, &unary[i], &(struct service_request){.bags = 1});
        for (uint64_t id = 1; id <= MESSAGES; id++) {
            struct service_request request = {.id = id, .bags = 1};
            service_call_write(&streams[i], &request, id == MESSAGES);
        }
    }
    for (int i = 0; i < CALLS; i++) {
        service_call_expect_end(&peer, &streams[i], EB_STATUS_OK);
        service_call_expect_end(&peer, &unary[i], EB_STATUS_OK);
        assert_int_equal(streams[i].count, MESSAGES);
    }
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(&host->loops, 0, SERVICE_HOST_TIMEOUT_MS));
}

EB_TEST_GROUP(service_slice)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(serves_others_before_the_rest_of_a_flood),
        FIXTURE(serves_one_of_many_floods_before_others),
        FIXTURE(loses_nothing_that_is_put_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
