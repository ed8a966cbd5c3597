#include "tests/unit/rpc/service_host.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOKUP SERVICE_HOST_METHOD("Lookup")
#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define LARGE_BAGS 100000
#define TIMEOUT_MS 50

static const struct service_request small = {.id = 1, .bags = 1};

struct fixture {
    struct service_host host;
    struct wire_peer peer;
    struct eb_loop_stats part; /* as it was counted last */
};

static void start(struct fixture *fixture)
{
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

static void count_here(struct eb_loop *loop, void *part)
{
    *(struct eb_loop_stats *)part = (struct eb_loop_stats){0};
    eb_service_count(loop, part);
    free(((struct eb_loop_stats *)part)->tables); /* which nothing here looks at */
    ((struct eb_loop_stats *)part)->tables = NULL;
}

static const struct eb_counters *count(struct fixture *fixture)
{
    loop_host_act(fixture->host.loops.loops[0], count_here, &fixture->part);
    return &fixture->part.counters;
}

static uint64_t requests(const struct fixture *fixture, const char *path, enum eb_status status)
{
    return fixture->part.counters.requests[eb_method_find(path).index][status];
}

/* Of all methods and statuses, but those by which service_peer_settle waits. */
static uint64_t all_requests(const struct fixture *fixture)
{
    const unsigned unseen = eb_method_find(SERVICE_HOST_METHOD("GetServer")).index;
    uint64_t sum = 0;
    for (unsigned i = 0; i < EB_COUNTERS_METHODS_MAX; i++) {
        for (unsigned k = 0; i != unseen && k < EB_COUNTERS_STATUSES; k++) {
            sum += fixture->part.counters.requests[i][k];
        }
    }
    return sum;
}

static void stop(struct fixture *fixture)
{
    wire_peer_close(&fixture->peer);
    service_host_stop(&fixture->host);
}

static void look_up(struct fixture *fixture, const struct service_request *request)
{
    struct service_call call;
    service_call_lookup(&fixture->peer, &call, request);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_OK);
}

/* ---- what is done ---- */

static void counts_what_a_lookup_touches_and_how_long_each_stage_took(void **state)
{
    (void)state;
    struct fixture fixture;
    service_host_init(&fixture.host);
    start(&fixture);
    look_up(&fixture, &(struct service_request){.id = 1, .bags = 1, .queries = 3});
    const struct eb_counters *counters = count(&fixture);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(counters->calls, 1);
    assert_int_equal(counters->connections, 1);
    assert_int_equal(fixture.part.connections, 1);
    assert_int_equal(counters->queries, 3);
    assert_int_equal(counters->bags, 3);
    assert_int_equal(counters->indices, 3);
    assert_int_equal(counters->row_bytes, 3 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(counters->value_bytes, 3 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(counters->inline_lookups, 0);
    assert_true(counters->received_bytes > WIRE_HELLO_BYTES);
    assert_true(counters->sent_bytes > 3 * SERVICE_HOST_ROW_BYTES);
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        assert_int_equal(eb_histogram_count(&counters->stages[i]), 1);
        sum_ns += counters->stages[i].sum_ns;
    }
    assert_int_equal(sum_ns, 2 * counters->stages[EB_STAGE_TOTAL].sum_ns);
    assert_true(eb_histogram_count(&counters->lag) > 0);
    assert_true(counters->lag.sum_ns > 0);
    stop(&fixture);
}

static void counts_lookups_that_the_loop_computes_itself(void **state)
{
    (void)state;
    struct fixture fixture;
    service_host_init(&fixture.host);
    fixture.host.limits.inline_below_us = 1000000;
    start(&fixture);
    look_up(&fixture, &small);
    look_up(&fixture, &small);
    assert_int_equal(count(&fixture)->inline_lookups, 2);
    assert_int_equal(eb_histogram_count(&fixture.part.counters.stages[EB_STAGE_TOTAL]), 2);
    stop(&fixture);
}

static void counts_each_request_of_a_stream_by_its_own_end(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    for (uint64_t id = 1; id <= 5; id++) {
        service_call_write(&call, &(struct service_request){.id = id, .bags = 1}, false);
    }
    service_call_write(
        &call, &(struct service_request){.id = 6, .bags = 1, .table = "none"}, false);
    service_call_write(&call, &(struct service_request){.id = 7, .bags = 1, .is_bad = true}, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    const struct eb_counters *counters = count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_OK), 5);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_NOT_FOUND), 1);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_INVALID_ARGUMENT), 1);
    assert_int_equal(all_requests(&fixture), 7);
    assert_int_equal(counters->calls, 1);
    assert_int_equal(counters->indices, 5);
    assert_int_equal(eb_histogram_count(&counters->stages[EB_STAGE_SEND]), 5);
    stop(&fixture);
}

