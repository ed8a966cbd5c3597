#include "server/rpc/outcome.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOKUP SERVICE_HOST_METHOD("Lookup")
#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define LINES_PER_S 100
#define LATE_MS 2000
#define LATE_MS_MAX 18000 /* used on slow machines */

#define TRACEPARENT(digit, flags)                                                                  \
    "00-" digit "000000000000000000000000000000" digit "-00f067aa0ba902b7-" flags

static const struct service_request good = {.id = 5, .bags = 1};
static const struct service_request bad = {.id = 6, .bags = 1, .table = "none"};

static char captured[65536];

/* The capture of standard error, and whether it is running. */
static struct eb_capture capture;
static bool is_capturing;

static void stop_capture(void)
{
    if (is_capturing) {
        is_capturing = false;
        eb_capture_stop(&capture, captured, sizeof captured);
    }
}

/* Ends a capture that a failed test has left running, so that cmocka's own lines are visible. */
static int tear_down(void **state)
{
    stop_capture();
    return service_fixture_tear_down(state);
}

/* Starts a service that logs every request, and connects the peer. */
static void start_logging(struct service_fixture *fixture)
{
    fixture->host.access_log = EB_ACCESS_LOG_ALL;
    fixture->host.limits.access_log_per_s_max = LINES_PER_S;
    service_host_start(&fixture->host);
    eb_capture_start(&capture, STDERR_FILENO);
    is_capturing = true;
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

/* Stops the service and fills `captured` with what was logged. */
static void stop_logging(struct service_fixture *fixture)
{
    service_fixture_stop(fixture);
    stop_capture();
}

/* Returns how many request lines contain these words. Does not count GetServer, which tests call
 * only in order to wait. */
static unsigned count_lines(const char *words)
{
    unsigned count = 0;
    for (const char *line = captured; *line;) {
        size_t size = strcspn(line, "\n");
        bool is_request =
            memmem(line, size, " event=request ", 15) && !memmem(line, size, "/GetServer ", 11);
        count += is_request && memmem(line, size, words, strlen(words));
        line += size + (line[size] == '\n');
    }
    return count;
}

static void expect_lines(unsigned lines, const char *words)
{
    if (count_lines(words) != lines) {
        print_error("%s\n", captured);
    }
    assert_int_equal(count_lines(words), lines);
}

static void tells_each_call_once(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    start_logging(fixture);
    service_call_lookup(&fixture->peer, &calls[0], &good);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_OK);
    service_call_lookup(&fixture->peer, &calls[1], &bad);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_NOT_FOUND);
    stop_logging(fixture);
    expect_lines(2, " event=request ");
    expect_lines(1, " code=OK method=embag.v1.EmbeddingBag/Lookup stream=false ");
    expect_lines(1, " queries=1 bags=1 rows=1 missing=0 ");
    expect_lines(1, " request_id=5 priority=interactive version=7 model=trial");
    expect_lines(1, " code=NOT_FOUND method=embag.v1.EmbeddingBag/Lookup ");
    expect_lines(1, " request_id=6 priority=interactive version=7 model=trial error=");
}

static void tells_each_request_of_a_stream(void **state)
{
    struct service_fixture *fixture = *state;
    start_logging(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &good, false);
    service_call_write(&fixture->call, &bad, false);
    service_call_expect_answers(&fixture->peer, &fixture->call, 2);
    service_call_write(&fixture->call, &good, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    stop_logging(fixture);
    expect_lines(3, " event=request ");
    expect_lines(2, " code=OK method=embag.v1.EmbeddingBag/LookupStream stream=true ");
    expect_lines(1, " code=NOT_FOUND method=embag.v1.EmbeddingBag/LookupStream stream=true ");
}

static void tells_the_trace_that_each_message_names(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call unary;
    static const struct service_request traced[] = {
        {.id = 1, .bags = 1, .traceparent = TRACEPARENT("1", "01")},
        {.id = 2, .bags = 1, .traceparent = TRACEPARENT("2", "00")},
        {.id = 3, .bags = 1, .traceparent = TRACEPARENT("3", "01"), .is_bad = true},
        {.id = 4, .bags = 1, .traceparent = "00-4-4-04"},
        {.id = 5, .bags = 1},
    };
    start_logging(fixture);
    service_call_lookup(&fixture->peer, &unary, &traced[0]);
    service_call_expect_end(&fixture->peer, &unary, EB_STATUS_OK);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    for (size_t i = 1; i < sizeof traced / sizeof traced[0]; i++) {
        service_call_write(&fixture->call, &traced[i], i == 4);
    }
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    stop_logging(fixture);
    expect_lines(5, " event=request ");
    expect_lines(3, " trace_id=");
    expect_lines(1, " stream=false peer=");
    for (int id = 1; id <= 3; id++) {
        char words[160];
        snprintf(words, sizeof words,
            " trace_id=%d000000000000000000000000000000%d span_id=00f067aa0ba902b7 "
            "parent_id=00f067aa0ba902b7 sampled=%s ",
            id, id, id == 2 ? "false" : "true");
        expect_lines(1, words);
    }
}

static void tells_what_ends_a_stream_once(void **state)
{
    struct service_fixture *fixture = *state;
    start_logging(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &good, false);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    wire_peer_write_bytes(&fixture->call.wire, "\xff", 1, false);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_INTERNAL);
    stop_logging(fixture);
    expect_lines(2, " event=request ");
    expect_lines(1, " code=INTERNAL ");
}

