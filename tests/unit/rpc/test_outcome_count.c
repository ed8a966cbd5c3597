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

/* The loop's counters at the last call of count_loop. */
static struct eb_loop_stats counted;

static void count_here(struct eb_loop *loop, void *part)
{
    struct eb_loop_stats *stats = part;
    *stats = (struct eb_loop_stats){0};
    eb_service_count(loop, stats);
    free(stats->tables); /* no test here reads these */
    stats->tables = NULL;
}

static const struct eb_counters *count_loop(struct service_fixture *fixture)
{
    loop_host_act(fixture->host.loops.loops[0], count_here, &counted);
    return &counted.counters;
}

static uint64_t count_requests(const char *path, enum eb_status status)
{
    return counted.counters.requests[eb_method_find(path).index][status];
}

/* Returns the number of requests of all methods and statuses, except those that service_peer_settle
 * makes. */
static uint64_t count_all_requests(void)
{
    unsigned unseen = eb_method_find(SERVICE_HOST_METHOD("GetServer")).index;
    uint64_t sum = 0;
    for (unsigned i = 0; i < EB_COUNTERS_METHODS_MAX; i++) {
        for (unsigned k = 0; i != unseen && k < EB_COUNTERS_STATUSES; k++) {
            sum += counted.counters.requests[i][k];
        }
    }
    return sum;
}

static void look_up(struct service_fixture *fixture, const struct service_request *request)
{
    struct service_call call;
    service_call_lookup(&fixture->peer, &call, request);
    service_call_expect_end(&fixture->peer, &call, EB_STATUS_OK);
}

/* ---- answered lookups ---- */

static void counts_what_a_lookup_touches_and_how_long_each_stage_took(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    look_up(fixture, &(struct service_request){.id = 1, .bags = 1, .queries = 3});
    const struct eb_counters *counters = count_loop(fixture);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_OK), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(counters->calls, 1);
    assert_int_equal(counters->connections, 1);
    assert_int_equal(counted.connections, 1);
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
}

static void counts_lookups_that_the_loop_computes_itself(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.inline_below_us = 1000000;
    service_fixture_start(fixture);
    look_up(fixture, &small);
    look_up(fixture, &small);
    assert_int_equal(count_loop(fixture)->inline_lookups, 2);
    assert_int_equal(eb_histogram_count(&counted.counters.stages[EB_STAGE_TOTAL]), 2);
}

static void counts_each_request_of_a_stream_by_its_own_end(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    for (uint64_t id = 1; id <= 5; id++) {
        service_call_write(&fixture->call, &(struct service_request){.id = id, .bags = 1}, false);
    }
    service_call_write(
        &fixture->call, &(struct service_request){.id = 6, .bags = 1, .table = "none"}, false);
    service_call_write(
        &fixture->call, &(struct service_request){.id = 7, .bags = 1, .is_bad = true}, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    const struct eb_counters *counters = count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_OK), 5);
    assert_int_equal(count_requests(STREAM, EB_STATUS_NOT_FOUND), 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_INVALID_ARGUMENT), 1);
    assert_int_equal(count_all_requests(), 7);
    assert_int_equal(counters->calls, 1);
    assert_int_equal(counters->indices, 5);
    assert_int_equal(eb_histogram_count(&counters->stages[EB_STAGE_SEND]), 5);
}

static void counts_the_times_of_all_that_are_written_together(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.inline_below_us = 1000;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    for (uint64_t id = 1; id <= SERVICE_HOST_ANSWERS_MAX; id++) {
        service_call_write(&fixture->call, &(struct service_request){.id = id, .bags = 1},
            id == SERVICE_HOST_ANSWERS_MAX);
    }
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    const struct eb_counters *counters = count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_OK), SERVICE_HOST_ANSWERS_MAX);
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        assert_int_equal(eb_histogram_count(&counters->stages[i]), SERVICE_HOST_ANSWERS_MAX);
        sum_ns += counters->stages[i].sum_ns;
    }
    assert_int_equal(sum_ns, 2 * counters->stages[EB_STAGE_TOTAL].sum_ns);
}

