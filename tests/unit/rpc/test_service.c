#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LOOKUP SERVICE_HOST_METHOD("Lookup")
#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define SHORT_MS 50       /* a time limit that a test lets pass */
#define LARGE_BAGS 100000 /* takes longer than inline_below_us to compute */

static void expect_lookup_answered(struct service_fixture *fixture)
{
    static const uint8_t row[SERVICE_HOST_ROW_BYTES] = {17, 18, 19, 20, 21, 22, 23, 24};
    struct service_call call;
    service_call_lookup(&fixture->peer, &call, &(struct service_request){.id = 9, .bags = 1});
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_OK);
    assert_int_equal(call.count, 1);
    assert_int_equal(call.answers[0].id, 9);
    assert_int_equal(call.answers[0].values_bytes, sizeof row);
    assert_memory_equal(call.answers[0].row, row, sizeof row);
}

/* Makes a call of this many messages and expects it to end with this status. */
static void expect_ends(
    struct service_fixture *fixture, const char *method, int message_count, enum eb_status status)
{
    struct service_call call;
    service_call_open(&fixture->peer, &call, method, 0);
    for (int i = 1; i < message_count; i++) {
        wire_peer_write(&call.wire, 0, 0, false);
    }
    wire_peer_write(&call.wire, 0, 0, true);
    service_call_expect_end(&fixture->peer, &call, status);
}

/* ---- methods ---- */

static void answers_a_lookup_through_the_executor(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    expect_lookup_answered(fixture);
}

static void answers_a_small_lookup_without_the_executor(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.inline_below_us = 1000;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    expect_lookup_answered(fixture);
}

/* Queues a lookup of this priority in the executor as the first call, then sends a small one. */
static void queue_before(
    struct service_fixture *fixture, struct service_call calls[2], uint32_t priority)
{
    static const struct service_request small = {.bags = 1};
    fixture->host.limits.inline_below_us = 1000;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0],
        &(struct service_request){.bags = LARGE_BAGS, .priority = priority});
    service_peer_settle(&fixture->peer);
    service_call_lookup(&fixture->peer, &calls[1], &small);
    service_peer_settle(&fixture->peer);
}

static void answers_a_small_lookup_while_batch_lookups_wait(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    queue_before(fixture, calls, 1);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_OK);
    assert_int_equal(calls[0].count, 0);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
}

static void lets_a_small_lookup_wait_behind_others(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    queue_before(fixture, calls, 0);
    assert_int_equal(calls[1].count, 0);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_OK);
}

static void swap_service(struct eb_loop *loop, void *snapshot)
{
    (void)eb_service_swap(loop, snapshot);
}

static void ends_a_lookup_with_the_version_that_it_began_with(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    static struct eb_snapshot empty;
    struct service_request request = {.bags = 1};
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0], &request);
    service_peer_settle(&fixture->peer);
    loop_host_act(fixture->host.loops.loops[0], swap_service, &empty);
    service_call_lookup(&fixture->peer, &calls[1], &request);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_NOT_FOUND);
    loop_host_act(fixture->host.loops.loops[0], swap_service, fixture->host.snapshot);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
    expect_lookup_answered(fixture);
}

static void refuses_a_method_that_there_is_not(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    expect_ends(fixture, SERVICE_HOST_METHOD("Lookups"), 1, EB_STATUS_UNIMPLEMENTED);
    expect_ends(fixture, "/", 1, EB_STATUS_UNIMPLEMENTED);
    expect_lookup_answered(fixture);
}

static void refuses_a_unary_call_of_several_messages(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    expect_ends(fixture, LOOKUP, 2, EB_STATUS_UNIMPLEMENTED);
    expect_ends(fixture, LOOKUP, 3, EB_STATUS_UNIMPLEMENTED);
    expect_ends(fixture, SERVICE_HOST_METHOD("GetServer"), 2, EB_STATUS_UNIMPLEMENTED);
    expect_lookup_answered(fixture);
}

static void answers_the_catalogue(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    const char *const methods[] = {SERVICE_HOST_METHOD("ListModels"),
        SERVICE_HOST_METHOD("GetModel"), SERVICE_HOST_METHOD("GetServer")};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct wire_call call;
        wire_peer_call(&fixture->peer, &call, methods[i]);
        wire_peer_write(&call, 0, 0, true);
        assert_true(wire_peer_run(&fixture->peer, &call.is_finished, SERVICE_HOST_TIMEOUT_MS));
        assert_int_equal(call.error.status, EB_STATUS_OK);
        assert_int_equal(call.message_count, 1);
        assert_true(call.message_bytes > 0);
    }
}