static void tells_what_was_no_request(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    start_logging(fixture);
    service_call_open(&fixture->peer, &calls[0], "/embag.v1.EmbeddingBag/None", 0);
    service_call_write(&calls[0], &good, true);
    service_call_expect_end(&fixture->peer, &calls[0], EB_STATUS_UNIMPLEMENTED);
    service_call_open(&fixture->peer, &calls[1], LOOKUP, 0);
    service_call_write(&calls[1], &good, false);
    service_call_write(&calls[1], &good, true);
    service_call_expect_end(&fixture->peer, &calls[1], EB_STATUS_UNIMPLEMENTED);
    stop_logging(fixture);
    expect_lines(2, " code=UNIMPLEMENTED ");
    expect_lines(2, " event=request ");
    expect_lines(1, " method=embag.v1.EmbeddingBag/None stream=false ");
    expect_lines(1, "the call has more");
}

static void tells_what_its_client_gives_up(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call unary;
    struct service_call stream;
    start_logging(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &unary, &good);
    service_call_open(&fixture->peer, &stream, STREAM, 0);
    service_call_write(&stream, &good, false);
    service_call_write(
        &stream, &(struct service_request){.id = 8, .bags = 1, .priority = 1}, false);
    service_call_write(&stream, &(struct service_request){.id = 5, .cancel = true}, false);
    service_peer_settle(&fixture->peer);
    eb_grpc_client_cancel(unary.wire.call);
    eb_grpc_client_cancel(stream.wire.call);
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    stop_logging(fixture);
    expect_lines(3, " event=request ");
    expect_lines(3, " code=CANCELLED ");
    expect_lines(1, " code=CANCELLED method=embag.v1.EmbeddingBag/Lookup stream=false ");
    expect_lines(2, " code=CANCELLED method=embag.v1.EmbeddingBag/LookupStream stream=true ");
    expect_lines(1, " request_id=8 priority=batch ");
}

static void tells_what_was_cut_with_its_connection(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_call calls[2];
    start_logging(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &calls[0], &good);
    service_call_open(&fixture->peer, &calls[1], LOOKUP, 0);
    service_peer_settle(&fixture->peer);
    stop_logging(fixture);
    expect_lines(2, " event=request ");
    expect_lines(2, " code=CANCELLED method=embag.v1.EmbeddingBag/Lookup ");
    expect_lines(1, " request_id=5 ");
}

static void tells_what_expires_once(void **state)
{
    struct service_fixture *fixture = *state;
    start_logging(fixture);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, LOOKUP, 30000);
    service_call_write(&fixture->call, &good, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&fixture->host);
    stop_logging(fixture);
    expect_lines(1, " event=request ");
    expect_lines(1, " code=DEADLINE_EXCEEDED ");
    expect_lines(1, " model=trial error=");
}

static void add_counts(struct eb_loop *loop, void *part)
{
    eb_service_count(loop, part);
}

/* Returns how many lookups have been answered. */
static uint64_t count_answered(struct service_fixture *fixture)
{
    static struct eb_loop_stats part;
    loop_host_act(fixture->host.loops.loops[0], add_counts, &part);
    free(part.tables);
    return part.counters.queries;
}

/* Sends a lookup that is answered in parts. The first parts fill the window of the peer, so the
 * others wait until `late_ms` after the request, which is too long. Returns whether the log reports
 * these late parts, which may happen only once. The log does not report them if the machine was too
 * slow to compute any of them in time. */
