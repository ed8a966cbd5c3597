#include "server/rpc/outcome.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOKUP SERVICE_HOST_METHOD("Lookup")
#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define LINES_PER_S 100
#define LATE_MS 2000
#define LATE_MS_MAX 18000 /* on a slow machine */

static const struct service_request good = {.id = 5, .bags = 1};
static const struct service_request bad = {.id = 6, .bags = 1, .table = "none"};

static char captured[65536];

/* A service that logs every request, and one who calls it. */
struct fixture {
    struct service_host host;
    struct wire_peer peer;
    struct eb_capture capture;
};

static void start(struct fixture *fixture)
{
    service_host_init(&fixture->host);
    fixture->host.facts.access_log = EB_ACCESS_LOG_ALL;
    fixture->host.limits.access_log_per_s_max = LINES_PER_S;
    service_host_start(&fixture->host);
    eb_capture_start(&fixture->capture, STDERR_FILENO);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

/* All is over then, and `captured` has what was logged. */
static void stop(struct fixture *fixture)
{
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_stop(&fixture->host);
    eb_capture_stop(&fixture->capture, captured, sizeof captured);
}

/* Lines of requests with these words in them, without those by which tests wait. */
static unsigned count_lines(const char *words)
{
    unsigned count = 0;
    for (const char *line = captured; *line;) {
        const size_t size = strcspn(line, "\n");
        const bool is_request =
            memmem(line, size, " event=request ", 15) && !memmem(line, size, "/GetServer ", 11);
        count += is_request && memmem(line, size, words, strlen(words));
        line += size + (line[size] == '\n');
    }
    return count;
}

static void expect(unsigned lines, const char *words)
{
    if (count_lines(words) != lines) {
        print_error("%s\n", captured);
    }
    assert_int_equal(count_lines(words), lines);
}

static void tells_each_call_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call calls[2];
    start(&fixture);
    service_call_lookup(&fixture.peer, &calls[0], &good);
    service_call_expect_end(&fixture.peer, &calls[0], EB_STATUS_OK);
    service_call_lookup(&fixture.peer, &calls[1], &bad);
    service_call_expect_end(&fixture.peer, &calls[1], EB_STATUS_NOT_FOUND);
    stop(&fixture);
    expect(2, " event=request ");
    expect(1, " code=OK method=embag.v1.EmbeddingBag/Lookup stream=false ");
    expect(1, " queries=1 bags=1 rows=1 missing=0 ");
    expect(1, " request_id=5 priority=interactive version=7 model=trial");
    expect(1, " code=NOT_FOUND method=embag.v1.EmbeddingBag/Lookup ");
    expect(1, " request_id=6 priority=interactive version=7 model=trial error=");
}

static void tells_each_request_of_a_stream(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &good, false);
    service_call_write(&call, &bad, false);
    service_call_expect_answers(&fixture.peer, &call, 2);
    service_call_write(&call, &good, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    stop(&fixture);
    expect(3, " event=request ");
    expect(2, " code=OK method=embag.v1.EmbeddingBag/LookupStream stream=true ");
    expect(1, " code=NOT_FOUND method=embag.v1.EmbeddingBag/LookupStream stream=true ");
}

static void tells_what_ends_a_stream_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call, &good, false);
    service_call_expect_answers(&fixture.peer, &call, 1);
    wire_peer_write_bytes(&call.wire, "\xff", 1, false);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_INTERNAL);
    stop(&fixture);
    expect(2, " event=request ");
    expect(1, " code=INTERNAL ");
}

static void tells_what_was_no_request(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call calls[2];
    start(&fixture);
    service_call_open(&fixture.peer, &calls[0], "/embag.v1.EmbeddingBag/None", 0);
    service_call_write(&calls[0], &good, true);
    service_call_expect_end(&fixture.peer, &calls[0], EB_STATUS_UNIMPLEMENTED);
    service_call_open(&fixture.peer, &calls[1], LOOKUP, 0);
    service_call_write(&calls[1], &good, false);
    service_call_write(&calls[1], &good, true);
    service_call_expect_end(&fixture.peer, &calls[1], EB_STATUS_UNIMPLEMENTED);
    stop(&fixture);
    expect(2, " code=UNIMPLEMENTED ");
    expect(2, " event=request ");
    expect(1, " method=embag.v1.EmbeddingBag/None stream=false ");
    expect(1, "there were more");
}

static void tells_what_its_client_gives_up(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call unary;
    struct service_call stream;
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_lookup(&fixture.peer, &unary, &good);
    service_call_open(&fixture.peer, &stream, STREAM, 0);
    service_call_write(&stream, &good, false);
    service_call_write(
        &stream, &(struct service_request){.id = 8, .bags = 1, .priority = 1}, false);
    service_call_write(&stream, &(struct service_request){.id = 5, .cancel = true}, false);
    service_peer_settle(&fixture.peer);
    eb_grpc_client_cancel(unary.wire.call);
    eb_grpc_client_cancel(stream.wire.call);
    service_peer_settle(&fixture.peer);
    service_host_release(&fixture.host);
    stop(&fixture);
    expect(3, " event=request ");
    expect(3, " code=CANCELLED ");
    expect(1, " code=CANCELLED method=embag.v1.EmbeddingBag/Lookup stream=false ");
    expect(2, " code=CANCELLED method=embag.v1.EmbeddingBag/LookupStream stream=true ");
    expect(1, " request_id=8 priority=batch ");
}

