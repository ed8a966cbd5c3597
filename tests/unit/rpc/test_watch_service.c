#include "server/rpc/watch_service.h"

#include "proto/codec_watch.h"
#include "server/models/claims.h"
#include "server/rpc/watch_claims.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WATCH SERVICE_HOST_METHOD("WatchModels")
#define ARENA_BYTES ((size_t)1 << 24)
#define NAME_BYTES_MAX 255
#define INSTANCE UINT64_C(0x8070605040302010)
#define SETS_MAX 128
#define LONG_TICK_MS 3600000

/* The last holdings that a call was told. */
struct watch_call {
    struct wire_call wire;
    size_t wanted;
    bool has_wanted;
    bool is_garbled;
    bool is_draining;
    bool is_claimed; /* the first holding */
    bool is_served_by_router;
    uint64_t instance;
    uint32_t level;
    size_t count;
    size_t error_bytes; /* of all holdings */
    char model[64];     /* of the first holding */
    uint64_t version;
    uint64_t digest;
    int32_t state;
    uint32_t parts;
    uint32_t owned_part; /* UINT32_MAX if it owns no part, or several */
};

struct fixture {
    struct service_host host;
    struct wire_peer peer;
    struct watch_call calls[EB_WATCHES_MAX + 2];
    size_t claimed_count; /* sets received so far */
    size_t unclaimed_count;
    struct eb_claim_set *sets[SETS_MAX];
};

/* On the heap, because the service's threads may outlive a failed test. */
static struct fixture *fixture;

static void on_claim(void *context, struct eb_claim_set *set)
{
    (void)context;
    if (fixture->claimed_count < SETS_MAX) {
        fixture->sets[fixture->claimed_count] = set;
    }
    fixture->claimed_count++;
}

static void on_unclaim(void *context, struct eb_claim_set *set)
{
    (void)context;
    (void)set;
    fixture->unclaimed_count++;
}

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    service_host_init(&fixture->host);
    fixture->host.facts.instance = INSTANCE;
    fixture->host.endpoint.claim = on_claim;
    fixture->host.endpoint.unclaim = on_unclaim;
    fixture->host.loops.options.limits.tick_ms = LONG_TICK_MS;
    return 0;
}

static void start_watching(void)
{
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

static int tear_down(void **state)
{
    (void)state;
    wire_peer_abandon(&fixture->peer);
    bool is_closed = loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS);
    service_host_stop(&fixture->host);
    bool is_balanced = fixture->claimed_count == fixture->unclaimed_count;
    free(fixture);
    fixture = NULL;
    assert_true(is_closed);
    assert_true(is_balanced);
    return 0;
}

static void keep_holdings(struct watch_call *call, const struct eb_wire_holdings *holdings)
{
    call->is_draining = holdings->draining;
    call->instance = holdings->instance;
    call->level = holdings->level;
    call->count = holdings->count;
    call->error_bytes = 0;
    for (size_t i = 0; i < holdings->count; i++) {
        call->error_bytes += strlen(holdings->items[i].error);
    }
    if (holdings->count > 0) {
        const struct eb_wire_holding *item = &holdings->items[0];
        snprintf(call->model, sizeof call->model, "%s", item->model);
        call->version = item->version;
        call->digest = item->digest;
        call->parts = item->parts;
        call->owned_part = item->owned_part_count == 1 ? item->owned_parts[0] : UINT32_MAX;
        call->state = item->state;
        call->is_claimed = item->claimed;
        call->is_served_by_router = item->served_by_router;
    }
}

static void on_holdings(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct watch_call *call = EB_CONTAINER_OF(wire, struct watch_call, wire);
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_holdings *holdings =
        eb_holdings_decode(&arena, bytes, size, NAME_BYTES_MAX, &error);
    if (holdings) {
        keep_holdings(call, holdings);
    } else {
        call->is_garbled = true;
    }
    eb_arena_deinit(&arena);
    call->has_wanted = wire->message_count >= call->wanted;
}

static void ask_watch(struct watch_call *call, const struct eb_wire_claim *claims, size_t count)
{
    struct eb_wire_watch_request request = {
        .claim_count = count, .claims = claims, .router = "router-1", .level = EB_WATCH_LEVEL};
    size_t size = eb_watch_request_bytes(&request);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_watch_request_encode(&request, bytes);
    *call = (struct watch_call){.wanted = 1};
    wire_peer_call(&fixture->peer, &call->wire, WATCH);
    call->wire.on_message = on_holdings;
    wire_peer_write_bytes(&call->wire, bytes, size, true);
    free(bytes);
}

