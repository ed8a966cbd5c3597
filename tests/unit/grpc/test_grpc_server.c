/* The server's promises about memory, windows, time and split input. */
#include "tests/unit/grpc/pair.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALL SIZE_MAX

/* Returns the bytes of a client that begins several calls at once before it has heard from a
 * server. */
static struct frames record_client(struct pair *pair)
{
    struct frames bytes = {0};
    pair_write(pair_call(pair, 0, "/t/Echo"), 40, true);
    pair_write(pair_call(pair, 1, "/t/Refuse"), 9, true);
    struct client_call *client_call = pair_call(pair, 2, "/t/Echo");
    pair_write(client_call, 0, false);
    pair_write(client_call, 7, false);
    pair_write(client_call, 300, true);
    pair_write(pair_call(pair, 3, "/t/First"), 20, false);
    assert_true(eb_grpc_client_send(pair->client));
    host_drain_queue(eb_grpc_client_queue(pair->client), &bytes);
    return bytes;
}

static void answers_the_same_wherever_its_input_is_cut(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_true(pair_start(&pair, 1000));
    struct frames input = record_client(&pair);
    struct frames expected = {0};
    for (size_t cut = 0; cut <= input.size; cut++) {
        struct host host;
        host_init(&host, 0);
        assert_true(host_start(&host));
        if (cut > 0) {
            host_receive(&host, input.bytes, cut);
        }
        if (cut < input.size) {
            host_receive(&host, input.bytes + cut, input.size - cut);
        }
        host_write(&host);
        assert_false(host.is_over);
        assert_int_equal(host.message_count, 5);
        if (cut == 0) {
            frames_put(&expected, host.sent.bytes, host.sent.size);
        }
        assert_int_equal(host.sent.size, expected.size);
        assert_memory_equal(host.sent.bytes, expected.bytes, expected.size);
        host_deinit(&host);
        assert_int_equal(host.lender.lent_count, 0);
    }
    frames_deinit(&expected);
    frames_deinit(&input);
    pair_deinit(&pair);
}

static void the_client_sees_the_same_wherever_its_input_is_cut(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_true(pair_start(&pair, 1000));
    struct frames input = record_client(&pair);
    host_receive(&pair.host, input.bytes, input.size);
    host_write(&pair.host);
    const struct frames *answer = &pair.host.sent;
    for (size_t cut = 1; cut < answer->size; cut++) {
        struct pair other;
        pair_init(&other);
        assert_true(pair_start(&other, 1000));
        struct frames ignored = record_client(&other);
        assert_true(eb_grpc_client_receive(other.client, answer->bytes, cut));
        assert_true(eb_grpc_client_receive(other.client, answer->bytes + cut, answer->size - cut));
        assert_int_equal(other.client_calls[0].message_bytes, 40);
        assert_int_equal(other.client_calls[0].error.status, EB_STATUS_OK);
        assert_int_equal(other.client_calls[1].error.status, EB_STATUS_NOT_FOUND);
        assert_int_equal(other.client_calls[2].message_count, 3);
        assert_int_equal(other.client_calls[3].error.status, EB_STATUS_FAILED_PRECONDITION);
        for (size_t i = 0; i < 4; i++) {
            assert_true(other.client_calls[i].finished);
            assert_false(other.client_calls[i].is_wrong);
        }
        frames_deinit(&ignored);
        pair_deinit(&other);
        assert_int_equal(other.lender.lent_count, 0);
    }
    frames_deinit(&input);
    pair_deinit(&pair);
}

/* Makes calls that take memory of every kind on both sides. */
static void converse(struct pair *pair)
{
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 90000, false);
    pair_write(client_call, 5, true);
    client_call = pair_call(pair, 1, "/t/Slow");
    pair_write(client_call, 10, false);
    pair_write(client_call, 20000, true);
    pair_run(pair, 4000);
    if (pair->host.call) {
        eb_grpc_call_resume(pair->host.call);
    }
    pair_run(pair, 4000);
}

/* Returns whether a call has ended or could not even begin. */
static bool is_over(const struct client_call *client_call)
{
    return client_call->finished || !client_call->was_started;
}

/* Runs the calls with the n-th allocation of one side failing. Returns whether the n-th allocation
 * was reached. Calls may fail, but all of them end and nothing leaks. */
static bool converse_failing(size_t host_fails_at, size_t client_fails_at)
{
    struct pair pair;
    pair_init(&pair);
    pair.host.lender.fail_at = host_fails_at;
    pair.lender.fail_at = client_fails_at;
    assert_true(pair_start(&pair, 200000));
    converse(&pair);
    bool reached = (host_fails_at > 0 && pair.host.lender.taken_count >= host_fails_at) ||
                   (client_fails_at > 0 && pair.lender.taken_count >= client_fails_at);
    bool all_well =
        pair.client_calls[0].error.status == EB_STATUS_OK && pair.client_calls[0].finished &&
        pair.client_calls[1].error.status == EB_STATUS_OK && pair.client_calls[1].finished;
    assert_true(reached || all_well);
    pair_deinit(&pair);
    assert_true(is_over(&pair.client_calls[0]) && is_over(&pair.client_calls[1]));
    assert_int_equal(pair.host.lender.lent_count, 0);
    assert_int_equal(pair.lender.lent_count, 0);
    assert_int_equal(host_outgoing_live(), 0);
    assert_int_equal(pair.host.call_count, pair.host.close_count);
    return reached;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    size_t count = 0;
    while (converse_failing(count + 1, 0)) {
        count++;
    }
    assert_true(count > 8);
    count = 0;
    while (converse_failing(0, count + 1)) {
        count++;
    }
    assert_true(count > 4);
}

