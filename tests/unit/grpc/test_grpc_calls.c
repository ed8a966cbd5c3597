/* Calls as both sides see them: a client and a host, connected in memory. */
#include "tests/unit/grpc/pair.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define ALL SIZE_MAX

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof *pair);
    if (!pair) {
        return -1;
    }
    pair_init(pair);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    pair_deinit(pair);
    bool clean = pair->host.lender.lent_count == 0 && pair->lender.lent_count == 0 &&
                 host_outgoing_live() == 0 && pair->host.call_count == pair->host.close_count;
    free(pair);
    return clean ? 0 : -1;
}

static void start(struct pair *pair)
{
    assert_true(pair_start(pair, 64 * MIB));
}

/* Expects the call to have ended with this status, after `count` answers of `bytes` bytes in
 * all. */
static void assert_call_end(
    const struct client_call *client_call, int status, size_t count, size_t bytes)
{
    assert_true(client_call->finished);
    assert_int_equal(client_call->error.status, status);
    assert_false(client_call->is_wrong);
    assert_int_equal(client_call->message_count, count);
    assert_int_equal(client_call->message_bytes, bytes);
}

static void answers_a_unary_call(void **state)
{
    struct pair *pair = *state;
    start(pair);
    for (size_t portion = 1; portion < 40; portion++) {
        struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
        pair_write(client_call, 50, true);
        pair_run(pair, portion);
        assert_call_end(client_call, EB_STATUS_OK, 1, 50);
        assert_string_equal(client_call->error.text, "");
    }
    assert_int_equal(eb_grpc_server_call_count(pair->host.server), 0);
    assert_true(eb_grpc_server_is_open(pair->host.server));
    assert_string_equal(eb_grpc_server_reason(pair->host.server), "");
    assert_int_equal(pair->host.end_count, 39);
}

static void sends_a_small_answer_in_one_piece(void **state)
{
    struct pair *pair = *state;
    start(pair);
    pair_run(pair, ALL);
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 50, true);
    struct frames request = {0};
    assert_true(eb_grpc_client_send(pair->client));
    host_drain_queue(eb_grpc_client_queue(pair->client), &request);
    host_receive(&pair->host, request.bytes, request.size);
    frames_deinit(&request);
    assert_true(eb_grpc_server_send(pair->host.server));
    struct iovec parts[4];
    assert_int_equal(eb_send_queue_peek(eb_grpc_server_queue(pair->host.server), parts, 4), 1);
    host_write(&pair->host);
    assert_int_equal(frames_count(&pair->host.sent, FRAME_HEADERS, NULL), 2);
    assert_int_equal(frames_count(&pair->host.sent, FRAME_DATA, NULL), 1);
}

static void carries_an_error_with_its_text(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Refuse");
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_NOT_FOUND, 0, 0);
    assert_string_equal(client_call->error.text, "no such thing: 100%");
}

static void shows_the_status_of_a_call_ended_before_its_request(void **state)
{
    struct pair *pair = *state;
    start(pair);
    for (size_t portion = 1; portion < 60; portion++) {
        struct client_call *client_call = pair_call(pair, 0, "/t/First");
        pair_write(client_call, 1000, false);
        pair_write(client_call, 90000, false);
        pair_run(pair, portion);
        assert_call_end(client_call, EB_STATUS_FAILED_PRECONDITION, 0, 0);
        assert_string_equal(client_call->error.text, "one is enough");
    }
    assert_int_equal(eb_grpc_server_call_count(pair->host.server), 0);
}

static void streams_many_messages_both_ways(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    size_t bytes = 0;
    for (size_t i = 0; i < 3000; i++) {
        pair_write(client_call, i % 700, false);
        bytes += i % 700;
    }
    pair_run(pair, 1000);
    assert_int_equal(client_call->message_count, 3000);
    assert_false(client_call->finished);
    pair_write(client_call, 0, true);
    pair_run(pair, 1000);
    assert_call_end(client_call, EB_STATUS_OK, 3001, bytes);
}