static void counts_a_request_in_parts_once(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call,
        &(struct service_request){.id = 1, .bags = LARGE_BAGS, .queries = 3, .partial = true},
        true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 3);
    const struct eb_counters *counters = count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_OK), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(counters->bags, 3 * LARGE_BAGS);
    assert_int_equal(eb_histogram_count(&counters->stages[EB_STAGE_TOTAL]), 1);
}

static void counts_calls_of_what_is_no_method_in_one_place(void **state)
{
    struct service_fixture *fixture = *state;
    static const char *const paths[] = {"/embag.v1.EmbeddingBag/None", "/none/None", "/"};
    service_fixture_start(fixture);
    for (unsigned i = 0; i < 3; i++) {
        service_call_open(&fixture->peer, &fixture->call, paths[i], 0);
        service_call_write(&fixture->call, &small, true);
        service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_UNIMPLEMENTED);
    }
    assert_int_equal(count_loop(fixture)->calls, 3);
    assert_int_equal(counted.counters.requests[eb_method_count()][EB_STATUS_UNIMPLEMENTED], 3);
    assert_int_equal(count_all_requests(), 3);
}

/* A request with a known path is counted for its method. Requests with unknown paths are counted
 * together. */
static void counts_what_is_refused_by_its_headers_by_its_method(void **state)
{
    struct service_fixture *fixture = *state;
    static const char *const paths[] = {STREAM, "/none/None"};
    fixture->host.loops.options.limits.conn.session.header_fields_max = 5;
    service_fixture_start(fixture);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&fixture->peer, &fixture->call, paths[i], TIMEOUT_MS * 1000);
        service_call_write(&fixture->call, &small, true);
        service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    }
    (void)count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(count_requests("/none/None", EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(count_all_requests(), 2);
}

static void counts_methods_that_are_no_lookups(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&fixture->call.wire, "", 0, true);
    assert_true(
        wire_peer_run(&fixture->peer, &fixture->call.wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(count_loop(fixture)->calls, 1);
    assert_int_equal(count_requests(SERVICE_HOST_METHOD("ListModels"), EB_STATUS_OK), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(eb_histogram_count(&counted.counters.stages[EB_STAGE_TOTAL]), 0);
}

static void counts_each_message_of_a_stream_that_is_not_of_lookups_by_its_method(void **state)
{
    struct service_fixture *fixture = *state;
    static const char method[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    static const char list_services[] = {0x3a, 0x00};
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, method, 0);
    wire_peer_write_bytes(&fixture->call.wire, list_services, sizeof list_services, false);
    wire_peer_write_bytes(&fixture->call.wire, list_services, sizeof list_services, true);
    assert_true(
        wire_peer_run(&fixture->peer, &fixture->call.wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(count_loop(fixture)->calls, 1);
    assert_int_equal(count_requests(method, EB_STATUS_OK), 2);
    assert_int_equal(count_all_requests(), 2);
}

/* ---- cancelled requests ---- */

/* Leaves two requests of a stream and a unary one waiting for the executor. */
static void leave_three(struct service_fixture *fixture, struct service_call calls[2])
{
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0], &small);
    service_call_open(&fixture->peer, &calls[1], STREAM, 0);
    service_call_write(&calls[1], &small, false);
    service_call_write(&calls[1], &(struct service_request){.id = 2, .bags = 1}, false);
    service_peer_settle(&fixture->peer);
}

static void expect_three_cancelled(struct service_fixture *fixture)
{
    service_host_release(&fixture->host);
    service_host_settle(&fixture->host);
    assert_int_equal(count_loop(fixture)->queries, 0);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_CANCELLED), 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(count_all_requests(), 3);
    assert_int_equal(eb_histogram_count(&counted.counters.stages[EB_STAGE_TOTAL]), 0);
}

static void counts_requests_of_calls_that_are_reset_as_cancelled(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    leave_three(fixture, calls);
    eb_grpc_client_cancel(calls[0].wire.call);
    eb_grpc_client_cancel(calls[1].wire.call);
    wire_peer_send(&fixture->peer);
    service_peer_settle(&fixture->peer);
    expect_three_cancelled(fixture);
}

static void counts_requests_of_a_connection_that_breaks_as_cancelled(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    leave_three(fixture, calls);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_three_cancelled(fixture);
}

static void counts_what_is_withdrawn_as_cancelled_and_the_word_itself_not(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &small, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .cancel = true}, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 9, .cancel = true}, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    service_host_release(&fixture->host);
    service_host_settle(&fixture->host);
    (void)count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(count_all_requests(), 1);
}

