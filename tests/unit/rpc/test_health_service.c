#include "server/rpc/health_service.h"

#include "proto/codec_health.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define METHOD(name) "/grpc.health.v1.Health/" name
#define TOLD_MAX 8

struct fixture {
    struct service_host host;
    struct wire_peer peer;
};

/* A call of Check or Watch, and the statuses that it has returned. */
struct health_call {
    struct wire_call wire;
    size_t wanted;
    bool has_wanted;
    enum eb_health_status told[TOLD_MAX];
};

/* On the heap, because the service's threads may outlive a failed test. */
static struct fixture *fixture;

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    service_host_init(&fixture->host);
    fixture->host.loops.options.limits.conn.session.streams_max = 2 * EB_HEALTH_WATCHES_MAX;
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_peer_abandon(&fixture->peer);
    bool is_closed = loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS);
    service_host_stop(&fixture->host);
    free(fixture);
    fixture = NULL;
    assert_true(is_closed);
    return 0;
}

/* A HealthCheckResponse is empty or consists of a tag and a number. */
static void on_health_message(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct health_call *call = EB_CONTAINER_OF(wire, struct health_call, wire);
    size_t place = wire->message_count - 1;
    if (place < TOLD_MAX) {
        call->told[place] = size == 2 ? (enum eb_health_status)bytes[1] : EB_HEALTH_UNKNOWN;
    }
    call->has_wanted = wire->message_count >= call->wanted;
}

static void ask_health(struct health_call *call, const char *method, const char *name)
{
    uint8_t bytes[300] = {0x0a, (uint8_t)strlen(name)};
    assert_true(strlen(name) < 128);
    memcpy(bytes + 2, name, strlen(name));
    *call = (struct health_call){.wanted = 1};
    wire_peer_call(&fixture->peer, &call->wire, method);
    call->wire.on_message = on_health_message;
    wire_peer_write_bytes(&call->wire, bytes, 2 + strlen(name), true);
}