static void ends_its_side_of_a_stream_without_a_last_message(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *asleep = pair_call(pair, 0, "/t/Echo");
    struct client_call *busy = pair_call(pair, 1, "/t/Echo");
    pair_write(asleep, 10, false);
    pair_run(pair, ALL);
    assert_int_equal(asleep->message_count, 1);
    assert_false(asleep->finished);
    pair_write(busy, 20, false);
    eb_grpc_client_end_write(asleep->call);
    eb_grpc_client_end_write(busy->call);
    pair_run(pair, ALL);
    assert_call_end(asleep, EB_STATUS_OK, 1, 10);
    assert_call_end(busy, EB_STATUS_OK, 1, 20);
}

static void keeps_calls_apart(void **state)
{
    struct pair *pair = *state;
    start(pair);
    for (size_t i = 0; i < PAIR_CALLS_MAX; i++) {
        pair_write(pair_call(pair, i, i == 3 ? "/t/Refuse" : "/t/Echo"), 20000 + i, true);
    }
    pair_run(pair, 777);
    for (size_t i = 0; i < PAIR_CALLS_MAX; i++) {
        if (i != 3) {
            assert_call_end(&pair->client_calls[i], EB_STATUS_OK, 1, 20000 + i);
        }
    }
    assert_call_end(&pair->client_calls[3], EB_STATUS_NOT_FOUND, 0, 0);
}

static void takes_a_message_at_the_limit_and_refuses_one_byte_more(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, HOST_REQUEST_BYTES_MAX, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_OK, 1, HOST_REQUEST_BYTES_MAX);
    client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, HOST_REQUEST_BYTES_MAX + 1, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_RESOURCE_EXHAUSTED, 0, 0);
    client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 10 * MIB, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_RESOURCE_EXHAUSTED, 0, 0);
    /* Refused messages have been credited to the window, so the connection continues to work. */
    for (int i = 0; i < 10; i++) {
        client_call = pair_call(pair, 0, "/t/Echo");
        pair_write(client_call, HOST_REQUEST_BYTES_MAX, true);
        pair_run(pair, ALL);
        assert_call_end(client_call, EB_STATUS_OK, 1, HOST_REQUEST_BYTES_MAX);
    }
}

static void goes_on_with_messages_of_every_size_up_to_the_limit(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    for (size_t i = 0; i < 40; i++) {
        pair_write(client_call, HOST_REQUEST_BYTES_MAX / (i % 4 + 1), false);
        pair_write(client_call, 1, false);
    }
    pair_run(pair, 5000);
    assert_int_equal(client_call->message_count, 80);
    assert_int_equal(pair->host.lender.lent_bytes < 10000, true);
}

static void answers_of_many_mebibytes_arrive_whole(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Keep");
    pair_write(client_call, 1, true);
    pair_run(pair, ALL);
    eb_grpc_call_answer(pair->host.call, host_outgoing(MIB));
    eb_grpc_call_answer(pair->host.call, host_outgoing(20 * MIB));
    eb_grpc_call_answer(pair->host.call, host_outgoing(3));
    eb_grpc_call_finish(pair->host.call, EB_STATUS_DATA_LOSS, "and yet", 0);
    assert_true(eb_grpc_server_send(pair->host.server));
    /* Answers are lent, not copied. */
    assert_true(pair->host.lender.largest_bytes < MIB);
    pair_run(pair, 100000);
    assert_call_end(client_call, EB_STATUS_DATA_LOSS, 3, 21 * MIB + 3);
    assert_string_equal(client_call->error.text, "and yet");
    assert_true(pair->host.lender.largest_bytes < MIB);
}

static void refuses_an_answer_over_the_clients_limit(void **state)
{
    struct pair *pair = *state;
    assert_true(pair_start(pair, 1000));
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 1000, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_OK, 1, 1000);
    client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 1001, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_RESOURCE_EXHAUSTED, 0, 0);
}