static bool try_late_parts(struct service_fixture *fixture, uint64_t late_ms)
{
    start_logging(fixture);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call,
        &(struct service_request){.id = 5,
            .bags = 100000,
            .queries = 30,
            .partial = true,
            .timeout_us = late_ms * 1000,
            .traceparent = TRACEPARENT("1", "01")},
        true);
    wire_peer_send(&fixture->peer);
    uint64_t begun_ns = uv_hrtime();
    while (count_answered(fixture) == 0 && uv_hrtime() - begun_ns < UINT64_C(1000000) * late_ms) {
        uv_sleep(1);
    }
    uv_sleep((unsigned)late_ms);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_true(fixture->call.count < 30);
    assert_int_equal(
        fixture->call.answers[fixture->call.count - 1].error_code, EB_STATUS_DEADLINE_EXCEEDED);
    stop_logging(fixture);
    service_host_init(&fixture->host); /* for the next round or the teardown */
    const char *line = strstr(captured, " event=answer_unsent ");
    assert_true(!line || !strstr(line + 1, " event=answer_unsent "));
    assert_true(!line || !memmem(line, strcspn(line, "\n"), "trace_id", strlen("trace_id")));
    return line;
}

static void tells_once_of_parts_that_have_waited_too_long(void **state)
{
    struct service_fixture *fixture = *state;
    bool has_waited = false;
    for (uint64_t late_ms = LATE_MS; !has_waited && late_ms <= LATE_MS_MAX; late_ms *= 3) {
        has_waited = try_late_parts(fixture, late_ms);
    }
    assert_true(has_waited);
}

static void tells_why_the_session_ended_a_call(void **state)
{
    struct service_fixture *fixture = *state;
    start_logging(fixture);
    service_call_open(&fixture->peer, &fixture->call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write(&fixture->call.wire, EB_UNARY_BYTES_MAX + 1, 0, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_RESOURCE_EXHAUSTED);
    stop_logging(fixture);
    expect_lines(1, " event=request ");
    expect_lines(
        1, " code=RESOURCE_EXHAUSTED method=embag.v1.EmbeddingBag/ListModels stream=false ");
    expect_lines(1, "error=\"the message is larger than the limit of 32768 bytes\"");
}

static struct eb_stats *take_stats(struct service_fixture *fixture)
{
    static struct eb_loop_stats part;
    struct eb_stats *stats = eb_stats_make(1);
    assert_non_null(stats);
    loop_host_act(fixture->host.loops.loops[0], add_counts, &part);
    eb_stats_add(stats, &part);
    free(part.tables);
    return stats;
}

static void keeps_slow_lookups_whatever_is_logged(void **state)
{
    struct service_fixture *fixture = *state;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &fixture->call,
        &(struct service_request){.bags = 1, .traceparent = TRACEPARENT("1", "00")});
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    struct eb_stats *stats = take_stats(fixture);
    const struct eb_stats_slow *slow = stats->slow;
    assert_int_equal(stats->slow_count, 1);
    assert_string_equal(slow->method, "embag.v1.EmbeddingBag/Lookup");
    assert_string_equal(slow->model, "trial");
    assert_string_equal(slow->trace, "10000000000000000000000000000001");
    assert_string_equal(slow->span, "00f067aa0ba902b7");
    assert_memory_equal(slow->peer, "127.0.0.1:", 10);
    assert_int_equal(slow->indices, 1);
    assert_int_equal(slow->value_bytes, SERVICE_HOST_ROW_BYTES);
    assert_true(slow->ns[EB_STAGE_QUEUE] > 0);
    assert_int_equal(
        slow->ns[EB_STAGE_TOTAL], slow->ns[EB_STAGE_QUEUE] + slow->ns[EB_STAGE_COMPUTE]);
    eb_stats_free(stats);
}

EB_TEST_GROUP(outcome_log)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, service_fixture_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(tells_each_call_once),
        FIXTURE(tells_each_request_of_a_stream),
        FIXTURE(tells_the_trace_that_each_message_names),
        FIXTURE(tells_what_ends_a_stream_once),
        FIXTURE(tells_what_was_no_request),
        FIXTURE(tells_what_its_client_gives_up),
        FIXTURE(tells_what_was_cut_with_its_connection),
        FIXTURE(tells_what_expires_once),
        FIXTURE(tells_once_of_parts_that_have_waited_too_long),
        FIXTURE(tells_why_the_session_ended_a_call),
        FIXTURE(keeps_slow_lookups_whatever_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
