#include "tests/unit/rpc/service_host.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define MIB (UINT32_C(1) << 20)
#define BATCH 1
#define IN_FLIGHT_MAX 8
#define BATCH_MAX (IN_FLIGHT_MAX / 2)

static const struct eb_limits least = {
#define X(name, effect, fallback, min, max, what) .name = (min),
    EB_LIMIT_LIST(X)
#undef X
};

static void start_held(struct service_fixture *fixture)
{
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    /* Waits until the server has opened its windows. */
    service_peer_settle(&fixture->peer);
}

/* Starts with a low in_flight_max. */
static void start_over_limit(struct service_fixture *fixture)
{
    fixture->host.limits.in_flight_max = IN_FLIGHT_MAX;
    start_held(fixture);
}

static void ask_stream(struct service_fixture *fixture, const struct service_request *request)
{
    service_call_write(&fixture->call, request, false);
    wire_peer_send(&fixture->peer);
}

static void ask_for_row(struct service_fixture *fixture, uint64_t id, uint32_t priority)
{
    ask_stream(fixture, &(struct service_request){.id = id, .bags = 1, .priority = priority});
}

static void cancel_request(struct service_fixture *fixture, uint64_t id)
{
    ask_stream(fixture, &(struct service_request){.id = id, .bags = 1, .cancel = true});
}

static void expect_answer(struct service_fixture *fixture, uint64_t id, enum eb_status status)
{
    const struct service_answer *answer = service_call_find(&fixture->call, id);
    assert_non_null(answer);
    assert_int_equal(answer->error_code, status);
}

/* Releases the executor and ends the stream with a request that gets one more answer. Expects
 * `count` answers in all. */
static void finish_stream(struct service_fixture *fixture, size_t count)
{
    service_host_release(&fixture->host);
    wire_peer_write_bytes(&fixture->call.wire, "", 0, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, count);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_stop(&fixture->host);
}

/* ---- memory of waiting requests ---- */

#define QUERIES 1000 /* make a small message and a large plan */
#define CHEAP 64

/* Waits until the memory taken no longer grows although the peer has sent everything. Settles by
 * way of `other`, because the calls of a connection over its limit wait. Returns the bytes
 * taken. */
static uint64_t settle_by(struct wire_peer *other, struct service_fixture *fixture)
{
    uint64_t before_bytes = 0;
    uint64_t bytes = loop_host_taken_bytes(&fixture->host.loops);
    for (int quiet = 0; quiet < 5; quiet = bytes == before_bytes ? quiet + 1 : 0) {
        before_bytes = bytes;
        wire_peer_send(&fixture->peer);
        service_peer_settle(other);
        bytes = loop_host_taken_bytes(&fixture->host.loops);
    }
    return bytes;
}

/* Expects cheap requests with large plans to take at most outbound_bytes_max plus one such
 * request. */
static void expect_cheap_ones_bounded(struct service_fixture *fixture, uint32_t priority)
{
    struct wire_peer other;
    struct service_call unary;
    fixture->host.limits.outbound_bytes_max = 8 * MIB;
    start_held(fixture);
    struct service_request request = {.bags = 2, .queries = QUERIES, .priority = priority};
    for (uint64_t i = 1; i <= CHEAP; i++) {
        request.id = i;
        ask_stream(fixture, &request);
    }
    wire_peer_open(&other, &fixture->host.address);
    uint64_t taken_bytes = settle_by(&other, fixture);
    assert_true(taken_bytes > 2 * MIB);
    assert_true(taken_bytes < (8 + 4) * MIB);
    service_call_lookup(&other, &unary, &(struct service_request){.bags = 1});
    wire_peer_send(&other);
    service_host_release(&fixture->host);
    service_call_expect_end(&other, &unary, EB_STATUS_OK);
    wire_peer_close(&other);
    finish_stream(fixture, CHEAP + 1);
}

static void bounds_what_waiting_requests_hold(void **state)
{
    expect_cheap_ones_bounded(*state, 0);
}

static void bounds_what_waiting_batch_requests_hold(void **state)
{
    expect_cheap_ones_bounded(*state, BATCH);
}

#define UNARY 16

