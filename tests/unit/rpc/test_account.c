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

struct trial {
    struct service_host host;
    struct wire_peer peer;
    struct eb_census_part part; /* as it was counted last */
};

static void start(struct trial *trial)
{
    service_host_start(&trial->host);
    wire_peer_open(&trial->peer, &trial->host.address);
}

static void count_here(struct eb_loop *loop, void *part)
{
    *(struct eb_census_part *)part = (struct eb_census_part){0};
    eb_service_count(loop, part);
    free(((struct eb_census_part *)part)->tables); /* which nothing here looks at */
    ((struct eb_census_part *)part)->tables = NULL;
}

static const struct eb_tally *count(struct trial *trial)
{
    loop_host_act(trial->host.loops.loops[0], count_here, &trial->part);
    return &trial->part.tally;
}

static uint64_t requests(const struct trial *trial, const char *path, enum eb_status status)
{
    return trial->part.tally.requests[eb_method_find(path).index][status];
}

/* Of all methods and statuses, but those by which service_peer_settle waits. */
static uint64_t all_requests(const struct trial *trial)
{
    const unsigned unseen = eb_method_find(SERVICE_HOST_METHOD("GetServer")).index;
    uint64_t sum = 0;
    for (unsigned i = 0; i < EB_TALLY_METHODS_MAX; i++) {
        for (unsigned k = 0; i != unseen && k < EB_TALLY_STATUSES; k++) {
            sum += trial->part.tally.requests[i][k];
        }
    }
    return sum;
}

static void stop(struct trial *trial)
{
    wire_peer_close(&trial->peer);
    service_host_stop(&trial->host);
}

static void look_up(struct trial *trial, const struct service_request *request)
{
    struct service_call call;
    service_call_lookup(&trial->peer, &call, request);
    service_call_expect_end(&trial->peer, &call, EB_STATUS_OK);
}

/* ---- what is done ---- */

static void counts_what_a_lookup_touches_and_how_long_each_stage_took(void **state)
{
    (void)state;
    struct trial trial;
    service_host_init(&trial.host);
    start(&trial);
    look_up(&trial, &(struct service_request){.id = 1, .bags = 1, .queries = 3});
    const struct eb_tally *tally = count(&trial);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(tally->calls, 1);
    assert_int_equal(tally->connections, 1);
    assert_int_equal(trial.part.connections, 1);
    assert_int_equal(tally->queries, 3);
    assert_int_equal(tally->bags, 3);
    assert_int_equal(tally->indices, 3);
    assert_int_equal(tally->row_bytes, 3 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(tally->value_bytes, 3 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(tally->inline_lookups, 0);
    assert_true(tally->received_bytes > WIRE_HELLO_BYTES);
    assert_true(tally->sent_bytes > 3 * SERVICE_HOST_ROW_BYTES);
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        assert_int_equal(eb_histogram_count(&tally->stages[i]), 1);
        sum_ns += tally->stages[i].sum_ns;
    }
    assert_int_equal(sum_ns, 2 * tally->stages[EB_STAGE_TOTAL].sum_ns);
    assert_true(eb_histogram_count(&tally->lag) > 0);
    assert_true(tally->lag.sum_ns > 0);
    stop(&trial);
}

static void counts_lookups_that_the_loop_computes_itself(void **state)
{
    (void)state;
    struct trial trial;
    service_host_init(&trial.host);
    trial.host.limits.inline_below_us = 1000000;
    start(&trial);
    look_up(&trial, &small);
    look_up(&trial, &small);
    assert_int_equal(count(&trial)->inline_lookups, 2);
    assert_int_equal(eb_histogram_count(&trial.part.tally.stages[EB_STAGE_TOTAL]), 2);
    stop(&trial);
}

static void counts_each_request_of_a_stream_by_its_own_end(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_call_open(&trial.peer, &call, STREAM, 0);
    for (uint64_t id = 1; id <= 5; id++) {
        service_call_write(&call, &(struct service_request){.id = id, .bags = 1}, false);
    }
    service_call_write(
        &call, &(struct service_request){.id = 6, .bags = 1, .table = "none"}, false);
    service_call_write(
        &call, &(struct service_request){.id = 7, .bags = 1, .is_faulty = true}, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    const struct eb_tally *tally = count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_OK), 5);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_NOT_FOUND), 1);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_INVALID_ARGUMENT), 1);
    assert_int_equal(all_requests(&trial), 7);
    assert_int_equal(tally->calls, 1);
    assert_int_equal(tally->indices, 5);
    assert_int_equal(eb_histogram_count(&tally->stages[EB_STAGE_SEND]), 5);
    stop(&trial);
}