static void answers_a_catalogue_call_that_is_wrong(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &call, SERVICE_HOST_METHOD("GetModel"), 0);
    wire_peer_write_bytes(&call.wire, "\x0a\1x", 3, true);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_NOT_FOUND);
    service_call_open(&fixture->peer, &call, SERVICE_HOST_METHOD("GetModel"), 0);
    wire_peer_write_bytes(&call.wire, "\x0a", 1, true);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_INTERNAL);
}

/* ---- streams ---- */

static void answers_a_request_of_a_stream_that_is_wrong_and_goes_on(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &call, STREAM, 0);
    service_call_write(
        &call, &(struct service_request){.id = 1, .bags = 1, .table = "none"}, false);
    service_call_expect_answers(&fixture->peer, &call, 1);
    assert_int_equal(call.answers[0].id, 1);
    assert_int_equal(call.answers[0].error_code, EB_STATUS_NOT_FOUND);
    service_call_write(&call, &(struct service_request){.id = 2, .bags = 1}, true);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_OK);
    assert_int_equal(call.count, 2);
    assert_int_equal(call.answers[1].error_code, 0);
}

static void ends_a_stream_whose_message_is_none(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &call, STREAM, 0);
    service_call_write(&call, &(struct service_request){.id = 1, .bags = 1}, false);
    wire_peer_write_bytes(&call.wire, "\xff", 1, false);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_INTERNAL);
    assert_int_equal(call.count, 0);
    service_host_release(&fixture->host);
    expect_lookup_answered(fixture);
}

static void refuses_a_request_id_that_is_in_flight(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call first;
    struct service_call second;
    struct service_request request = {.id = 5, .bags = 1};
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &first, STREAM, 0);
    service_call_open(&fixture->peer, &second, STREAM, 0);
    service_call_write(&first, &request, false);
    service_call_write(&first, &request, false);
    service_call_write(&second, &request, true);
    service_call_expect_answers(&fixture->peer, &first, 1);
    assert_int_equal(first.answers[0].id, 5);
    assert_int_equal(first.answers[0].error_code, EB_STATUS_INVALID_ARGUMENT);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &first, 2);
    service_call_write(&first, &request, true);
    service_call_expect_end(&fixture->peer, &first, EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &second, EB_STATUS_OK);
    assert_int_equal(first.count, 3);
    assert_int_equal(first.answers[1].error_code, 0);
    assert_int_equal(first.answers[2].error_code, 0);
    assert_int_equal(second.answers[0].error_code, 0);
}

/* ---- deadlines ---- */

static void ends_a_unary_call_that_its_peer_does_not_end(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &call, LOOKUP, SHORT_MS * 1000);
    service_call_write(&call, &(struct service_request){.bags = 1}, false);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
    expect_lookup_answered(fixture);
}

static void ends_a_unary_call_at_the_longest_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    fixture->host.limits.deadline_max_ms = SHORT_MS;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &calls[0], LOOKUP, 0);
    service_call_open(&fixture->peer, &calls[1], LOOKUP, UINT64_C(1000000) * 3600);
    service_call_write(&calls[0], &(struct service_request){.bags = 1}, false);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_DEADLINE_EXCEEDED);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_DEADLINE_EXCEEDED);
}

static void ends_a_queued_call_at_its_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &calls[0], LOOKUP, SHORT_MS * 1000);
    service_call_open(&fixture->peer, &calls[1], STREAM, SHORT_MS * 1000);
    service_call_write(&calls[0], &(struct service_request){.bags = 1}, true);
    service_call_write(&calls[1], &(struct service_request){.bags = 1}, false);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_DEADLINE_EXCEEDED);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&fixture->host);
    expect_lookup_answered(fixture);
    assert_int_equal(calls[0].count + calls[1].count, 0);
}

static void ends_a_stream_without_requests_at_its_deadline(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    fixture->host.limits.deadline_max_ms = 1;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &call, STREAM, SHORT_MS * 1000);
    uint64_t begin_ns = uv_hrtime();
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
    assert_true(uv_hrtime() - begin_ns >= UINT64_C(1000000) * (SHORT_MS / 2));
}