static void counts_bytes_that_are_no_message_once_whatever_was_in_flight(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &small, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 2, .bags = 1}, false);
    wire_peer_write_bytes(&fixture->call.wire, "\xff\xff", 2, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_INTERNAL);
    service_host_release(&fixture->host);
    service_host_settle(&fixture->host);
    assert_int_equal(count_loop(fixture)->undecodable, 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_INTERNAL), 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(count_all_requests(), 3);
}

/* Waits until the only lookup has been computed. */
static void wait_until_answered(struct service_fixture *fixture)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (count_loop(fixture)->queries == 0 && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(counted.counters.queries, 1);
}

/* The peer closes its connection while its window still keeps the answer from being sent. */
static void counts_an_answer_that_does_not_leave_as_cancelled(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(
        &fixture->call, &(struct service_request){.id = 1, .bags = 30 * LARGE_BAGS}, false);
    wire_peer_send(&fixture->peer);
    wait_until_answered(fixture);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    (void)count_loop(fixture);
    assert_int_equal(count_requests(STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(eb_histogram_count(&counted.counters.stages[EB_STAGE_TOTAL]), 0);
}

/* ---- refused requests ---- */

static void counts_what_expires_in_the_queue(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call,
        &(struct service_request){.id = 1, .bags = 1, .timeout_us = TIMEOUT_MS * 1000}, true);
    service_peer_settle(&fixture->peer);
    uv_sleep(TIMEOUT_MS + 1);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(counted.counters.queries, 0);
}

static void counts_a_call_whose_deadline_passes_once(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, LOOKUP, TIMEOUT_MS * 1000);
    service_call_write(&fixture->call, &small, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&fixture->host);
    service_host_settle(&fixture->host);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(count_all_requests(), 1);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_CANCELLED), 0);
}

static void counts_what_there_is_no_memory_to_answer_once(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_request large = {.id = 1, .bags = LARGE_BAGS};
    fixture->host.loops.options.answer_memory_bytes = 65536;
    service_fixture_start(fixture);
    service_call_lookup(&fixture->peer, &fixture->call, &large);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(count_loop(fixture)->answer_shortages > 0);
    assert_int_equal(counted.counters.refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &large, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.answers[0].error_code, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_MEMORY], 2);
    assert_int_equal(counted.counters.receive_shortages, 0);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(count_requests(STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(count_all_requests(), 2);
}

/* The answer memory has no room for the descriptions of a lookup, nor for a request to a unary
 * method that is not a lookup. */
static void counts_what_there_is_no_memory_to_look_at(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.loops.options.answer_memory_bytes = 1024;
    service_fixture_start(fixture);
    service_call_lookup(&fixture->peer, &fixture->call, &small);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&fixture->peer, &fixture->call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&fixture->call.wire, "", 0, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_MEMORY], 2);
}

