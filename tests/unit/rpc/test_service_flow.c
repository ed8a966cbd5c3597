#include "tests/lib/test_group.h"
#include "tests/unit/grpc/header_blocks.h"
#include "tests/unit/rpc/service_host.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define MIB (UINT32_C(1) << 20)
#define WINDOW_BYTES 65535 /* of a connection whose peer does not change it */
/* Answer memory that an idle lookup keeps: one block of its arena. */
#define IDLE_LOOKUP_BYTES (UINT32_C(32) << 10)

/* ---- a peer that controls its windows ---- */

struct raw_peer {
    int socket;
    struct frames out;
    struct frames in;
};

static void raw_open(struct raw_peer *peer, const struct service_host *host)
{
    *peer = (struct raw_peer){.socket = wire_connect(&host->address, 0)};
    assert_true(peer->socket >= 0);
    frames_open(&peer->out);
}

static void raw_close(struct raw_peer *peer)
{
    close(peer->socket);
    frames_deinit(&peer->out);
    frames_deinit(&peer->in);
}

static void raw_put_message_on(
    struct raw_peer *peer, uint32_t stream_id, const struct service_request *request, bool ends)
{
    uint8_t prefix[] = {0, 0, 0, 0, 0};
    struct frames message = {0};
    size_t size;
    uint8_t *bytes = service_request_encode(request, &size);
    assert_true(size < 256);
    prefix[4] = (uint8_t)size;
    frames_put(&message, prefix, sizeof prefix);
    frames_put(&message, bytes, size);
    frames_data(&peer->out, stream_id, ends, message.bytes, message.size);
    frames_deinit(&message);
    free(bytes);
}

static void raw_put_message(struct raw_peer *peer, const struct service_request *request, bool ends)
{
    raw_put_message_on(peer, 1, request, ends);
}

static void raw_send(struct raw_peer *peer)
{
    wire_send(peer->socket, peer->out.bytes, peer->out.size);
    peer->out.size = 0;
}

static void raw_receive(struct raw_peer *peer)
{
    uint8_t bytes[65536];
    struct pollfd waited = {.fd = peer->socket, .events = POLLIN};
    if (poll(&waited, 1, SERVICE_HOST_TIMEOUT_MS) > 0) {
        ssize_t got = recv(peer->socket, bytes, sizeof bytes, 0);
        assert_true(got > 0);
        frames_put(&peer->in, bytes, (size_t)got);
    }
}

/* Reads until `count` frames of this type and with this flag have arrived. */
static void raw_read(struct raw_peer *peer, uint8_t type, uint8_t flag, size_t count)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    struct frame frame;
    size_t at = 0;
    while (count > 0 && uv_hrtime() < deadline_ns) {
        if (frames_next(&peer->in, &at, &frame)) {
            count -= frame.type == type && (frame.flags & flag) == flag;
        } else {
            raw_receive(peer);
        }
    }
    assert_int_equal(count, 0);
}

/* Waits until the server has handled everything sent so far. */
static void raw_settle(struct raw_peer *peer)
{
    frames_head(&peer->out, 8, FRAME_PING, 0, 0);
    frames_put(&peer->out, "12345678", 8);
    raw_send(peer);
    raw_read(peer, FRAME_PING, FLAG_ACK, 1);
}

static void raw_open_windows(struct raw_peer *peer)
{
    for (uint32_t stream_id = 0; stream_id < 2; stream_id++) {
        frames_head(&peer->out, 4, FRAME_WINDOW_UPDATE, 0, stream_id);
        frames_put32(&peer->out, UINT32_C(1) << 30);
    }
    raw_send(peer);
}

static uint64_t raw_data_bytes(const struct raw_peer *peer)
{
    uint64_t bytes = 0;
    size_t at = 0;
    struct frame frame;
    while (frames_next(&peer->in, &at, &frame)) {
        bytes += frame.type == FRAME_DATA ? frame.length : 0;
    }
    return bytes;
}