static void counts_the_times_of_all_that_are_written_together(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    trial.host.limits.inline_below_us = 1000;
    start(&trial);
    service_call_open(&trial.peer, &call, STREAM, 0);
    for (uint64_t id = 1; id <= SERVICE_HOST_ANSWERS_MAX; id++) {
        service_call_write(
            &call, &(struct service_request){.id = id, .bags = 1}, id == SERVICE_HOST_ANSWERS_MAX);
    }
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    const struct eb_tally *tally = count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_OK), SERVICE_HOST_ANSWERS_MAX);
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        assert_int_equal(eb_histogram_count(&tally->stages[i]), SERVICE_HOST_ANSWERS_MAX);
        sum_ns += tally->stages[i].sum_ns;
    }
    assert_int_equal(sum_ns, 2 * tally->stages[EB_STAGE_TOTAL].sum_ns);
    stop(&trial);
}

static void counts_a_request_in_parts_once(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call,
        &(struct service_request){.id = 1, .bags = LARGE_BAGS, .queries = 3, .partial = true},
        true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    assert_int_equal(call.count, 3);
    const struct eb_tally *tally = count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(tally->bags, 3 * LARGE_BAGS);
    assert_int_equal(eb_histogram_count(&tally->stages[EB_STAGE_TOTAL]), 1);
    stop(&trial);
}

static void counts_calls_of_what_is_no_method_in_one_place(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    static const char *const paths[] = {"/embag.v1.EmbeddingBag/None", "/none/None", "/"};
    service_host_init(&trial.host);
    start(&trial);
    for (unsigned i = 0; i < 3; i++) {
        service_call_open(&trial.peer, &call, paths[i], 0);
        service_call_write(&call, &small, true);
        service_call_expect_end(&trial.peer, &call, EB_STATUS_UNIMPLEMENTED);
    }
    assert_int_equal(count(&trial)->calls, 3);
    assert_int_equal(trial.part.tally.requests[eb_method_count()][EB_STATUS_UNIMPLEMENTED], 3);
    assert_int_equal(all_requests(&trial), 3);
    stop(&trial);
}

/* Paths of methods tell whose fault it was; those of none are all alike. */
static void counts_what_is_refused_by_its_headers_by_its_method(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    static const char *const paths[] = {STREAM, "/none/None"};
    service_host_init(&trial.host);
    trial.host.loops.options.conn_limits.session.header_fields_max = 5;
    start(&trial);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&trial.peer, &call, paths[i], TIMEOUT_MS * 1000);
        service_call_write(&call, &small, true);
        service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    }
    (void)count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&trial, "/none/None", EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(all_requests(&trial), 2);
    stop(&trial);
}