static void counts_the_times_of_all_that_are_written_together(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    fixture.host.limits.inline_below_us = 1000;
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    for (uint64_t id = 1; id <= SERVICE_HOST_ANSWERS_MAX; id++) {
        service_call_write(
            &call, &(struct service_request){.id = id, .bags = 1}, id == SERVICE_HOST_ANSWERS_MAX);
    }
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    const struct eb_counters *counters = count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_OK), SERVICE_HOST_ANSWERS_MAX);
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        assert_int_equal(eb_histogram_count(&counters->stages[i]), SERVICE_HOST_ANSWERS_MAX);
        sum_ns += counters->stages[i].sum_ns;
    }
    assert_int_equal(sum_ns, 2 * counters->stages[EB_STAGE_TOTAL].sum_ns);
    stop(&fixture);
}

static void counts_a_request_in_parts_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call,
        &(struct service_request){.id = 1, .bags = LARGE_BAGS, .queries = 3, .partial = true},
        true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    assert_int_equal(call.count, 3);
    const struct eb_counters *counters = count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(counters->bags, 3 * LARGE_BAGS);
    assert_int_equal(eb_histogram_count(&counters->stages[EB_STAGE_TOTAL]), 1);
    stop(&fixture);
}

static void counts_calls_of_what_is_no_method_in_one_place(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    static const char *const paths[] = {"/embag.v1.EmbeddingBag/None", "/none/None", "/"};
    service_host_init(&fixture.host);
    start(&fixture);
    for (unsigned i = 0; i < 3; i++) {
        service_call_open(&fixture.peer, &call, paths[i], 0);
        service_call_write(&call, &small, true);
        service_call_expect_end(&fixture.peer, &call, EB_STATUS_UNIMPLEMENTED);
    }
    assert_int_equal(count(&fixture)->calls, 3);
    assert_int_equal(fixture.part.counters.requests[eb_method_count()][EB_STATUS_UNIMPLEMENTED], 3);
    assert_int_equal(all_requests(&fixture), 3);
    stop(&fixture);
}

/* Paths of methods tell whose error it was; those of none are all alike. */
static void counts_what_is_refused_by_its_headers_by_its_method(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    static const char *const paths[] = {STREAM, "/none/None"};
    service_host_init(&fixture.host);
    fixture.host.loops.options.conn_limits.session.header_fields_max = 5;
    start(&fixture);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&fixture.peer, &call, paths[i], TIMEOUT_MS * 1000);
        service_call_write(&call, &small, true);
        service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    }
    (void)count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&fixture, "/none/None", EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(all_requests(&fixture), 2);
    stop(&fixture);
}