/* Reads until answers have filled the connection's window. */
static void raw_fill_window(struct raw_peer *peer)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (raw_data_bytes(peer) < WINDOW_BYTES && uv_hrtime() < deadline_ns) {
        raw_receive(peer);
    }
    assert_int_equal(raw_data_bytes(peer), WINDOW_BYTES);
}

static void refuses_a_unary_call_without_a_message(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    static const char *const paths[][2] = {
        {":path", SERVICE_HOST_METHOD("Lookup")}, {":path", SERVICE_HOST_METHOD("GetServer")}};
    struct raw_peer peer;
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, true, paths[0]);
    frames_request(&peer.out, 3, true, paths[1]);
    raw_send(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 2);
    assert_int_equal(header_blocks_read(&peer.in, 1).grpc_status, EB_STATUS_UNIMPLEMENTED);
    assert_int_equal(header_blocks_read(&peer.in, 3).grpc_status, EB_STATUS_UNIMPLEMENTED);
    raw_close(&peer);
}

/* ---- pauses ---- */

static void does_not_read_a_stream_past_in_flight_max(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.in_flight_max = 2;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    /* If the second request 1 were read now, it would be refused: the first is still in flight. */
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 1}, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 2, .bags = 1}, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 1}, true);
    service_peer_settle(&fixture->peer);
    assert_int_equal(fixture->call.count, 0);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture->call.answers[i].error_code, 0);
    }
}

static void reads_on_when_the_lookup_of_a_cancelled_call_is_back(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call cancelled;
    fixture->host.limits.in_flight_max = 1;
    fixture->host.loops.options.limits.tick_ms = 1000000;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &cancelled, STREAM, 0);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_peer_settle(&fixture->peer);
    service_call_write(&cancelled, &(struct service_request){.id = 1, .bags = 1}, false);
    wire_peer_send(&fixture->peer);
    service_call_write(&fixture->call, &(struct service_request){.id = 2, .bags = 1}, true);
    service_peer_settle(&fixture->peer);
    eb_grpc_client_cancel(cancelled.wire.call);
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 1);
    assert_int_equal(cancelled.count, 0);
}

#define ANSWERS 20
#define ANSWER_BAGS 30000
#define ANSWER_BYTES_MAX (UINT32_C(256) << 10) /* the most that one answer takes from the pool */

/* Waits until at least `bytes` are taken and the amount no longer changes. Returns the amount
 * taken, also after a timeout. */
static uint64_t wait_until_quiet(struct raw_peer *peer, struct service_host *host, uint64_t bytes)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    uint64_t before_bytes = 0;
    uint64_t taken_bytes = loop_host_taken_bytes(&host->loops);
    for (int quiet = 0; quiet < 5 && uv_hrtime() < deadline_ns;) {
        before_bytes = taken_bytes;
        raw_settle(peer);
        uv_sleep(1);
        taken_bytes = loop_host_taken_bytes(&host->loops);
        quiet = taken_bytes >= bytes && taken_bytes == before_bytes ? quiet + 1 : 0;
    }
    return taken_bytes;
}

/* Expects a stream of ANSWERS requests not to be read beyond outbound_bytes_max of answers, and to
 * be read again when its peer opens its windows. */
static void expect_paused_by_answers(struct service_host *host)
{
    static const char *const path[2] = {":path", STREAM};
    struct raw_peer peer;
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, false, path);
    for (uint64_t i = 1; i <= ANSWERS; i++) {
        struct service_request request = {.id = i, .bags = ANSWER_BAGS};
        raw_put_message(&peer, &request, i == ANSWERS);
    }
    uint64_t taken_bytes = wait_until_quiet(&peer, host, MIB);
    raw_open_windows(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 1);
    enum eb_status status = (enum eb_status)header_blocks_read(&peer.in, 1).grpc_status;
    uint64_t data_bytes = raw_data_bytes(&peer);
    raw_close(&peer);
    bool is_closed = loop_host_wait_conns(&host->loops, 0, SERVICE_HOST_TIMEOUT_MS);
    bool is_given_back = service_host_wait_taken(host, ANSWERS * IDLE_LOOKUP_BYTES);
    service_host_stop(host);
    assert_int_equal(status, EB_STATUS_OK);
    assert_int_equal(data_bytes % ANSWERS, 0);
    assert_true(data_bytes / ANSWERS > ANSWER_BAGS * SERVICE_HOST_ROW_BYTES);
    assert_true(taken_bytes >= MIB);
    assert_true(taken_bytes < 3 * MIB);
    assert_true(is_closed);
    assert_true(is_given_back);
}