static void counts_methods_that_are_no_lookups(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_call_open(&trial.peer, &call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&call.wire, "", 0, true);
    assert_true(wire_peer_run(&trial.peer, &call.wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(count(&trial)->calls, 1);
    assert_int_equal(requests(&trial, SERVICE_HOST_METHOD("ListModels"), EB_STATUS_OK), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(eb_histogram_count(&trial.part.tally.stages[EB_STAGE_TOTAL]), 0);
    stop(&trial);
}

/* ---- what is given up ---- */

/* Two requests of a stream and a unary one, which wait for the executor. */
static void leave_three(struct trial *trial, struct service_call calls[2])
{
    service_host_init(&trial->host);
    start(trial);
    service_host_hold(&trial->host);
    service_call_lookup(&trial->peer, &calls[0], &small);
    service_call_open(&trial->peer, &calls[1], STREAM, 0);
    service_call_write(&calls[1], &small, false);
    service_call_write(&calls[1], &(struct service_request){.id = 2, .bags = 1}, false);
    service_peer_settle(&trial->peer);
}

static void expect_three_cancelled(struct trial *trial)
{
    service_host_release(&trial->host);
    service_host_settle(&trial->host);
    assert_int_equal(count(trial)->queries, 0);
    assert_int_equal(requests(trial, LOOKUP, EB_STATUS_CANCELLED), 1);
    assert_int_equal(requests(trial, STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(all_requests(trial), 3);
    assert_int_equal(eb_histogram_count(&trial->part.tally.stages[EB_STAGE_TOTAL]), 0);
}

static void counts_requests_of_calls_that_are_reset_as_cancelled(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call calls[2];
    leave_three(&trial, calls);
    eb_grpc_client_cancel(calls[0].wire.call);
    eb_grpc_client_cancel(calls[1].wire.call);
    wire_peer_send(&trial.peer);
    service_peer_settle(&trial.peer);
    expect_three_cancelled(&trial);
    stop(&trial);
}

static void counts_requests_of_a_connection_that_breaks_as_cancelled(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call calls[2];
    leave_three(&trial, calls);
    wire_peer_close(&trial.peer);
    assert_true(loop_host_wait_conns(&trial.host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    expect_three_cancelled(&trial);
    service_host_stop(&trial.host);
}

static void counts_what_is_withdrawn_as_cancelled_and_the_word_itself_not(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_host_hold(&trial.host);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call, &small, false);
    service_call_write(&call, &(struct service_request){.id = 1, .cancel = true}, false);
    service_call_write(&call, &(struct service_request){.id = 9, .cancel = true}, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    service_host_release(&trial.host);
    service_host_settle(&trial.host);
    (void)count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(all_requests(&trial), 1);
    stop(&trial);
}

static void counts_bytes_that_are_no_message_once_whatever_was_in_flight(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_host_hold(&trial.host);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call, &small, false);
    service_call_write(&call, &(struct service_request){.id = 2, .bags = 1}, false);
    wire_peer_write_bytes(&call.wire, "\xff\xff", 2, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_INTERNAL);
    service_host_release(&trial.host);
    service_host_settle(&trial.host);
    assert_int_equal(count(&trial)->undecodable, 1);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_INTERNAL), 1);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_CANCELLED), 2);
    assert_int_equal(all_requests(&trial), 3);
    stop(&trial);
}

/* The one lookup that there is has been computed. */
static void wait_until_answered(struct trial *trial)
{
    const uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (count(trial)->queries == 0 && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(trial->part.tally.queries, 1);
}

/* An answer that the peer's window does not take leaves nobody to take it. */
static void counts_an_answer_that_does_not_leave_as_cancelled(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call, &(struct service_request){.id = 1, .bags = 30 * LARGE_BAGS}, false);
    wire_peer_send(&trial.peer);
    wait_until_answered(&trial);
    wire_peer_close(&trial.peer);
    assert_true(loop_host_wait_conns(&trial.host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    (void)count(&trial);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_CANCELLED), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(eb_histogram_count(&trial.part.tally.stages[EB_STAGE_TOTAL]), 0);
    service_host_stop(&trial.host);
}

/* ---- what is refused ---- */

static void counts_what_expires_in_the_queue(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_host_hold(&trial.host);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call,
        &(struct service_request){.id = 1, .bags = 1, .timeout_us = TIMEOUT_MS * 1000}, true);
    service_peer_settle(&trial.peer);
    uv_sleep(TIMEOUT_MS + 1);
    service_host_release(&trial.host);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(trial.part.tally.queries, 0);
    stop(&trial);
}

static void counts_a_call_whose_deadline_passes_once(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    start(&trial);
    service_host_hold(&trial.host);
    service_call_open(&trial.peer, &call, LOOKUP, TIMEOUT_MS * 1000);
    service_call_write(&call, &small, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&trial.host);
    service_host_settle(&trial.host);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_EXPIRED], 1);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_DEADLINE_EXCEEDED), 1);
    assert_int_equal(all_requests(&trial), 1);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_CANCELLED), 0);
    stop(&trial);
}