static void parks_unary_calls_until_what_waits_is_computed(void **state)
{
    struct service_fixture *fixture = *state;
    struct wire_peer other;
    static struct service_call calls[UNARY];
    fixture->host.limits.outbound_bytes_max = 4 * MIB;
    start_held(fixture);
    for (int i = 0; i < UNARY; i++) {
        struct service_request request = {.bags = 2, .queries = QUERIES};
        service_call_lookup(&fixture->peer, &calls[i], &request);
    }
    wire_peer_open(&other, &fixture->host.address);
    assert_true(settle_by(&other, fixture) < (4 + 4) * MIB);
    wire_peer_close(&other);
    service_host_release(&fixture->host);
    for (int i = 0; i < UNARY; i++) {
        service_call_expect_end(&fixture->peer, &calls[i], EB_STATUS_OK);
    }
    finish_stream(fixture, 1);
}

static void gives_back_what_a_closed_connection_had_waiting(void **state)
{
    struct service_fixture *fixture = *state;
    start_held(fixture);
    struct service_request request = {.bags = 2, .queries = QUERIES};
    for (uint64_t i = 1; i <= 20; i++) {
        request.id = i;
        ask_stream(fixture, &request);
    }
    service_peer_settle(&fixture->peer);
    assert_true(loop_host_taken_bytes(&fixture->host.loops) > 16 * MIB);
    wire_peer_close(&fixture->peer);
    service_host_release(&fixture->host);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    assert_true(service_host_wait_taken(&fixture->host, 2 * MIB));
    service_host_stop(&fixture->host);
}

/* Waits until at least `bytes` bytes are taken. */
static void wait_until_taken(struct service_fixture *fixture, uint64_t bytes)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (loop_host_taken_bytes(&fixture->host.loops) < bytes && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_true(loop_host_taken_bytes(&fixture->host.loops) >= bytes);
}

#define SHARERS 6
#define SHARER_REQUESTS 128

/* Each connection asks for more than the whole answer memory. While it waits for its share, others
 * are served. */
static void leaves_answer_memory_to_others(void **state)
{
    struct service_fixture *fixture = *state;
    struct wire_peer sharers[SHARERS];
    static struct service_call calls[SHARERS];
    struct wire_peer other;
    struct service_call unary;
    fixture->host.loops.options.answer_memory_bytes = 8 * MIB;
    start_held(fixture);
    wire_peer_open(&other, &fixture->host.address);
    for (int i = 0; i < SHARERS; i++) {
        wire_peer_open(&sharers[i], &fixture->host.address);
        service_call_open(&sharers[i], &calls[i], STREAM, 0);
        service_peer_settle(&sharers[i]);
        for (uint64_t id = 1; id <= SHARER_REQUESTS; id++) {
            struct service_request request = {.id = id, .bags = 8000};
            service_call_write(&calls[i], &request, id == SHARER_REQUESTS);
        }
        wire_peer_send(&sharers[i]);
        (void)settle_by(&other, fixture);
    }
    wait_until_taken(fixture, 4 * MIB);
    service_call_lookup(&other, &unary, &(struct service_request){.bags = 1});
    wire_peer_send(&other);
    service_host_release(&fixture->host);
    service_call_expect_end(&other, &unary, EB_STATUS_OK);
    wire_peer_close(&other);
    for (int i = 0; i < SHARERS; i++) {
        service_call_expect_end(&sharers[i], &calls[i], EB_STATUS_OK);
        assert_int_equal(calls[i].count, SHARER_REQUESTS);
        wire_peer_close(&sharers[i]);
    }
    finish_stream(fixture, 1);
}

/* There is memory for three answers of 3 MiB each, but the third would leave too little. */
static void refuses_an_answer_that_leaves_too_little_to_others(void **state)
{
    struct service_fixture *fixture = *state;
    struct wire_peer others[2];
    struct service_call calls[2];
    struct service_request large = {.id = 1, .bags = 250000};
    fixture->host.loops.options.answer_memory_bytes = 10 * MIB;
    start_held(fixture);
    for (int i = 0; i < 2; i++) {
        wire_peer_open(&others[i], &fixture->host.address);
        service_call_lookup(&others[i], &calls[i], &large);
        wire_peer_send(&others[i]);
        wait_until_taken(fixture, (uint64_t)(i + 1) * 3 * MIB);
    }
    ask_stream(fixture, &large);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, 1, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(fixture->call.answers[0].retry_after_ms > 0);
    ask_stream(fixture, &(struct service_request){.id = 2, .bags = 100000});
    wait_until_taken(fixture, 7 * MIB);
    service_host_release(&fixture->host);
    for (int i = 0; i < 2; i++) {
        service_call_expect_end(&others[i], &calls[i], EB_STATUS_OK);
        wire_peer_close(&others[i]);
    }
    finish_stream(fixture, 3);
    expect_answer(fixture, 2, EB_STATUS_OK);
}