static void does_not_read_a_stream_whose_answers_are_not_read(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    host->limits.outbound_bytes_max = MIB;
    host->limits.inline_below_us = 1000000;
    expect_paused_by_answers(host);
}

static void counts_answers_that_the_executor_has_before_it_reads_on(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    host->limits.outbound_bytes_max = MIB;
    expect_paused_by_answers(host);
}

static void parks_a_unary_call_past_outbound_bytes_max(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    static const char *const path[2] = {":path", SERVICE_HOST_METHOD("Lookup")};
    struct raw_peer peer;
    host->limits.outbound_bytes_max = ANSWER_BYTES_MAX / 2;
    host->limits.inline_below_us = 1000000;
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, false, path);
    raw_put_message(&peer, &(struct service_request){.bags = ANSWER_BAGS}, true);
    raw_send(&peer);
    raw_fill_window(&peer);
    frames_request(&peer.out, 3, false, path);
    frames_data(&peer.out, 3, true, "\0\0\0\0\0", 5);
    raw_settle(&peer);
    /* Only the first call has HEADERS, which need no window. */
    assert_int_equal(frames_count(&peer.in, FRAME_HEADERS, NULL), 1);
    raw_open_windows(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 2);
    assert_int_equal(header_blocks_read(&peer.in, 1).grpc_status, EB_STATUS_OK);
    assert_int_equal(header_blocks_read(&peer.in, 3).grpc_status, EB_STATUS_OK);
    raw_close(&peer);
}

/* ---- deadlines of answers that wait to be sent ---- */

#define TIMEOUT_MS 20

/* Reads the messages of stream 1 and stores their error codes in codes[id]. Returns how many there
 * are. */
static size_t raw_read_codes(const struct raw_peer *peer, uint32_t codes[], size_t ids)
{
    struct frames data = {0};
    struct frame frame;
    size_t count = 0;
    for (size_t at = 0; frames_next(&peer->in, &at, &frame);) {
        if (frame.type == FRAME_DATA && frame.stream_id == 1) {
            frames_put(&data, frame.payload, frame.length);
        }
    }
    for (size_t at = 0; at + 5 <= data.size; count++) {
        const uint8_t *head = data.bytes + at;
        size_t size =
            (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
        struct eb_arena arena;
        struct eb_error error;
        eb_arena_init(&arena, &eb_memory_heap);
        eb_arena_reset(&arena, MIB);
        struct eb_wire_response *response =
            eb_lookup_response_decode(&arena, head + 5, size, &error);
        assert_non_null(response);
        assert_true(response->request_id < ids);
        codes[response->request_id] = response->error_code;
        eb_arena_deinit(&arena);
        at += 5 + size;
    }
    frames_deinit(&data);
    return count;
}

/* All three answers are computed at once. The first one fills the windows, and the deadline of the
 * second one passes while it waits. */
static void sends_no_answer_of_a_stream_after_its_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    static const char *const path[2] = {":path", STREAM};
    struct raw_peer peer;
    uint32_t codes[4] = {99, 99, 99, 99};
    host->limits.inline_below_us = 1000000;
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, false, path);
    for (uint64_t id = 1; id <= 3; id++) {
        struct service_request request = {.id = id, .bags = id == 1 ? ANSWER_BAGS : 1};
        request.timeout_us = id == 2 ? TIMEOUT_MS * 1000 : 0;
        raw_put_message(&peer, &request, id == 3);
    }
    raw_settle(&peer);
    uv_sleep(TIMEOUT_MS + 1);
    raw_open_windows(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 1);
    assert_int_equal(header_blocks_read(&peer.in, 1).grpc_status, EB_STATUS_OK);
    assert_int_equal(raw_read_codes(&peer, codes, 4), 3);
    assert_int_equal(codes[1], EB_STATUS_OK);
    assert_int_equal(codes[2], EB_STATUS_DEADLINE_EXCEEDED);
    assert_int_equal(codes[3], EB_STATUS_OK);
    raw_close(&peer);
    assert_true(loop_host_wait_conns(&host->loops, 0, SERVICE_HOST_TIMEOUT_MS));
}