static void expect_told(struct health_call *call, size_t count, enum eb_health_status status)
{
    call->wanted = count;
    call->has_wanted = call->wire.message_count >= count;
    assert_true(wire_peer_run(&fixture->peer, &call->has_wanted, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(call->wire.message_count, count);
    assert_int_equal(call->told[count - 1], status);
}

static void expect_health_end(struct health_call *call, enum eb_status status)
{
    assert_true(wire_peer_run(&fixture->peer, &call->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(eb_status_name((int)call->wire.error.status), eb_status_name((int)status));
}

static void expect_status(const char *name, enum eb_health_status status)
{
    struct health_call call;
    ask_health(&call, METHOD("Check"), name);
    expect_health_end(&call, EB_STATUS_OK);
    assert_int_equal(call.wire.message_count, 1);
    assert_int_equal(call.told[0], status);
}

static void expect_unknown(const char *name)
{
    struct health_call call;
    ask_health(&call, METHOD("Check"), name);
    expect_health_end(&call, EB_STATUS_NOT_FOUND);
}

static void swap_snapshot(struct eb_loop *loop, void *snapshot)
{
    (void)eb_service_swap(loop, snapshot);
}

static void show(struct eb_snapshot *snapshot)
{
    loop_host_act(fixture->host.loops.loops[0], swap_snapshot, snapshot);
}

static void says_of_each_name_how_it_is(void **state)
{
    (void)state;
    struct eb_snapshot_model model = {.name = (char *)"later"};
    struct eb_snapshot snapshot = {.count = 1, .models = &model};
    expect_status("", EB_HEALTH_SERVING);
    expect_status("embag.v1.EmbeddingBag", EB_HEALTH_SERVING);
    expect_status("grpc.health.v1.Health", EB_HEALTH_SERVING);
    expect_status("trial", EB_HEALTH_SERVING);
    expect_unknown("later");
    expect_unknown("tria");
    expect_unknown("embag.v1.EmbeddingBags");
    show(&snapshot);
    expect_status("", EB_HEALTH_SERVING);
    expect_status("later", EB_HEALTH_NOT_SERVING);
    expect_unknown("trial");
    show(fixture->host.snapshot);
}

static void says_of_a_part_server_whether_it_is_ready(void **state)
{
    (void)state;
    struct eb_snapshot_model model = {
        .name = (char *)"trial", .served = fixture->host.snapshot->models[0].served};
    struct eb_snapshot snapshot = {.not_ready = (char *)"no", .count = 1, .models = &model};
    struct health_call watch;
    ask_health(&watch, METHOD("Watch"), "");
    expect_told(&watch, 1, EB_HEALTH_SERVING);
    show(&snapshot);
    expect_told(&watch, 2, EB_HEALTH_NOT_SERVING);
    expect_status("", EB_HEALTH_NOT_SERVING);
    expect_status("embag.v1.EmbeddingBag", EB_HEALTH_SERVING);
    expect_status("trial", EB_HEALTH_SERVING);
    show(fixture->host.snapshot);
    expect_told(&watch, 3, EB_HEALTH_SERVING);
}

static void refuses_what_is_no_request(void **state)
{
    static const uint8_t bytes[] = {0x0a, 0x05, 'a'};
    (void)state;
    struct wire_call calls[3];
    static const char *const methods[] = {METHOD("Check"), METHOD("Watch"), METHOD("List")};
    for (size_t i = 0; i < 3; i++) {
        wire_peer_call(&fixture->peer, &calls[i], methods[i]);
        wire_peer_write_bytes(&calls[i], bytes, sizeof bytes, true);
        assert_true(wire_peer_run(&fixture->peer, &calls[i].is_finished, SERVICE_HOST_TIMEOUT_MS));
        assert_int_equal(calls[i].error.status, EB_STATUS_INTERNAL);
    }
    expect_status("", EB_HEALTH_SERVING);
}

static void set_ready(struct eb_loop *loop, void *is_ready)
{
    eb_service_set_ready(loop, is_ready);
}

static void concerns_only_the_server_itself_while_a_router_is_not_ready(void **state)
{
    (void)state;
    struct eb_loop *loop = fixture->host.loops.loops[0];
    struct health_call watch;
    ask_health(&watch, METHOD("Watch"), "");
    expect_told(&watch, 1, EB_HEALTH_SERVING);
    loop_host_act(loop, set_ready, NULL);
    expect_told(&watch, 2, EB_HEALTH_NOT_SERVING);
    expect_status("", EB_HEALTH_NOT_SERVING);
    expect_status("embag.v1.EmbeddingBag", EB_HEALTH_SERVING);
    expect_status("trial", EB_HEALTH_SERVING);
    loop_host_act(loop, set_ready, loop);
    expect_told(&watch, 3, EB_HEALTH_SERVING);
    expect_status("", EB_HEALTH_SERVING);
}

static void tells_who_watches_what_changes(void **state)
{
    (void)state;
    static struct health_call calls[3]; /* static, because the calls last as long as the peer */
    struct eb_snapshot empty = {0};
    ask_health(&calls[0], METHOD("Watch"), "trial");
    ask_health(&calls[1], METHOD("Watch"), "unknown");
    ask_health(&calls[2], METHOD("Watch"), "");
    expect_told(&calls[0], 1, EB_HEALTH_SERVING);
    expect_told(&calls[1], 1, EB_HEALTH_SERVICE_UNKNOWN);
    expect_told(&calls[2], 1, EB_HEALTH_SERVING);
    show(&empty);
    expect_told(&calls[0], 2, EB_HEALTH_SERVICE_UNKNOWN);
    show(fixture->host.snapshot);
    expect_told(&calls[0], 3, EB_HEALTH_SERVING);
    show(fixture->host.snapshot);
    service_peer_settle(&fixture->peer);
    assert_int_equal(calls[0].wire.message_count, 3);
    assert_int_equal(calls[1].wire.message_count, 1);
    assert_int_equal(calls[2].wire.message_count, 1);
}

static void lets_a_connection_watch_so_many_names_and_no_more(void **state)
{
    (void)state;
    static struct health_call calls[EB_HEALTH_WATCHES_MAX + 1];
    for (size_t i = 0; i < EB_HEALTH_WATCHES_MAX; i++) {
        ask_health(&calls[i], METHOD("Watch"), "trial");
        expect_told(&calls[i], 1, EB_HEALTH_SERVING);
    }
    ask_health(&calls[EB_HEALTH_WATCHES_MAX], METHOD("Watch"), "trial");
    expect_health_end(&calls[EB_HEALTH_WATCHES_MAX], EB_STATUS_RESOURCE_EXHAUSTED);
    eb_grpc_client_cancel(calls[0].wire.call);
    service_peer_settle(&fixture->peer);
    ask_health(&calls[0], METHOD("Watch"), "trial");
    expect_told(&calls[0], 1, EB_HEALTH_SERVING);
}

static void says_that_it_does_not_serve_before_it_ends(void **state)
{
    (void)state;
    struct health_call calls[2];
    ask_health(&calls[0], METHOD("Watch"), "");
    ask_health(&calls[1], METHOD("Watch"), "unknown");
    expect_told(&calls[0], 1, EB_HEALTH_SERVING);
    expect_told(&calls[1], 1, EB_HEALTH_SERVICE_UNKNOWN);
    service_host_drain(&fixture->host);
    expect_health_end(&calls[0], EB_STATUS_UNAVAILABLE);
    expect_health_end(&calls[1], EB_STATUS_UNAVAILABLE);
    expect_told(&calls[0], 2, EB_HEALTH_NOT_SERVING);
    assert_int_equal(calls[1].wire.message_count, 1);
}

static void ends_a_watch_that_was_not_asked_for_yet(void **state)
{
    (void)state;
    struct health_call call = {.wanted = 1};
    wire_peer_call(&fixture->peer, &call.wire, METHOD("Watch"));
    service_peer_settle(&fixture->peer);
    service_host_drain(&fixture->host);
    expect_health_end(&call, EB_STATUS_UNAVAILABLE);
    assert_int_equal(call.wire.message_count, 0);
}

EB_TEST_GROUP(health_service)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(says_of_each_name_how_it_is),
        FIXTURE(says_of_a_part_server_whether_it_is_ready),
        FIXTURE(refuses_what_is_no_request),
        FIXTURE(concerns_only_the_server_itself_while_a_router_is_not_ready),
        FIXTURE(tells_who_watches_what_changes),
        FIXTURE(lets_a_connection_watch_so_many_names_and_no_more),
        FIXTURE(says_that_it_does_not_serve_before_it_ends),
        FIXTURE(ends_a_watch_that_was_not_asked_for_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