static void refuses_a_message_without_memory_and_goes_on(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_true(pair_start(&pair, 200000));
    pair_run(&pair, ALL);
    struct client_call *client_call = pair_call(&pair, 0, "/t/Echo");
    pair_write(client_call, 500, true);
    pair.host.lender.fail_at = pair.host.lender.taken_count + 1;
    pair_run(&pair, ALL);
    assert_true(client_call->finished);
    assert_int_equal(client_call->error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    client_call = pair_call(&pair, 0, "/t/Echo");
    pair_write(client_call, 500, true);
    pair_run(&pair, ALL);
    assert_int_equal(client_call->error.status, EB_STATUS_OK);
    assert_int_equal(client_call->message_count, 1);
    pair_deinit(&pair);
}

/* Adds the first `count` bytes of a message of the largest size. */
static void put_part(struct frames *frames, uint32_t stream_id, size_t count)
{
    struct eb_outgoing *message = host_outgoing(HOST_REQUEST_BYTES_MAX);
    frames_data(frames, stream_id, false, message->bytes, count);
    eb_outgoing_drop(message);
}

static void the_youngest_of_unfinished_messages_gives_way(void **state)
{
    (void)state;
    struct host host;
    host_init(&host, 0);
    assert_true(host_start(&host));
    struct frames frames = {0};
    frames_open(&frames);
    frames_head(&frames, 0, FRAME_SETTINGS, FLAG_ACK, 0);
    for (uint32_t id = 1; id <= 5; id += 2) {
        frames_request(&frames, id, false, NULL);
    }
    /* The three parts together fill the connection's window to the byte. */
    put_part(&frames, 1, 80000);
    put_part(&frames, 3, 60000);
    host_write(&host);
    host_receive(&host, frames.bytes, frames.size);
    frames.size = 0;
    put_part(&frames, 5, 2 * (HOST_REQUEST_BYTES_MAX + 5) - 140000 - 1);
    host_receive(&host, frames.bytes, frames.size);
    host_write(&host);
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, NULL), 0);
    frames.size = 0;
    frames_data(&frames, 5, false, "x", 1);
    host_receive(&host, frames.bytes, frames.size);
    host_write(&host);
    struct frame last = {0};
    /* Two calls are ended: one alone would not free half of the window, and for less than
     * half the peer gets no WINDOW_UPDATE. */
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, &last), 2);
    assert_int_equal(last.stream_id, 3);
    assert_int_equal(frames_count(&host.sent, FRAME_RST_STREAM, NULL), 2);
    size_t at = 0;
    struct frame frame;
    bool credited = false;
    while (frames_next(&host.sent, &at, &frame)) {
        credited = credited || (frame.type == FRAME_WINDOW_UPDATE && at > 100);
    }
    assert_true(credited);
    frames.size = 0;
    struct eb_outgoing *message = host_outgoing(HOST_REQUEST_BYTES_MAX);
    frames_data(&frames, 1, true, message->bytes + 80000, message->size - 80000);
    eb_outgoing_drop(message);
    host_receive(&host, frames.bytes, frames.size);
    assert_int_equal(host.message_bytes, HOST_REQUEST_BYTES_MAX);
    assert_false(host.is_over);
    frames_deinit(&frames);
    host_deinit(&host);
    assert_int_equal(host.lender.lent_count, 0);
}

static void two_half_received_messages_do_not_wait_for_ever(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_true(pair_start(&pair, 200000));
    size_t good = 0;
    for (size_t i = 0; i < PAIR_CALLS_MAX; i++) {
        pair_write(pair_call(&pair, i, "/t/Echo"), HOST_REQUEST_BYTES_MAX, true);
    }
    pair_run(&pair, 100);
    for (size_t i = 0; i < PAIR_CALLS_MAX; i++) {
        assert_true(pair.client_calls[i].finished);
        assert_true(pair.client_calls[i].error.status == EB_STATUS_OK ||
                    pair.client_calls[i].error.status == EB_STATUS_RESOURCE_EXHAUSTED);
        good += pair.client_calls[i].error.status == EB_STATUS_OK;
    }
    assert_true(good >= 1);
    pair_deinit(&pair);
}