/* The first part fills the windows. The parts that wait behind it are replaced by one error. */
static void sends_no_part_of_an_answer_after_its_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    static const char *const path[2] = {":path", STREAM};
    struct raw_peer peer;
    uint32_t codes[2] = {99, 99};
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, false, path);
    struct service_request request = {.id = 1,
        .bags = ANSWER_BAGS,
        .queries = 4,
        .partial = true,
        .timeout_us = TIMEOUT_MS * 1000};
    raw_put_message(&peer, &request, true);
    raw_settle(&peer);
    uv_sleep(TIMEOUT_MS + 1);
    raw_open_windows(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 1);
    assert_int_equal(header_blocks_read(&peer.in, 1).grpc_status, EB_STATUS_OK);
    assert_in_range(raw_read_codes(&peer, codes, 2), 1, 2);
    assert_int_equal(codes[1], EB_STATUS_DEADLINE_EXCEEDED);
    raw_close(&peer);
    assert_true(loop_host_wait_conns(&host->loops, 0, SERVICE_HOST_TIMEOUT_MS));
}

static void sends_no_answer_of_a_unary_call_after_its_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_host *host = &fixture->host;
    static const char *const path[2] = {":path", SERVICE_HOST_METHOD("Lookup")};
    struct raw_peer peer;
    host->limits.inline_below_us = 1000000;
    service_host_start(host);
    raw_open(&peer, host);
    frames_request(&peer.out, 1, false, path);
    raw_put_message(&peer, &(struct service_request){.bags = ANSWER_BAGS}, true);
    raw_send(&peer);
    raw_fill_window(&peer);
    frames_request(&peer.out, 3, false, path);
    struct service_request late = {.bags = 1, .timeout_us = TIMEOUT_MS * 1000};
    raw_put_message_on(&peer, 3, &late, true);
    raw_settle(&peer);
    uv_sleep(TIMEOUT_MS + 1);
    raw_open_windows(&peer);
    raw_read(&peer, FRAME_HEADERS, FLAG_END_STREAM, 2);
    assert_int_equal(header_blocks_read(&peer.in, 1).grpc_status, EB_STATUS_OK);
    assert_int_equal(header_blocks_read(&peer.in, 3).grpc_status, EB_STATUS_DEADLINE_EXCEEDED);
    raw_close(&peer);
    assert_true(loop_host_wait_conns(&host->loops, 0, SERVICE_HOST_TIMEOUT_MS));
}

/* ---- memory and the queue ---- */

static void refuses_what_finds_no_memory_and_recovers(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.loops.options.answer_memory_bytes = MIB / 2;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    for (uint64_t i = 1; i <= 16; i++) {
        /* The answers take 64 KiB and 1 MiB alternately. Only those of 64 KiB fit. */
        struct service_request request = {.id = i, .bags = i % 2 == 1 ? 8000 : 100000};
        service_call_write(&fixture->call, &request, i == 16);
    }
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 16);
    for (uint64_t i = 1; i <= 16; i++) {
        const struct service_answer *answer = service_call_find(&fixture->call, i);
        assert_non_null(answer);
        assert_int_equal(
            answer->error_code, i % 2 == 1 ? EB_STATUS_OK : EB_STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(answer->retry_after_ms > 0, i % 2 == 0);
    }
}