static void ends_a_stream_long_after_its_last_answer(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Keep");
    pair_run(pair, ALL);
    eb_grpc_call_answer(pair->host.call, host_outgoing(10));
    pair_run(pair, ALL);
    assert_int_equal(client_call->message_count, 1);
    eb_grpc_call_finish(pair->host.call, EB_STATUS_UNAVAILABLE, "going", 0);
    eb_grpc_call_finish(pair->host.call, EB_STATUS_OK, "too late", 0);
    eb_grpc_call_answer(pair->host.call, host_outgoing(10));
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_UNAVAILABLE, 1, 10);
    assert_string_equal(client_call->error.text, "going");
}

static void keeps_messages_back_while_paused(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Slow");
    for (size_t i = 0; i < 50; i++) {
        pair_write(client_call, 30000, i == 49);
    }
    pair_run(pair, 3333);
    for (size_t i = 1; i < 50; i++) {
        assert_int_equal(pair->host.message_count, i);
        assert_int_equal(client_call->message_count, i);
        assert_int_equal(pair->host.end_count, 0);
        /* The memory is bounded by the window, which holds the largest message twice. */
        assert_true(pair->host.lender.lent_bytes < 10 * HOST_REQUEST_BYTES_MAX);
        eb_grpc_call_resume(pair->host.call);
        pair_run(pair, 3333);
    }
    assert_int_equal(pair->host.message_count, 50);
    assert_call_end(client_call, EB_STATUS_OK, 50, 50 * 30000);
}