static void counts_what_there_is_no_memory_to_answer_once(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    const struct service_request large = {.id = 1, .bags = LARGE_BAGS};
    service_host_init(&trial.host);
    trial.host.loops.options.answer_memory_bytes = 65536;
    start(&trial);
    service_call_lookup(&trial.peer, &call, &large);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(count(&trial)->answer_shortages > 0);
    assert_int_equal(trial.part.tally.refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&trial.peer, &call, STREAM, 0);
    service_call_write(&call, &large, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_OK);
    assert_int_equal(call.answers[0].error_code, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_MEMORY], 2);
    assert_int_equal(trial.part.tally.receive_shortages, 0);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&trial, STREAM, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(all_requests(&trial), 2);
    stop(&trial);
}

/* A request of which its descriptions alone are too much, and an inquiry. */
static void counts_what_there_is_no_memory_to_look_at(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    trial.host.loops.options.answer_memory_bytes = 1024;
    start(&trial);
    service_call_lookup(&trial.peer, &call, &small);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_MEMORY], 1);
    service_call_open(&trial.peer, &call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write_bytes(&call.wire, "", 0, true);
    service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_MEMORY], 2);
    stop(&trial);
}

static void counts_what_there_is_no_memory_to_receive_once(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    static const char *const paths[] = {LOOKUP, STREAM};
    service_host_init(&trial.host);
    trial.host.loops.options.receive_memory_bytes = 65536;
    start(&trial);
    for (unsigned i = 0; i < 2; i++) {
        service_call_open(&trial.peer, &call, paths[i], 0);
        wire_peer_write(&call.wire, LARGE_BAGS, 0, true);
        service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(count(&trial)->receive_shortages > i);
        assert_int_equal(trial.part.tally.refusals[EB_REFUSAL_MEMORY], i + 1);
        assert_int_equal(requests(&trial, paths[i], EB_STATUS_RESOURCE_EXHAUSTED), 1);
    }
    assert_int_equal(trial.part.tally.answer_shortages, 0);
    stop(&trial);
}

static void does_not_take_what_is_too_large_for_a_want_of_memory(void **state)
{
    (void)state;
    struct trial trial;
    struct service_call call;
    service_host_init(&trial.host);
    trial.host.limits.response_bytes_max = 65536;
    start(&trial);
    service_call_lookup(&trial.peer, &call, &(struct service_request){.id = 1, .bags = LARGE_BAGS});
    service_call_expect_end(&trial.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_MEMORY], 0);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    stop(&trial);
}

/* Of two lookups that come while nothing is computed the second is refused. */
static void expect_second_refused(struct trial *trial)
{
    struct service_call calls[2];
    start(trial);
    service_host_hold(&trial->host);
    service_call_lookup(&trial->peer, &calls[0], &small);
    service_peer_settle(&trial->peer);
    service_call_lookup(&trial->peer, &calls[1], &small);
    service_call_expect_end(&trial->peer, &calls[1], EB_STATUS_RESOURCE_EXHAUSTED);
    service_host_release(&trial->host);
    service_call_expect_end(&trial->peer, &calls[0], EB_STATUS_OK);
}

static void counts_what_is_one_too_many(void **state)
{
    (void)state;
    struct trial trial;
    service_host_init(&trial.host);
    trial.host.limits.in_flight_max = 1;
    expect_second_refused(&trial);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_IN_FLIGHT], 1);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_RESOURCE_EXHAUSTED), 1);
    assert_int_equal(requests(&trial, LOOKUP, EB_STATUS_OK), 1);
    stop(&trial);
}

static void counts_what_the_queue_refuses(void **state)
{
    (void)state;
    struct trial trial;
    service_host_init(&trial.host);
    trial.host.limits.queue_bytes_max = 1;
    expect_second_refused(&trial);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_QUEUE_FULL], 1);
    assert_int_equal(trial.part.tally.queries, 1);
    stop(&trial);
}

static void counts_connections_that_are_one_too_many(void **state)
{
    (void)state;
    struct trial trial;
    service_host_init(&trial.host);
    trial.host.loops.options.connections_max = 1;
    start(&trial);
    look_up(&trial, &small);
    const int socket = wire_connect(&trial.host.address, 0);
    assert_true(wire_read_to_end(socket, SERVICE_HOST_TIMEOUT_MS, NULL, 0));
    close(socket);
    assert_int_equal(count(&trial)->refusals[EB_REFUSAL_CONNECTIONS], 1);
    assert_int_equal(trial.part.tally.connections, 1);
    stop(&trial);
}

EB_TEST_GROUP(account)
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