static void counts_what_there_is_no_memory_to_receive_once(void **state)
{
    struct service_fixture *fixture = *state;
    static const char *const paths[] = {LOOKUP, STREAM};
    fixture->host.loops.options.receive_memory_bytes = 65536;
    service_fixture_start(fixture);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&fixture->peer, &fixture->call, paths[i], 0);
        wire_peer_write(&fixture->call.wire, LARGE_BAGS, 0, true);
        service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(count_loop(fixture)->receive_shortages > i);
        assert_int_equal(counted.counters.refusals[EB_REFUSAL_MEMORY], i + 1);
        assert_int_equal(count_requests(paths[i], EB_STATUS_RESOURCE_EXHAUSTED), 1);
    }
    assert_int_equal(counted.counters.answer_shortages, 0);
}

static void does_not_take_what_is_too_large_for_a_want_of_memory(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.response_bytes_max = 65536;
    service_fixture_start(fixture);
    service_call_lookup(
        &fixture->peer, &fixture->call, &(struct service_request){.id = 1, .bags = LARGE_BAGS});
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_MEMORY], 0);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
}

/* Sends two lookups while the executor is held, and expects the second to be refused. */
static void expect_second_refused(struct service_fixture *fixture)
{
    struct service_call calls[2];
    service_fixture_start(fixture);
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
    struct service_fixture *fixture = *state;
    fixture->host.limits.in_flight_max = 1;
    expect_second_refused(fixture);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_IN_FLIGHT], 1);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(count_requests(LOOKUP, EB_STATUS_OK), 1);
}

static void counts_what_the_queue_refuses(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.limits.queue_bytes_max = 1;
    expect_second_refused(fixture);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_QUEUE_FULL], 1);
    assert_int_equal(counted.counters.queries, 1);
}

static void counts_connections_that_are_one_too_many(void **state)
{
    struct service_fixture *fixture = *state;
    fixture->host.loops.options.limits.connections_max = 1;
    service_fixture_start(fixture);
    look_up(fixture, &small);
    int socket = wire_connect(&fixture->host.address, 0);
    assert_true(wire_read_to_end(socket, SERVICE_HOST_TIMEOUT_MS, NULL, 0));
    close(socket);
    assert_int_equal(count_loop(fixture)->refusals[EB_REFUSAL_CONNECTIONS], 1);
    assert_int_equal(counted.counters.connections, 1);
}

EB_TEST_GROUP(outcome_count)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(counts_what_a_lookup_touches_and_how_long_each_stage_took),
        FIXTURE(counts_lookups_that_the_loop_computes_itself),
        FIXTURE(counts_each_request_of_a_stream_by_its_own_end),
        FIXTURE(counts_the_times_of_all_that_are_written_together),
        FIXTURE(counts_a_request_in_parts_once),
        FIXTURE(counts_calls_of_what_is_no_method_in_one_place),
        FIXTURE(counts_what_is_refused_by_its_headers_by_its_method),
        FIXTURE(counts_methods_that_are_no_lookups),
        FIXTURE(counts_each_message_of_a_stream_that_is_not_of_lookups_by_its_method),
        FIXTURE(counts_requests_of_calls_that_are_reset_as_cancelled),
        FIXTURE(counts_requests_of_a_connection_that_breaks_as_cancelled),
        FIXTURE(counts_what_is_withdrawn_as_cancelled_and_the_word_itself_not),
        FIXTURE(counts_bytes_that_are_no_message_once_whatever_was_in_flight),
        FIXTURE(counts_an_answer_that_does_not_leave_as_cancelled),
        FIXTURE(counts_what_expires_in_the_queue),
        FIXTURE(counts_a_call_whose_deadline_passes_once),
        FIXTURE(counts_what_there_is_no_memory_to_answer_once),
        FIXTURE(counts_what_there_is_no_memory_to_look_at),
        FIXTURE(counts_what_there_is_no_memory_to_receive_once),
        FIXTURE(does_not_take_what_is_too_large_for_a_want_of_memory),
        FIXTURE(counts_what_is_one_too_many),
        FIXTURE(counts_what_the_queue_refuses),
        FIXTURE(counts_connections_that_are_one_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