static void delivers_what_calls_have_kept_back_in_turn(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_calls[2];
    for (size_t i = 0; i < 2; i++) {
        client_calls[i] = pair_call(pair, i, "/t/Echo");
        pair_run(pair, ALL);
        eb_grpc_call_pause(pair->host.call);
        for (size_t n = 0; n < HOST_ORDER_MAX / 2; n++) {
            pair_write(client_calls[i], 1000 * n, n == HOST_ORDER_MAX / 2 - 1);
        }
    }
    pair_run(pair, ALL);
    assert_int_equal(pair->host.message_count, 0);
    eb_grpc_call_resume(pair->host.older);
    eb_grpc_call_resume(pair->host.call);
    pair_run(pair, ALL);
    assert_int_equal(pair->host.message_count, HOST_ORDER_MAX);
    for (size_t i = 1; i < HOST_ORDER_MAX; i++) {
        assert_int_not_equal(pair->host.order[i], pair->host.order[i - 1]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_call_end(client_calls[i], EB_STATUS_OK, HOST_ORDER_MAX / 2, 10000);
    }
}

/* The peer cannot send the rest of a message while a paused call keeps the connection's window
 * closed. */
static void waits_for_a_message_that_has_no_window(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *slow = pair_call(pair, 0, "/t/Slow");
    pair_write(slow, 0, false);
    pair_write(slow, HOST_REQUEST_BYTES_MAX, false);
    pair_write(slow, 70000, true);
    pair_run(pair, ALL);
    struct eb_grpc_call *paused = pair->host.call;
    struct client_call *half = pair_call(pair, 1, "/t/Echo");
    pair_write(half, 60000, true);
    pair_run(pair, ALL);
    for (int i = 0; i < 10; i++) {
        pair->host.now_ms += pair->host.limits.message_stall_ms_max - 1000;
        eb_grpc_server_tick(pair->host.server, pair->host.now_ms, 0);
        pair_run(pair, ALL);
        assert_int_equal(pair->host.message_count, 1);
        assert_false(half->finished);
    }
    for (int i = 0; i < 2; i++) {
        eb_grpc_call_resume(paused);
        pair_run(pair, ALL);
    }
    assert_call_end(half, EB_STATUS_OK, 1, 60000);
    assert_int_equal(slow->message_bytes, HOST_REQUEST_BYTES_MAX + 70000);
    assert_call_end(slow, EB_STATUS_OK, 3, HOST_REQUEST_BYTES_MAX + 70000);
}

static void delivers_many_small_messages_after_a_pause(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Keep");
    pair_run(pair, ALL);
    eb_grpc_call_pause(pair->host.call);
    for (size_t i = 0; i < 10000; i++) {
        pair_write(client_call, 0, i == 9999);
    }
    pair_run(pair, 17);
    assert_int_equal(pair->host.message_count, 0);
    /* The 50 000 bytes that are held back never take more memory than their own size and the unused
     * rest of the buffer. */
    assert_true(pair->host.lender.lent_bytes < 2 * 50000);
    assert_true(pair->host.lender.largest_bytes <= 65536);
    eb_grpc_call_resume(pair->host.call);
    pair_run(pair, 17);
    assert_int_equal(pair->host.message_count, 10000);
    assert_int_equal(pair->host.end_count, 1);
}

static void drops_what_was_kept_back_when_a_paused_call_ends(void **state)
{
    struct pair *pair = *state;
    start(pair);
    for (int i = 0; i < 20; i++) {
        struct client_call *client_call = pair_call(pair, 0, "/t/Slow");
        for (size_t n = 0; n < 20; n++) {
            pair_write(client_call, 50000, false);
        }
        pair_run(pair, ALL);
        assert_true(pair->host.lender.lent_bytes > 100000);
        eb_grpc_call_finish(pair->host.call, EB_STATUS_ABORTED, NULL, 0);
        assert_true(pair->host.lender.lent_bytes < 100000);
        pair_run(pair, ALL);
        assert_call_end(client_call, EB_STATUS_ABORTED, 1, 50000);
    }
}

static void cancels_and_goes_on(void **state)
{
    struct pair *pair = *state;
    pair->host.limits.reset_budget = 100;
    start(pair);
    for (int i = 0; i < 3000; i++) {
        struct client_call *cancelled = pair_call(pair, 0, "/t/Keep");
        struct client_call *normal = pair_call(pair, 1, "/t/Echo");
        pair_write(cancelled, 10, true);
        pair_write(normal, 10, true);
        if (i % 2) {
            pair_run(pair, ALL);
        }
        eb_grpc_client_cancel(cancelled->call);
        pair_run(pair, ALL);
        assert_call_end(cancelled, EB_STATUS_CANCELLED, 0, 0);
        assert_call_end(normal, EB_STATUS_OK, 1, 10);
    }
    assert_false(pair->host.is_over);
}

static void turns_away_a_client_that_only_cancels(void **state)
{
    struct pair *pair = *state;
    pair->host.limits.reset_budget = 100;
    start(pair);
    size_t count = 0;
    while (count < 1000 && !pair->host.is_over) {
        struct client_call *client_call = pair_call(pair, 0, "/t/Keep");
        pair_write(client_call, 10, true);
        pair_run(pair, ALL);
        if (client_call->call) {
            eb_grpc_client_cancel(client_call->call);
        }
        pair_run(pair, ALL);
        count++;
    }
    assert_int_equal(count, 101);
    assert_string_equal(eb_grpc_server_reason(pair->host.server),
        "the peer causes more calls to be reset than it lets complete");
    assert_true(eb_grpc_server_is_done(pair->host.server));
    assert_false(eb_grpc_client_is_usable(pair->client));
}

static void cancels_in_the_middle_of_a_large_answer(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Keep");
    pair_run(pair, ALL);
    for (int i = 0; i < 4; i++) {
        eb_grpc_call_answer(pair->host.call, host_outgoing(30 * MIB));
    }
    assert_true(eb_grpc_server_send(pair->host.server));
    eb_grpc_client_cancel(client_call->call);
    pair_run(pair, ALL);
    assert_true(client_call->finished);
    assert_int_equal(client_call->error.status, EB_STATUS_CANCELLED);
    assert_int_equal(host_outgoing_live(), 0);
    assert_int_equal(pair->host.close_count, 1);
}

static void drains_after_a_round_trip(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *early = pair_call(pair, 0, "/t/Keep");
    pair_run(pair, ALL);
    assert_false(eb_grpc_server_is_done(pair->host.server));
    eb_grpc_server_drain(pair->host.server);
    eb_grpc_server_drain(pair->host.server);
    /* This call crosses the drain notice on the wire and is still served. */
    struct client_call *late = pair_call(pair, 1, "/t/Echo");
    pair_write(late, 5, true);
    pair_run(pair, ALL);
    assert_call_end(late, EB_STATUS_OK, 1, 5);
    assert_false(early->finished);
    assert_false(eb_grpc_server_is_done(pair->host.server));
    assert_false(eb_grpc_client_is_usable(pair->client));
    assert_null(eb_grpc_client_start(pair->client, "/t/Echo", 0, NULL));
    eb_grpc_call_finish(
        pair->host.older ? pair->host.older : pair->host.call, EB_STATUS_OK, NULL, 0);
    pair_run(pair, ALL);
    assert_call_end(early, EB_STATUS_OK, 0, 0);
    assert_true(eb_grpc_server_is_done(pair->host.server));
    assert_false(pair->host.is_over);
}

static void is_done_at_once_when_drained_before_it_is_open(void **state)
{
    struct pair *pair = *state;
    start(pair);
    assert_false(eb_grpc_server_is_done(pair->host.server));
    eb_grpc_server_drain(pair->host.server);
    assert_true(eb_grpc_server_is_done(pair->host.server));
    struct client_call *client_call = pair_call(pair, 0, "/t/Echo");
    pair_write(client_call, 5, true);
    pair_run(pair, ALL);
    assert_call_end(client_call, EB_STATUS_OK, 1, 5);
    assert_true(eb_grpc_server_is_done(pair->host.server));
}

static void ends_every_call_when_either_side_goes(void **state)
{
    struct pair *pair = *state;
    start(pair);
    struct client_call *client_call = pair_call(pair, 0, "/t/Slow");
    pair_write(client_call, 5, false);
    pair_write(client_call, 50, false);
    pair_call(pair, 1, "/t/Keep");
    pair_run(pair, ALL);
    eb_grpc_call_answer(pair->host.call, host_outgoing(5000));
    eb_grpc_server_destroy(pair->host.server);
    pair->host.server = NULL;
    assert_int_equal(pair->host.close_count, 2);
    assert_int_equal(pair->host.lender.lent_count, 0);
    eb_grpc_client_destroy(pair->client);
    pair->client = NULL;
    assert_call_end(&pair->client_calls[0], EB_STATUS_UNAVAILABLE, 1, 5);
    assert_call_end(&pair->client_calls[1], EB_STATUS_UNAVAILABLE, 0, 0);
}

#define IN_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

EB_TEST_GROUP(grpc_calls)
{
    const struct CMUnitTest tests[] = {
        IN_PAIR(answers_a_unary_call),
        IN_PAIR(sends_a_small_answer_in_one_piece),
        IN_PAIR(carries_an_error_with_its_text),
        IN_PAIR(shows_the_status_of_a_call_ended_before_its_request),
        IN_PAIR(streams_many_messages_both_ways),
        IN_PAIR(ends_its_side_of_a_stream_without_a_last_message),
        IN_PAIR(keeps_calls_apart),
        IN_PAIR(takes_a_message_at_the_limit_and_refuses_one_byte_more),
        IN_PAIR(goes_on_with_messages_of_every_size_up_to_the_limit),
        IN_PAIR(answers_of_many_mebibytes_arrive_whole),
        IN_PAIR(refuses_an_answer_over_the_clients_limit),
        IN_PAIR(ends_a_stream_long_after_its_last_answer),
        IN_PAIR(keeps_messages_back_while_paused),
        IN_PAIR(delivers_what_calls_have_kept_back_in_turn),
        IN_PAIR(waits_for_a_message_that_has_no_window),
        IN_PAIR(delivers_many_small_messages_after_a_pause),
        IN_PAIR(drops_what_was_kept_back_when_a_paused_call_ends),
        IN_PAIR(cancels_and_goes_on),
        IN_PAIR(turns_away_a_client_that_only_cancels),
        IN_PAIR(cancels_in_the_middle_of_a_large_answer),
        IN_PAIR(drains_after_a_round_trip),
        IN_PAIR(is_done_at_once_when_drained_before_it_is_open),
        IN_PAIR(ends_every_call_when_either_side_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