/* Lets at least 2 ms pass. */
static void let_pass(struct service_host *host)
{
    uint64_t late_ns = uv_hrtime() + 2000000;
    while (uv_hrtime() < late_ns) {
        service_host_settle(host);
    }
}

static void computes_nothing_for_a_call_whose_deadline_passes_in_the_queue(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    fixture->host.loops.options.limits.tick_ms = 1000000; /* a tick would end the call, too */
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &call, LOOKUP, 1000);
    service_call_write(&call, &(struct service_request){.bags = 1}, true);
    service_peer_settle(&fixture->peer);
    let_pass(&fixture->host);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
}

static void answers_a_request_whose_own_time_passes_in_the_queue(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call call;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &call, STREAM, 0);
    service_call_write(
        &call, &(struct service_request){.id = 1, .bags = 1, .timeout_us = 1000}, false);
    service_call_write(&call, &(struct service_request){.id = 2, .bags = 1}, true);
    service_peer_settle(&fixture->peer);
    let_pass(&fixture->host);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_OK);
    assert_int_equal(call.count, 2);
    assert_int_equal(service_call_find(&call, 1)->error_code, EB_STATUS_DEADLINE_EXCEEDED);
    assert_int_equal(service_call_find(&call, 2)->error_code, 0);
}

/* ---- caps of one connection ---- */

static void refuses_a_unary_call_past_in_flight_max(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[3];
    struct service_request request = {.id = 1, .bags = 1};
    fixture->host.limits.in_flight_max = 2;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    for (int i = 0; i < 3; i++) {
        service_call_lookup(&fixture->peer, &calls[i], &request);
    }
    service_call_expect_end(&fixture->peer, &calls[2], EB_STATUS_RESOURCE_EXHAUSTED);
    eb_scratch_expect(calls[2].wire.error.text, "in_flight_max");
    assert_false(calls[0].wire.is_finished || calls[1].wire.is_finished);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_OK);
    expect_lookup_answered(fixture);
}

static void keeps_messages_of_calls_that_do_not_end_up_to_a_cap(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[4];
    fixture->host.limits.request_bytes_max = 1000;
    service_fixture_start(fixture);
    for (int i = 0; i < 4; i++) {
        service_call_open(&fixture->peer, &calls[i], LOOKUP, 0);
    }
    wire_peer_write(&calls[0].wire, 1000, 0, false);
    wire_peer_write(&calls[1].wire, 1000, 0, false);
    wire_peer_write(&calls[2].wire, 1, 0, false);
    service_call_expect_end(&fixture->peer, &calls[2], EB_STATUS_RESOURCE_EXHAUSTED);
    assert_false(calls[0].wire.is_finished || calls[1].wire.is_finished);
    eb_grpc_client_cancel(calls[1].wire.call);
    wire_peer_write(&calls[3].wire, 1000, 0, false);
    service_peer_settle(&fixture->peer);
    assert_false(calls[0].wire.is_finished || calls[3].wire.is_finished);
}

EB_TEST_GROUP(service)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(answers_a_lookup_through_the_executor),
        FIXTURE(answers_a_small_lookup_without_the_executor),
        FIXTURE(answers_a_small_lookup_while_batch_lookups_wait),
        FIXTURE(lets_a_small_lookup_wait_behind_others),
        FIXTURE(ends_a_lookup_with_the_version_that_it_began_with),
        FIXTURE(refuses_a_method_that_there_is_not),
        FIXTURE(refuses_a_unary_call_of_several_messages),
        FIXTURE(answers_the_catalogue),
        FIXTURE(answers_a_catalogue_call_that_is_wrong),
        FIXTURE(answers_a_request_of_a_stream_that_is_wrong_and_goes_on),
        FIXTURE(ends_a_stream_whose_message_is_none),
        FIXTURE(refuses_a_request_id_that_is_in_flight),
        FIXTURE(ends_a_unary_call_that_its_peer_does_not_end),
        FIXTURE(ends_a_unary_call_at_the_longest_deadline),
        FIXTURE(ends_a_queued_call_at_its_deadline),
        FIXTURE(ends_a_stream_without_requests_at_its_deadline),
        FIXTURE(computes_nothing_for_a_call_whose_deadline_passes_in_the_queue),
        FIXTURE(answers_a_request_whose_own_time_passes_in_the_queue),
        FIXTURE(refuses_a_unary_call_past_in_flight_max),
        FIXTURE(keeps_messages_of_calls_that_do_not_end_up_to_a_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