/* ---- batch requests ---- */

static void refuses_batch_requests_past_their_part(void **state)
{
    struct service_fixture *fixture = *state;
    start_over_limit(fixture);
    for (uint64_t i = 1; i <= BATCH_MAX + 1; i++) {
        ask_for_row(fixture, i, BATCH);
    }
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, BATCH_MAX + 1, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(fixture->call.answers[0].retry_after_ms > 0);
    /* Interactive requests still have their room. */
    for (uint64_t i = 0; i < IN_FLIGHT_MAX - BATCH_MAX; i++) {
        ask_for_row(fixture, 100 + i, 0);
    }
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, IN_FLIGHT_MAX + 1);
    expect_answer(fixture, BATCH_MAX, EB_STATUS_OK);
    expect_answer(fixture, 100, EB_STATUS_OK);
    ask_for_row(fixture, 200, BATCH);
    service_call_expect_answers(&fixture->peer, &fixture->call, IN_FLIGHT_MAX + 2);
    expect_answer(fixture, 200, EB_STATUS_OK);
    finish_stream(fixture, IN_FLIGHT_MAX + 3);
}

/* Only one batch request waits, which is fewer than the lowest in_flight_max that is allowed. */
static void sees_cancels_where_few_may_be_in_flight(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.in_flight_max = least.in_flight_max;
    start_held(fixture);
    ask_for_row(fixture, 1, BATCH);
    ask_for_row(fixture, 2, BATCH);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, 2, EB_STATUS_RESOURCE_EXHAUSTED);
    cancel_request(fixture, 1);
    ask_for_row(fixture, 3, BATCH);
    service_peer_settle(&fixture->peer);
    finish_stream(fixture, 3);
    assert_null(service_call_find(&fixture->call, 1));
}

static void sees_cancels_while_batch_requests_fill_their_part(void **state)
{
    struct service_fixture *fixture = *state;
    start_over_limit(fixture);
    for (uint64_t i = 1; i <= IN_FLIGHT_MAX + 1; i++) {
        ask_for_row(fixture, i, BATCH);
    }
    cancel_request(fixture, 2);
    service_peer_settle(&fixture->peer);
    finish_stream(fixture, IN_FLIGHT_MAX + 1);
    assert_null(service_call_find(&fixture->call, 2));
}

/* The first batch request alone is larger than everything that batch requests may hold. */
static void sees_cancels_while_a_large_batch_request_waits(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.outbound_bytes_max = MIB;
    start_held(fixture);
    ask_stream(fixture, &(struct service_request){.id = 1, .bags = 500000, .priority = BATCH});
    ask_for_row(fixture, 2, BATCH);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, 2, EB_STATUS_RESOURCE_EXHAUSTED);
    cancel_request(fixture, 1);
    service_peer_settle(&fixture->peer);
    finish_stream(fixture, 2);
    assert_null(service_call_find(&fixture->call, 1));
}

/* ---- times ---- */

static void counts_reading_and_checking_as_waiting(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.inline_below_us = 1000;
    start_held(fixture);
    ask_stream(fixture, &(struct service_request){.id = 1, .bags = 2, .queries = QUERIES});
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, 1, EB_STATUS_OK);
    assert_true(fixture->call.answers[0].queue_us > 0);
    finish_stream(fixture, 2);
}

#define KEPT_BACK_MS 20

static void counts_what_a_paused_stream_is_kept_back_as_waiting(void **state)
{
    struct service_fixture *fixture = *state;
    start_over_limit(fixture);
    for (uint64_t i = 1; i <= IN_FLIGHT_MAX + 1; i++) {
        ask_for_row(fixture, i, 0);
    }
    service_peer_settle(&fixture->peer);
    uv_sleep(KEPT_BACK_MS);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, IN_FLIGHT_MAX + 1);
    expect_answer(fixture, IN_FLIGHT_MAX + 1, EB_STATUS_OK);
    assert_true(service_call_find(&fixture->call, IN_FLIGHT_MAX + 1)->queue_us >=
                (KEPT_BACK_MS - 2) * 1000);
    finish_stream(fixture, IN_FLIGHT_MAX + 2);
}