static void tells_what_was_cut_with_its_connection(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call calls[2];
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_lookup(&fixture.peer, &calls[0], &good);
    service_call_open(&fixture.peer, &calls[1], LOOKUP, 0);
    service_peer_settle(&fixture.peer);
    stop(&fixture);
    expect(2, " event=request ");
    expect(2, " code=CANCELLED method=embag.v1.EmbeddingBag/Lookup ");
    expect(1, " request_id=5 ");
}

static void tells_what_expires_once(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    start(&fixture);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &call, LOOKUP, 30000);
    service_call_write(&call, &good, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_DEADLINE_EXCEEDED);
    service_host_release(&fixture.host);
    stop(&fixture);
    expect(1, " event=request ");
    expect(1, " code=DEADLINE_EXCEEDED ");
    expect(1, " model=trial error=");
}

static void count(struct eb_loop *loop, void *part)
{
    eb_service_count(loop, part);
}

/* How many lookups have been answered. */
static uint64_t count_answered(struct fixture *fixture)
{
    static struct eb_loop_stats part;
    loop_host_act(fixture->host.loops.loops[0], count, &part);
    free(part.tables);
    return part.counters.queries;
}

/* Of an answer in parts the peer's window takes the first ones only; the others wait until
 * `late_ms` after the request was sent. Whether the log says that they have, which it does once;
 * not where the machine was so slow that none of them was made before. */
static bool try_late_parts(uint64_t late_ms)
{
    struct fixture fixture;
    struct service_call call;
    start(&fixture);
    service_call_open(&fixture.peer, &call, STREAM, 0);
    service_call_write(&call,
        &(struct service_request){
            .id = 5, .bags = 100000, .queries = 30, .partial = true, .timeout_us = late_ms * 1000},
        true);
    wire_peer_send(&fixture.peer);
    const uint64_t begun_ns = uv_hrtime();
    while (count_answered(&fixture) == 0 && uv_hrtime() - begun_ns < UINT64_C(1000000) * late_ms) {
        uv_sleep(1);
    }
    uv_sleep((unsigned)late_ms);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    assert_true(call.count < 30);
    assert_int_equal(call.answers[call.count - 1].error_code, EB_STATUS_DEADLINE_EXCEEDED);
    stop(&fixture);
    const char *line = strstr(captured, " event=answer_unsent ");
    assert_true(!line || !strstr(line + 1, " event=answer_unsent "));
    return line;
}

static void tells_once_of_parts_that_have_waited_too_long(void **state)
{
    (void)state;
    bool has_waited = false;
    for (uint64_t late_ms = LATE_MS; !has_waited && late_ms <= LATE_MS_MAX; late_ms *= 3) {
        has_waited = try_late_parts(late_ms);
    }
    assert_true(has_waited);
}

static void tells_why_the_session_ended_a_call(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    start(&fixture);
    service_call_open(&fixture.peer, &call, SERVICE_HOST_METHOD("ListModels"), 0);
    wire_peer_write(&call.wire, EB_UNARY_BYTES_MAX + 1, 0, true);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_RESOURCE_EXHAUSTED);
    stop(&fixture);
    expect(1, " event=request ");
    expect(1, " code=RESOURCE_EXHAUSTED method=embag.v1.EmbeddingBag/ListModels stream=false ");
    expect(1, "error=\"the message is larger than the limit of 32768 bytes\"");
}

/* What stats shows of the loop. */
static struct eb_stats *take_stats(struct fixture *fixture)
{
    static struct eb_loop_stats part;
    struct eb_stats *stats = eb_stats_make(1);
    assert_non_null(stats);
    loop_host_act(fixture->host.loops.loops[0], count, &part);
    eb_stats_add(stats, &part);
    free(part.tables);
    return stats;
}

static void keeps_slow_lookups_whatever_is_logged(void **state)
{
    (void)state;
    struct fixture fixture;
    struct service_call call;
    service_host_init(&fixture.host);
    service_host_start(&fixture.host);
    wire_peer_open(&fixture.peer, &fixture.host.address);
    service_host_hold(&fixture.host);
    service_call_lookup(&fixture.peer, &call, &good);
    service_peer_settle(&fixture.peer);
    service_host_release(&fixture.host);
    service_call_expect_end(&fixture.peer, &call, EB_STATUS_OK);
    struct eb_stats *stats = take_stats(&fixture);
    const struct eb_stats_slow *slow = stats->slow;
    assert_int_equal(stats->slow_count, 1);
    assert_string_equal(slow->method, "embag.v1.EmbeddingBag/Lookup");
    assert_string_equal(slow->model, "trial");
    assert_memory_equal(slow->peer, "127.0.0.1:", 10);
    assert_int_equal(slow->indices, 1);
    assert_int_equal(slow->value_bytes, SERVICE_HOST_ROW_BYTES);
    assert_true(slow->ns[EB_STAGE_QUEUE] > 0);
    assert_int_equal(
        slow->ns[EB_STAGE_TOTAL], slow->ns[EB_STAGE_QUEUE] + slow->ns[EB_STAGE_COMPUTE]);
    eb_stats_free(stats);
    wire_peer_close(&fixture.peer);
    service_host_stop(&fixture.host);
}

EB_TEST_GROUP(outcome_log)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_each_call_once),
        cmocka_unit_test(tells_each_request_of_a_stream),
        cmocka_unit_test(tells_what_ends_a_stream_once),
        cmocka_unit_test(tells_what_was_no_request),
        cmocka_unit_test(tells_what_its_client_gives_up),
        cmocka_unit_test(tells_what_was_cut_with_its_connection),
        cmocka_unit_test(tells_what_expires_once),
        cmocka_unit_test(tells_once_of_parts_that_have_waited_too_long),
        cmocka_unit_test(tells_why_the_session_ended_a_call),
        cmocka_unit_test(keeps_slow_lookups_whatever_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