static void a_paused_call_that_fills_the_window_is_left_in_peace(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    assert_true(pair_start(&pair, 200000));
    struct client_call *slow = pair_call(&pair, 0, "/t/Slow");
    for (size_t i = 0; i < 10; i++) {
        pair_write(slow, 90000, i == 9);
    }
    struct client_call *other = pair_call(&pair, 1, "/t/Echo");
    pair_write(other, 90000, true);
    pair_run(&pair, ALL);
    for (size_t i = 0; i < 10; i++) {
        struct eb_grpc_call *call = pair.host.older ? pair.host.older : pair.host.call;
        if (call) {
            eb_grpc_call_resume(call);
        }
        pair_run(&pair, ALL);
    }
    assert_true(slow->finished);
    assert_int_equal(slow->error.status, EB_STATUS_OK);
    assert_int_equal(slow->message_count, 10);
    assert_true(other->finished);
    assert_int_equal(other->error.status, EB_STATUS_OK);
    pair_deinit(&pair);
}

static void ends_a_call_whose_message_stands_still(void **state)
{
    (void)state;
    struct host host;
    host_init(&host, 0);
    assert_true(host_start(&host));
    struct frames frames = {0};
    frames_open(&frames);
    frames_request(&frames, 1, false, NULL);
    frames_request(&frames, 3, false, NULL);
    put_part(&frames, 1, 3);
    host_receive(&host, frames.bytes, frames.size);
    eb_grpc_server_tick(host.server, host.now_ms + 14999, 0);
    host_write(&host);
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, NULL), 0);
    eb_grpc_server_tick(host.server, host.now_ms + 15000, 0);
    host_write(&host);
    struct frame last = {0};
    /* The other call has no message under way, so it may be idle for any length of time. */
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, &last), 1);
    assert_int_equal(last.stream_id, 1);
    assert_int_equal(eb_grpc_server_call_count(host.server), 1);
    frames_deinit(&frames);
    host_deinit(&host);
}

static void blames_nobody_for_what_it_did_not_read(void **state)
{
    (void)state;
    struct host host;
    host_init(&host, 0);
    assert_true(host_start(&host));
    struct frames frames = {0};
    frames_open(&frames);
    frames_request(&frames, 1, false, NULL);
    put_part(&frames, 1, 3);
    host_receive(&host, frames.bytes, frames.size);
    /* The server does not read for 31 seconds in between. The 14 seconds before and the one after
     * are the peer's responsibility. */
    for (uint64_t i = 1; i <= 45; i++) {
        eb_grpc_server_tick(host.server, host.now_ms + 1000 * i, i > 14 ? 1000 : 0);
    }
    eb_grpc_server_tick(host.server, host.now_ms + 45999, 0);
    host_write(&host);
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, NULL), 0);
    assert_int_equal(eb_grpc_server_call_count(host.server), 1);
    eb_grpc_server_tick(host.server, host.now_ms + 46000, 0);
    host_write(&host);
    assert_int_equal(frames_count(&host.sent, FRAME_HEADERS, NULL), 1);
    frames_deinit(&frames);
    host_deinit(&host);
}

static void resets_a_call_whose_answer_stands_still(void **state)
{
    (void)state;
    struct host host;
    host_init(&host, 0);
    assert_true(host_start(&host));
    struct frames frames = {0};
    frames_open(&frames);
    frames_request(&frames, 1, true, (const char *const[2]){":path", "/t/Keep"});
    host_receive(&host, frames.bytes, frames.size);
    /* The answer is larger than HTTP/2's initial window, which the peer never opens further. */
    eb_grpc_call_answer(host.call, host_outgoing(200000));
    host_write(&host);
    eb_grpc_server_tick(host.server, host.now_ms, 0);
    eb_grpc_server_tick(host.server, host.now_ms + 29999, 0);
    host_write(&host);
    assert_int_equal(frames_count(&host.sent, FRAME_RST_STREAM, NULL), 0);
    eb_grpc_server_tick(host.server, host.now_ms + 30000, 0);
    host_write(&host);
    struct frame last = {0};
    assert_int_equal(frames_count(&host.sent, FRAME_RST_STREAM, &last), 1);
    assert_int_equal(last.stream_id, 1);
    assert_int_equal(eb_grpc_server_call_count(host.server), 0);
    assert_int_equal(host_outgoing_live(), 0);
    frames_deinit(&frames);
    host_deinit(&host);
}

EB_TEST_GROUP(grpc_server)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_the_same_wherever_its_input_is_cut),
        cmocka_unit_test(the_client_sees_the_same_wherever_its_input_is_cut),
        cmocka_unit_test(survives_every_failing_allocation),
        cmocka_unit_test(refuses_a_message_without_memory_and_goes_on),
        cmocka_unit_test(the_youngest_of_unfinished_messages_gives_way),
        cmocka_unit_test(two_half_received_messages_do_not_wait_for_ever),
        cmocka_unit_test(a_paused_call_that_fills_the_window_is_left_in_peace),
        cmocka_unit_test(ends_a_call_whose_message_stands_still),
        cmocka_unit_test(blames_nobody_for_what_it_did_not_read),
        cmocka_unit_test(resets_a_call_whose_answer_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