/* If the request were queued, it would get no answer while the executor is held. */
static void judges_a_deadline_once_a_large_request_is_read(void **state)
{
    struct service_fixture *fixture = *state;
    start_held(fixture);
    ask_stream(fixture,
        &(struct service_request){.id = 1, .bags = 2, .queries = QUERIES, .timeout_us = 1});
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    expect_answer(fixture, 1, EB_STATUS_DEADLINE_EXCEEDED);
    finish_stream(fixture, 2);
}

/* ---- ids ---- */

static void says_that_an_id_is_taken_so_that_nobody_mistakes_it(void **state)
{
    struct service_fixture *fixture = *state;
    start_held(fixture);
    ask_for_row(fixture, 5, 0);
    ask_for_row(fixture, 5, 0);
    ask_stream(fixture, &(struct service_request){.id = 5, .bags = 1, .is_bad = true});
    ask_stream(fixture, &(struct service_request){.id = 6, .bags = 1, .is_bad = true});
    service_call_expect_answers(&fixture->peer, &fixture->call, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fixture->call.answers[i].id, 5);
        assert_int_equal(fixture->call.answers[i].error_code, EB_STATUS_INVALID_ARGUMENT);
        assert_true(fixture->call.answers[i].more);
    }
    assert_int_equal(fixture->call.answers[2].id, 6);
    assert_int_equal(fixture->call.answers[2].error_code, EB_STATUS_INVALID_ARGUMENT);
    assert_false(fixture->call.answers[2].more);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, 4);
    assert_int_equal(fixture->call.answers[3].id, 5);
    assert_int_equal(fixture->call.answers[3].error_code, EB_STATUS_OK);
    assert_false(fixture->call.answers[3].more);
    finish_stream(fixture, 5);
}

/* Two streams of one connection use the same ids. Odd ids are cancelled on one stream, even ids on
 * the other. */
static void withdraws_what_is_named_and_nothing_else(void **state)
{
    struct service_fixture *fixture = *state;
    uint64_t id_max = 100;
    static struct service_call other;
    struct service_request request = {.bags = 1};
    start_held(fixture);
    service_call_open(&fixture->peer, &other, STREAM, 0);
    for (request.id = 1; request.id <= id_max; request.id++) {
        service_call_write(&fixture->call, &request, false);
        service_call_write(&other, &request, false);
    }
    request.cancel = true;
    for (request.id = 1; request.id <= id_max; request.id++) {
        service_call_write(
            request.id % 2 ? &fixture->call : &other, &request, request.id == id_max);
    }
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &other, EB_STATUS_OK);
    finish_stream(fixture, id_max / 2 + 1);
    assert_int_equal(other.count, id_max / 2);
    for (uint64_t id = 1; id <= id_max; id++) {
        assert_int_equal(!!service_call_find(&fixture->call, id), id % 2 == 0);
        assert_int_equal(!!service_call_find(&other, id), id % 2 == 1);
    }
}

static void withdraws_by_a_cancel_that_is_bad(void **state)
{
    struct service_fixture *fixture = *state;
    start_held(fixture);
    ask_for_row(fixture, 1, 0);
    ask_for_row(fixture, 2, 0);
    ask_stream(
        fixture, &(struct service_request){.id = 1, .bags = 1, .cancel = true, .is_bad = true});
    service_peer_settle(&fixture->peer);
    finish_stream(fixture, 2);
    assert_null(service_call_find(&fixture->call, 1));
    expect_answer(fixture, 2, EB_STATUS_OK);
}

EB_TEST_GROUP(service_load)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(bounds_what_waiting_requests_hold),
        FIXTURE(bounds_what_waiting_batch_requests_hold),
        FIXTURE(parks_unary_calls_until_what_waits_is_computed),
        FIXTURE(gives_back_what_a_closed_connection_had_waiting),
        FIXTURE(leaves_answer_memory_to_others),
        FIXTURE(refuses_an_answer_that_leaves_too_little_to_others),
        FIXTURE(refuses_batch_requests_past_their_part),
        FIXTURE(sees_cancels_where_few_may_be_in_flight),
        FIXTURE(sees_cancels_while_batch_requests_fill_their_part),
        FIXTURE(sees_cancels_while_a_large_batch_request_waits),
        FIXTURE(counts_reading_and_checking_as_waiting),
        FIXTURE(counts_what_a_paused_stream_is_kept_back_as_waiting),
        FIXTURE(judges_a_deadline_once_a_large_request_is_read),
        FIXTURE(says_that_an_id_is_taken_so_that_nobody_mistakes_it),
        FIXTURE(withdraws_what_is_named_and_nothing_else),
        FIXTURE(withdraws_by_a_cancel_that_is_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