/* Waits until the call has got `count` messages. */
static void expect_messages(struct watch_call *call, size_t count)
{
    call->wanted = count;
    call->has_wanted = call->wire.message_count >= count;
    assert_true(wire_peer_run(&fixture->peer, &call->has_wanted, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(call->wire.message_count, count);
    assert_false(call->is_garbled);
}

static void expect_watch_end(struct watch_call *call, enum eb_status status)
{
    assert_true(wire_peer_run(&fixture->peer, &call->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(eb_status_name((int)call->wire.error.status), eb_status_name((int)status));
}

static void replace_snapshot(struct eb_loop *loop, void *snapshot)
{
    (void)eb_service_swap(loop, snapshot);
}

static void show_snapshot(struct eb_snapshot *snapshot)
{
    loop_host_act(fixture->host.loops.loops[0], replace_snapshot, snapshot);
}

/* Lets mails to the admin endpoint arrive until there were so many claims and ends of them. */
static void expect_claims(size_t claimed_count, size_t unclaimed_count)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while ((fixture->claimed_count < claimed_count || fixture->unclaimed_count < unclaimed_count) &&
           uv_hrtime() < deadline_ns) {
        if (!fixture->peer.is_abandoned) {
            wire_peer_send(&fixture->peer);
        }
        uv_run(&fixture->host.loops.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(fixture->claimed_count, claimed_count);
    assert_int_equal(fixture->unclaimed_count, unclaimed_count);
}

static void tells_the_holdings_at_once(void **state)
{
    (void)state;
    struct watch_call *call = &fixture->calls[0];
    start_watching();
    ask_watch(call, NULL, 0);
    expect_messages(call, 1);
    assert_int_equal(call->count, 1);
    assert_string_equal(call->model, "trial");
    assert_int_equal(call->version, 7);
    assert_int_equal(call->state, EB_VERSION_SERVING);
    assert_true(call->digest == fixture->host.snapshot->models[0].served->tables.digest);
    assert_true(call->instance == INSTANCE);
    assert_int_equal(call->level, EB_WATCH_LEVEL);
    assert_false(call->is_draining || call->is_claimed || call->is_served_by_router);
    assert_int_equal(fixture->claimed_count, 0);
}

static void tells_them_again_with_each_tick(void **state)
{
    (void)state;
    fixture->host.loops.options.limits.tick_ms = 20;
    start_watching();
    ask_watch(&fixture->calls[0], NULL, 0);
    expect_messages(&fixture->calls[0], 1);
    expect_messages(&fixture->calls[0], 2);
    expect_messages(&fixture->calls[0], 3);
}

static void tells_changes_together(void **state)
{
    (void)state;
    struct eb_snapshot_version version = {
        .number = 8, .state = EB_VERSION_LOADING, .is_claimed = true, .is_served_by_router = true};
    struct eb_snapshot_model model = {
        .name = (char *)"later", .version_count = 1, .versions = &version};
    struct eb_snapshot later = {.count = 1, .models = &model};
    struct eb_snapshot empty = {0};
    start_watching();
    for (size_t i = 0; i < 2; i++) {
        ask_watch(&fixture->calls[i], NULL, 0);
        expect_messages(&fixture->calls[i], 1);
    }
    uint64_t begun_ns = uv_hrtime();
    show_snapshot(&empty); /* sent at once */
    for (size_t i = 0; i < 2; i++) {
        expect_messages(&fixture->calls[i], 2);
        assert_int_equal(fixture->calls[i].count, 0);
    }
    show_snapshot(fixture->host.snapshot); /* both are sent together, with the state of the last */
    show_snapshot(&later);
    for (size_t i = 0; i < 2; i++) {
        expect_messages(&fixture->calls[i], 3);
        assert_string_equal(fixture->calls[i].model, "later");
        assert_int_equal(fixture->calls[i].state, EB_VERSION_LOADING);
        assert_true(fixture->calls[i].is_claimed && fixture->calls[i].is_served_by_router);
        assert_int_equal(fixture->calls[i].digest, 0);
    }
    /* The loop's clock counts whole milliseconds. */
    assert_true(uv_hrtime() - begun_ns >= UINT64_C(1000000) * (EB_WATCH_INTERVAL_MS - 1));
    service_peer_settle(&fixture->peer);
    assert_int_equal(fixture->calls[0].wire.message_count, 3);
    show_snapshot(fixture->host.snapshot);
    expect_messages(&fixture->calls[0], 4);
}

static void tells_what_is_known_of_a_part_that_is_not_loaded(void **state)
{
    (void)state;
    static const struct {
        enum eb_version_state state;
        bool is_known;
    } cases[] = {
        {EB_VERSION_LOADING, true}, {EB_VERSION_RETIRED, false}, {EB_VERSION_FAILED, true}};
    struct watch_call *call = &fixture->calls[0];
    fixture->host.facts.part = (struct eb_part_choice){.part = 3, .parts = 16};
    start_watching();
    ask_watch(call, NULL, 0);
    expect_messages(call, 1);
    for (size_t i = 0; i < 3; i++) {
        struct eb_snapshot_version version = {
            .number = 8, .state = cases[i].state, .manifest = 0x1234};
        struct eb_snapshot_model model = {
            .name = (char *)"later", .version_count = 1, .versions = &version};
        struct eb_snapshot later = {.count = 1, .models = &model};
        show_snapshot(&later);
        expect_messages(call, 2 + 2 * i);
        assert_int_equal(call->state, cases[i].state);
        assert_int_equal(call->digest, cases[i].is_known ? 0x1234 : 0);
        assert_int_equal(call->parts, cases[i].is_known ? 16 : 0);
        assert_int_equal(call->owned_part, cases[i].is_known ? 3 : UINT32_MAX);
        show_snapshot(fixture->host.snapshot);
        expect_messages(call, 3 + 2 * i);
    }
}

static void tells_so_many_holdings_and_no_more(void **state)
{
    (void)state;
    size_t count = EB_WATCH_HOLDINGS_MAX + 1;
    struct eb_snapshot_version *versions = calloc(count, sizeof *versions);
    assert_non_null(versions);
    for (size_t i = 0; i < count; i++) {
        versions[i].number = i; /* The first has no number, and is left out. */
        versions[i].state = EB_VERSION_LOADING;
    }
    struct eb_snapshot_model model = {
        .name = (char *)"wide", .version_count = count - 1, .versions = versions};
    struct eb_snapshot snapshot = {.count = 1, .models = &model};
    start_watching();
    show_snapshot(&snapshot);
    ask_watch(&fixture->calls[0], NULL, 0);
    expect_messages(&fixture->calls[0], 1);
    assert_int_equal(fixture->calls[0].count, EB_WATCH_HOLDINGS_MAX - 1);
    versions[0].number = count;
    model.version_count = count;
    ask_watch(&fixture->calls[1], NULL, 0);
    expect_messages(&fixture->calls[1], 1);
    assert_int_equal(fixture->calls[1].count, EB_WATCH_HOLDINGS_MAX);
    assert_int_equal(fixture->calls[1].version, count);
    show_snapshot(fixture->host.snapshot);
    free(versions);
}

static void leaves_out_error_texts_that_do_not_fit(void **state)
{
    (void)state;
    struct eb_snapshot_version versions[3];
    char *text = calloc(1, EB_WATCH_ERROR_BYTES_MAX);
    assert_non_null(text);
    memset(text, 'e', EB_WATCH_ERROR_BYTES_MAX - 1);
    for (size_t i = 0; i < 3; i++) {
        versions[i] = (struct eb_snapshot_version){
            .number = 3 - i, .state = EB_VERSION_FAILED, .failure = i == 0 ? text : (char *)"e"};
    }
    struct eb_snapshot_model model = {
        .name = (char *)"broken", .version_count = 3, .versions = versions};
    struct eb_snapshot snapshot = {.count = 1, .models = &model};
    start_watching();
    show_snapshot(&snapshot);
    ask_watch(&fixture->calls[0], NULL, 0);
    expect_messages(&fixture->calls[0], 1);
    assert_int_equal(fixture->calls[0].count, 3);
    assert_int_equal(fixture->calls[0].error_bytes, EB_WATCH_ERROR_BYTES_MAX);
    show_snapshot(fixture->host.snapshot);
    free(text);
}

static void sends_no_more_than_a_peer_reads(void **state)
{
    (void)state;
    uint64_t bytes_max = 2 * EB_WATCH_WAITING_BYTES_MAX;
    struct eb_snapshot_version *versions = calloc(EB_WATCH_HOLDINGS_MAX, sizeof *versions);
    assert_non_null(versions);
    for (size_t i = 0; i < EB_WATCH_HOLDINGS_MAX; i++) {
        versions[i].number = i + 1;
        versions[i].state = EB_VERSION_LOADING;
    }
    struct eb_snapshot_model model = {.name = (char *)"a model with a name that is rather long",
        .version_count = EB_WATCH_HOLDINGS_MAX,
        .versions = versions};
    struct eb_snapshot snapshot = {.count = 1, .models = &model};
    fixture->host.loops.options.limits.tick_ms = 1;
    start_watching();
    show_snapshot(&snapshot);
    ask_watch(&fixture->calls[0], NULL, 0);
    wire_peer_send(&fixture->peer);
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (loop_host_taken_bytes(&fixture->host.loops) < EB_WATCH_WAITING_BYTES_MAX &&
           uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    for (int i = 0; i < 20; i++) {
        uint64_t taken_bytes = loop_host_taken_bytes(&fixture->host.loops);
        assert_true(taken_bytes >= EB_WATCH_WAITING_BYTES_MAX && taken_bytes < bytes_max);
        uv_sleep(1);
    }
    show_snapshot(fixture->host.snapshot);
    /* A peer that reads again gets the last state. */
    struct watch_call *call = &fixture->calls[0];
    bool is_read = true;
    while (call->count != 1 && is_read) {
        call->wanted = call->wire.message_count + 1;
        call->has_wanted = false;
        is_read = wire_peer_run(&fixture->peer, &call->has_wanted, SERVICE_HOST_TIMEOUT_MS);
    }
    assert_true(is_read);
    free(versions);
}

static void lets_a_connection_watch_so_often_and_no_more(void **state)
{
    (void)state;
    start_watching();
    for (size_t i = 0; i < EB_WATCHES_MAX; i++) {
        ask_watch(&fixture->calls[i], NULL, 0);
        expect_messages(&fixture->calls[i], 1);
    }
    ask_watch(&fixture->calls[EB_WATCHES_MAX], NULL, 0);
    expect_watch_end(&fixture->calls[EB_WATCHES_MAX], EB_STATUS_RESOURCE_EXHAUSTED);
    eb_grpc_client_cancel(fixture->calls[0].wire.call);
    service_peer_settle(&fixture->peer);
    ask_watch(&fixture->calls[EB_WATCHES_MAX + 1], NULL, 0);
    expect_messages(&fixture->calls[EB_WATCHES_MAX + 1], 1);
}

static void says_that_it_drains_before_it_ends(void **state)
{
    static const struct eb_wire_claim claim = {.model = "trial", .version = 7};
    (void)state;
    struct watch_call *call = &fixture->calls[0];
    start_watching();
    ask_watch(call, &claim, 1);
    expect_messages(call, 1);
    expect_claims(1, 0);
    service_host_drain(&fixture->host);
    expect_watch_end(call, EB_STATUS_UNAVAILABLE);
    assert_int_equal(call->wire.message_count, 2);
    assert_true(call->is_draining);
    expect_claims(1, 1);
}

static void leave(struct eb_loop *loop, void *context)
{
    (void)context;
    eb_service_leave(loop);
}

static void says_that_it_will_drain(void **state)
{
    (void)state;
    struct watch_call *call = &fixture->calls[0];
    start_watching();
    ask_watch(call, NULL, 0);
    expect_messages(call, 1);
    loop_host_act(fixture->host.loops.loops[0], leave, NULL);
    expect_messages(call, 2);
    assert_true(call->is_draining);
}

static void ends_a_watch_without_a_request(void **state)
{
    (void)state;
    struct watch_call *call = &fixture->calls[0];
    start_watching();
    *call = (struct watch_call){.wanted = 1};
    wire_peer_call(&fixture->peer, &call->wire, WATCH);
    service_peer_settle(&fixture->peer);
    service_host_drain(&fixture->host);
    expect_watch_end(call, EB_STATUS_UNAVAILABLE);
    assert_int_equal(call->wire.message_count, 0);
}

static void refuses_what_is_no_watch_request(void **state)
{
    static const uint8_t garbled[] = {0x0a, 0x05, 'a'};
    static const struct eb_wire_claim nameless = {.model = "", .version = 7};
    (void)state;
    struct watch_call *call = &fixture->calls[0];
    start_watching();
    *call = (struct watch_call){.wanted = 1};
    wire_peer_call(&fixture->peer, &call->wire, WATCH);
    wire_peer_write_bytes(&call->wire, garbled, sizeof garbled, true);
    expect_watch_end(call, EB_STATUS_INTERNAL);
    ask_watch(&fixture->calls[1], &nameless, 1);
    expect_watch_end(&fixture->calls[1], EB_STATUS_INVALID_ARGUMENT);
    assert_int_equal(fixture->claimed_count, 0);
}

static void passes_claims_on_while_their_call_lives(void **state)
{
    static const struct eb_wire_claim claims[] = {
        {.model = "trial", .version = 7, .digest = 5, .served = true},
        {.model = "none", .version = UINT64_MAX}};
    (void)state;
    start_watching();
    ask_watch(&fixture->calls[0], claims, 2);
    expect_messages(&fixture->calls[0], 1);
    expect_claims(1, 0);
    const struct eb_claim_set *set = fixture->sets[0];
    assert_string_equal(set->router, "router-1");
    assert_int_equal(set->count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(set->claims[i].model, claims[i].model);
        assert_true(set->claims[i].version == claims[i].version);
        assert_true(set->claims[i].digest == claims[i].digest);
        assert_int_equal(set->claims[i].is_served, claims[i].served);
    }
    ask_watch(&fixture->calls[1], claims, 1);
    expect_messages(&fixture->calls[1], 1);
    expect_claims(2, 0);
    eb_grpc_client_cancel(fixture->calls[0].wire.call);
    expect_claims(2, 1);
    wire_peer_abandon(&fixture->peer);
    expect_claims(2, 2);
}

static void lets_a_loop_have_so_many_claims_and_no_more(void **state)
{
    (void)state;
    struct wire_peer peers[EB_WATCH_LOOP_CLAIMS_MAX / EB_WATCH_CLAIMS_MAX / EB_WATCHES_MAX];
    size_t peer_count = sizeof peers / sizeof peers[0];
    struct watch_call *calls = calloc(peer_count * EB_WATCHES_MAX, sizeof *calls);
    struct eb_wire_claim claims[EB_WATCH_CLAIMS_MAX];
    assert_non_null(calls);
    for (size_t i = 0; i < EB_WATCH_CLAIMS_MAX; i++) {
        claims[i] = (struct eb_wire_claim){.model = "trial", .version = 1 + i};
    }
    start_watching();
    struct wire_peer first = fixture->peer;
    for (size_t i = 0; i < peer_count; i++) {
        wire_peer_open(&fixture->peer, &fixture->host.address);
        for (size_t k = 0; k < EB_WATCHES_MAX; k++) {
            struct watch_call *call = &calls[i * EB_WATCHES_MAX + k];
            ask_watch(call, claims, EB_WATCH_CLAIMS_MAX);
            expect_messages(call, 1);
        }
        peers[i] = fixture->peer;
    }
    fixture->peer = first;
    ask_watch(&fixture->calls[0], claims, 1);
    expect_watch_end(&fixture->calls[0], EB_STATUS_RESOURCE_EXHAUSTED);
    ask_watch(&fixture->calls[0], NULL, 0);
    expect_messages(&fixture->calls[0], 1);
    expect_claims(peer_count * EB_WATCHES_MAX, 0);
    for (size_t i = 0; i < peer_count; i++) {
        wire_peer_abandon(&peers[i]);
    }
    expect_claims(peer_count * EB_WATCHES_MAX, peer_count * EB_WATCHES_MAX);
    uv_run(&fixture->host.loops.uv, UV_RUN_NOWAIT);
    service_host_settle(&fixture->host);
    ask_watch(&fixture->calls[1], claims, 1);
    expect_messages(&fixture->calls[1], 1);
    expect_claims(peer_count * EB_WATCHES_MAX + 1, peer_count * EB_WATCHES_MAX);
    wire_peer_abandon(&fixture->peer);
    expect_claims(peer_count * EB_WATCHES_MAX + 1, peer_count * EB_WATCHES_MAX + 1);
    free(calls);
}

EB_TEST_GROUP(watch_service)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(tells_the_holdings_at_once),
        FIXTURE(tells_them_again_with_each_tick),
        FIXTURE(tells_changes_together),
        FIXTURE(tells_what_is_known_of_a_part_that_is_not_loaded),
        FIXTURE(tells_so_many_holdings_and_no_more),
        FIXTURE(leaves_out_error_texts_that_do_not_fit),
        FIXTURE(sends_no_more_than_a_peer_reads),
        FIXTURE(lets_a_connection_watch_so_often_and_no_more),
        FIXTURE(says_that_it_drains_before_it_ends),
        FIXTURE(says_that_it_will_drain),
        FIXTURE(ends_a_watch_without_a_request),
        FIXTURE(refuses_what_is_no_watch_request),
        FIXTURE(passes_claims_on_while_their_call_lives),
        FIXTURE(lets_a_loop_have_so_many_claims_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