static void counts_methods_that_are_no_lookups(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_call_open(&fixture.peer, &call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&call.wire, "", 0, true);
    assert_true(wire_peer_run(&fixture.peer, &call.wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(count(&fixture)->calls, 1);
    assert_int_equal(requests(&fixture, SERVICE_HOST_METHOD("ListModels"), EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(eb_histogram_count(&fixture.part.counters.stages[EB_STAGE_TOTAL]), 0);
    stop(&fixture);
}

static void counts_each_message_of_a_stream_that_is_not_of_lookups_by_its_method(void **state)
{
    (void)state;
    static const char method[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    static const char list_services[] = {0x3a, 0x00};
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_call_open(&fixture.peer, &call, method, 0);
    wire_peer_write_bytes(&call.wire, list_services, sizeof list_services, false);
    wire_peer_write_bytes(&call.wire, list_services, sizeof list_services, true);
    assert_true(wire_peer_run(&fixture.peer, &call.wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(count(&fixture)->calls, 1);
    assert_int_equal(requests(&fixture, method, EB_STATUS_OK), 2);
    assert_int_equal(all_requests(&fixture), 2);
    stop(&fixture);
}

/* ---- what is given up ---- */

/* Two requests of a stream and a unary one, which wait for the executor. */
static void leave_three(struct fixture *fixture, struct service_call calls[2])
{
    service_host_init(&fixture->host);
    start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0], &small);
    service_call_open(&fixture->peer, &calls[1], STREAM, 0);
    service_call_write(&calls[1], &small, false);
    service_call_write(&calls[1], &(struct service_request){.id = 2, .bags = 1}, false);
    service_peer_settle(&fixture->peer);
}

static void expect_three_cancelled(struct fixture *fixture)
{
    service_host_release(&fixture->host);
    service_host_settle(&fixture->host);
    assert_int_equal(count(fixture)->queries, 0);
    assert_int_equal(requests(fixture, LOOKUP, EB_STATUS_CANCELLED), 1);
    assert_int_equal(requests(fixture, STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(all_requests(fixture), 3);
    assert_int_equal(eb_histogram_count(&fixture->part.counters.stages[EB_STAGE_TOTAL]), 0);
}

static void counts_requests_of_calls_that_are_reset_as_cancelled(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call calls[2];
    leave_three(&fixture, calls);
    eb_grpc_client_cancel(calls[0].wire.call);
    eb_grpc_client_cancel(calls[1].wire.call);
    wire_peer_send(&fixture.peer);
    service_peer_settle(&fixture.peer);
    expect_three_cancelled(&fixture);
    stop(&fixture);
}

static void counts_requests_of_a_connection_that_breaks_as_cancelled(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call calls[2];
    leave_three(&fixture, calls);
    wire_peer_close(&fixture.peer);
    assert_true(loop_host_wait_conns(&fixture.host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_three_cancelled(&fixture);
    service_host_stop(&fixture.host);
}

static void counts_what_is_withdrawn_as_cancelled_and_the_word_itself_not(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &small, false);
    service_call_write(&call, &(struct service_request){.id = 1, .cancel = true}, false);
    service_call_write(&call, &(struct service_request){.id = 9, .cancel = true}, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    service_host_release(&fixture.host);
    service_host_settle(&fixture.host);
    (void)count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(all_requests(&fixture), 1);
    stop(&fixture);
}

static void counts_bytes_that_are_no_message_once_whatever_was_in_flight(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &small, false);
    service_call_write(&call, &(struct service_request){.id = 2, .bags = 1}, false);
    wire_peer_write_bytes(&call.wire, "\xff\xff", 2, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_INTERNAL);
    service_host_release(&fixture.host);
    service_host_settle(&fixture.host);
    assert_int_equal(count(&fixture)->undecodable, 1);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_INTERNAL), 1);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(all_requests(&fixture), 3);
    stop(&fixture);
}

/* The one lookup that there is has been computed. */
static void wait_until_answered(struct fixture *fixture)
{
    const uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (count(fixture)->queries == 0 && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(fixture->part.counters.queries, 1);
}

/* An answer that the peer's window does not take leaves nobody to take it. */
static void counts_an_answer_that_does_not_leave_as_cancelled(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &(struct service_request){.id = 1, .bags = 30 * LARGE_BAGS}, false);
    wire_peer_send(&fixture.peer);
    wait_until_answered(&fixture);
    wire_peer_close(&fixture.peer);
    assert_true(loop_host_wait_conns(&fixture.host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    (void)count(&fixture);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(eb_histogram_count(&fixture.part.counters.stages[EB_STAGE_TOTAL]), 0);
    service_host_stop(&fixture.host);
}

/* ---- what is refused ---- */

static void counts_what_expires_in_the_queue(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call,
        &(struct service_request){.id = 1, .bags = 1, .timeout_us = TIMEOUT_MS * 1000}, true);
    service_peer_settle(&fixture.peer);
    uv_sleep(TIMEOUT_MS + 1);
    service_host_release(&fixture.host);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(fixture.part.counters.queries, 0);
    stop(&fixture);
}

static void counts_a_call_whose_deadline_passes_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &call, LOOKUP, TIMEOUT_MS * 1000);
    service_call_write(&call, &small, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&fixture.host);
    service_host_settle(&fixture.host);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(all_requests(&fixture), 1);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_CANCELLED), 0);
    stop(&fixture);
}

static void counts_what_there_is_no_memory_to_answer_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    const struct service_request large = {.id = 1, .bags = LARGE_BAGS};
    service_host_init(&fixture.host);
    fixture.host.loops.options.answer_memory_bytes = 65536;
    start(&fixture);
    service_call_lookup(&fixture.peer, &call, &large);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(count(&fixture)->answer_shortages > 0);
    assert_int_equal(fixture.part.counters.refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &large, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    assert_int_equal(call.answers[0].error_code, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_MEMORY], 2);
    assert_int_equal(fixture.part.counters.receive_shortages, 0);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&fixture, STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(all_requests(&fixture), 2);
    stop(&fixture);
}

/* A request of which its descriptions alone are too much, and a unary request. */
static void counts_what_there_is_no_memory_to_look_at(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    fixture.host.loops.options.answer_memory_bytes = 1024;
    start(&fixture);
    service_call_lookup(&fixture.peer, &call, &small);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&fixture.peer, &call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&call.wire, "", 0, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_MEMORY], 2);
    stop(&fixture);
}