static void ends_calls_where_not_even_an_error_finds_memory(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.loops.options.answer_memory_bytes = 1;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 1}, false);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    service_call_lookup(&fixture->peer, &fixture->call, &(struct service_request){.bags = 1});
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    service_call_open(&fixture->peer, &fixture->call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write(&fixture->call.wire, 0, 0, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(fixture->call.count, 0);
}

static void keeps_few_lookups_after_a_burst(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    for (uint64_t i = 1; i <= SERVICE_HOST_ANSWERS_MAX; i++) {
        struct service_request request = {.id = i, .bags = 1};
        service_call_write(&fixture->call, &request, i == SERVICE_HOST_ANSWERS_MAX);
    }
    service_peer_settle(&fixture->peer);
    uint64_t burst_bytes = SERVICE_HOST_ANSWERS_MAX * IDLE_LOOKUP_BYTES;
    assert_true(loop_host_taken_bytes(&fixture->host.loops) >= burst_bytes);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, SERVICE_HOST_ANSWERS_MAX);
    assert_true(service_host_wait_taken(&fixture->host, burst_bytes / 3));
}

static void refuses_what_the_queue_does_not_hold(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call unary;
    /* A work item over the limit is admitted if the queue is empty. After that, no other is
     * admitted. */
    fixture->host.limits.queue_bytes_max = 1;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 1}, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 2, .bags = 1}, false);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    assert_int_equal(fixture->call.answers[0].id, 2);
    assert_int_equal(fixture->call.answers[0].error_code, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(fixture->call.answers[0].retry_after_ms > 0);
    service_call_lookup(&fixture->peer, &unary, &(struct service_request){.bags = 1});
    service_call_expect_end(&fixture->peer, &unary, EB_STATUS_RESOURCE_EXHAUSTED);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, 2);
    service_call_write(&fixture->call, &(struct service_request){.id = 3, .bags = 1}, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(service_call_find(&fixture->call, 1)->error_code, EB_STATUS_OK);
    assert_int_equal(service_call_find(&fixture->call, 3)->error_code, EB_STATUS_OK);
}

static void does_not_read_a_stream_opened_at_in_flight_max(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call late;
    fixture->host.limits.in_flight_max = 1;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 100000}, true);
    service_peer_settle(&fixture->peer);
    uint64_t one_bytes = loop_host_taken_bytes(&fixture->host.loops);
    service_call_open(&fixture->peer, &late, STREAM, 0);
    service_call_write(&late, &(struct service_request){.id = 2, .bags = 100000}, true);
    service_peer_settle(&fixture->peer);
    assert_true(loop_host_taken_bytes(&fixture->host.loops) < one_bytes + 100000);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &late, EB_STATUS_OK);
}

EB_TEST_GROUP(service_flow)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(does_not_read_a_stream_opened_at_in_flight_max),
        FIXTURE(refuses_a_unary_call_without_a_message),
        FIXTURE(does_not_read_a_stream_past_in_flight_max),
        FIXTURE(reads_on_when_the_lookup_of_a_cancelled_call_is_back),
        FIXTURE(does_not_read_a_stream_whose_answers_are_not_read),
        FIXTURE(counts_answers_that_the_executor_has_before_it_reads_on),
        FIXTURE(parks_a_unary_call_past_outbound_bytes_max),
        FIXTURE(sends_no_answer_of_a_stream_after_its_deadline),
        FIXTURE(sends_no_part_of_an_answer_after_its_deadline),
        FIXTURE(sends_no_answer_of_a_unary_call_after_its_deadline),
        FIXTURE(refuses_what_finds_no_memory_and_recovers),
        FIXTURE(ends_calls_where_not_even_an_error_finds_memory),
        FIXTURE(keeps_few_lookups_after_a_burst),
        FIXTURE(refuses_what_the_queue_does_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