static void counts_what_there_is_no_memory_to_receive_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    static const char *const paths[] = {LOOKUP, STREAM};
    service_host_init(&fixture.host);
    fixture.host.loops.options.receive_memory_bytes = 65536;
    start(&fixture);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&fixture.peer, &call, paths[i], 0);
        wire_peer_write(&call.wire, LARGE_BAGS, 0, true);
        service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(count(&fixture)->receive_shortages > i);
        assert_int_equal(fixture.part.counters.refusals[EB_REFUSAL_MEMORY], i + 1);
        assert_int_equal(requests(&fixture, paths[i], EB_STATUS_RESOURCE_EXHAUSTED), 1);
    }
    assert_int_equal(fixture.part.counters.answer_shortages, 0);
    stop(&fixture);
}

static void does_not_take_what_is_too_large_for_a_want_of_memory(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    fixture.host.limits.response_bytes_max = 65536;
    start(&fixture);
    service_call_lookup(
        &fixture.peer, &call, &(struct service_request){.id = 1, .bags = LARGE_BAGS});
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_MEMORY], 0);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    stop(&fixture);
}

/* Of two lookups that come while nothing is computed the second is refused. */
static void expect_second_refused(struct fixture *fixture)
{
    struct service_call calls[2];
    start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0], &small);
    service_peer_settle(&fixture->peer);
    service_call_lookup(&fixture->peer, &calls[1], &small);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_RESOURCE_EXHAUSTED);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
}

static void counts_what_is_one_too_many(void **state)
{
    (void)state;
    struct fixture fixture;
    service_host_init(&fixture.host);
    fixture.host.limits.in_flight_max = 1;
    expect_second_refused(&fixture);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_IN_FLIGHT], 1);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&fixture, LOOKUP, EB_STATUS_OK), 1);
    stop(&fixture);
}

static void counts_what_the_queue_refuses(void **state)
{
    (void)state;
    struct fixture fixture;
    service_host_init(&fixture.host);
    fixture.host.limits.queue_bytes_max = 1;
    expect_second_refused(&fixture);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_QUEUE_FULL], 1);
    assert_int_equal(fixture.part.counters.queries, 1);
    stop(&fixture);
}

static void counts_connections_that_are_one_too_many(void **state)
{
    (void)state;
    struct fixture fixture;
    service_host_init(&fixture.host);
    fixture.host.loops.options.connections_max = 1;
    start(&fixture);
    look_up(&fixture, &small);
    const int socket = wire_connect(&fixture.host.address, 0);
    assert_true(wire_read_to_end(socket, SERVICE_HOST_TIMEOUT_MS, NULL, 0));
    close(socket);
    assert_int_equal(count(&fixture)->refusals[EB_REFUSAL_CONNECTIONS], 1);
    assert_int_equal(fixture.part.counters.connections, 1);
    stop(&fixture);
}

EB_TEST_GROUP(outcome_count)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_a_lookup_touches_and_how_long_each_stage_took),
        cmocka_unit_test(counts_lookups_that_the_loop_computes_itself),
        cmocka_unit_test(counts_each_request_of_a_stream_by_its_own_end),
        cmocka_unit_test(counts_the_times_of_all_that_are_written_together),
        cmocka_unit_test(counts_a_request_in_parts_once),
        cmocka_unit_test(counts_calls_of_what_is_no_method_in_one_place),
        cmocka_unit_test(counts_what_is_refused_by_its_headers_by_its_method),
        cmocka_unit_test(counts_methods_that_are_no_lookups),
        cmocka_unit_test(counts_each_message_of_a_stream_that_is_not_of_lookups_by_its_method),
        cmocka_unit_test(counts_requests_of_calls_that_are_reset_as_cancelled),
        cmocka_unit_test(counts_requests_of_a_connection_that_breaks_as_cancelled),
        cmocka_unit_test(counts_what_is_withdrawn_as_cancelled_and_the_word_itself_not),
        cmocka_unit_test(counts_bytes_that_are_no_message_once_whatever_was_in_flight),
        cmocka_unit_test(counts_an_answer_that_does_not_leave_as_cancelled),
        cmocka_unit_test(counts_what_expires_in_the_queue),
        cmocka_unit_test(counts_a_call_whose_deadline_passes_once),
        cmocka_unit_test(counts_what_there_is_no_memory_to_answer_once),
        cmocka_unit_test(counts_what_there_is_no_memory_to_look_at),
        cmocka_unit_test(counts_what_there_is_no_memory_to_receive_once),
        cmocka_unit_test(does_not_take_what_is_too_large_for_a_want_of_memory),
        cmocka_unit_test(counts_what_is_one_too_many),
        cmocka_unit_test(counts_what_the_queue_refuses),
        cmocka_unit_test(counts_connections_that_are_one_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
