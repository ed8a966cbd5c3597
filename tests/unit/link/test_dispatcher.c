#include "proto/link/dispatcher.h"

#include "client/lookup_call.h"
#include "proto/link/dispatch_host.h"
#include "tests/lib/test_group.h"
#include "tests/unit/client/fake_server.h"

#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SERVERS 3
#define PARTS 2
#define CALLS 256
#define SECOND UINT64_C(1000000000)
#define PATIENCE_NS (20 * SECOND)
#define UNACKNOWLEDGED_MS_MAX 1234
#define EVERY_SERVER ((1U << SERVERS) - 1)
#define FIRST_INSTANCE 70

/* A part of the rows, and the calls to it. */
struct part {
    uint64_t instances[SERVERS]; /* of the servers that have the part */
    size_t instance_count;
    struct eb_dispatch_group group;
};

struct test_call {
    struct fixture *fixture;
    struct eb_dispatch_call dispatched;
    struct eb_error error;
    bool is_over;
    bool abandons_others; /* as soon as it is over */
};

/* Servers with a dispatcher, which runs on a loop of the test's thread. */
struct fixture {
    struct fake_server servers[SERVERS];
    uv_loop_t loop;
    uv_prepare_t before_sleep;
    struct eb_targets targets;
    struct eb_credentials credentials;
    struct eb_dispatch_host host;
    struct part parts[PARTS];
    struct test_call calls[CALLS];
    uint32_t count;              /* of calls */
    uint32_t over;               /* of these, the ones that are over */
    uint32_t wrong_count;        /* answers to come that are taken for ... */
    enum eb_status wrong_status; /* ... this refusal */
    const void *source;          /* of the next calls */
    uint32_t connected;
    uint32_t told;           /* servers that have told their instances */
    uint32_t gone;           /* servers that are forgotten */
    const uint32_t *awaited; /* the loop stops when this number is at least `wanted` */
    uint32_t wanted;
    bool is_opened;
    bool has_ended;
};

/* The tests run with lookups on a stream, and with unary ones. */
static bool is_unary;

/* ---- the owner of the calls ---- */

static bool decode_answer(void *context, const uint8_t *bytes, size_t size,
    struct eb_dispatch_answer *answer, struct eb_error *error)
{
    (void)context;
    struct eb_lookup_answer *decoded = eb_lookup_call_decode(bytes, size, error);
    if (!decoded) {
        return false;
    }
    *answer = (struct eb_dispatch_answer){.id = decoded->response->request_id,
        .status = eb_status_of_number(decoded->response->error_code),
        .retry_after_ms = decoded->response->retry_after_ms,
        .message = decoded};
    return true;
}

static struct eb_dispatch_call *find_call(void *context, uint64_t id)
{
    struct fixture *f = context;
    return id >= 1 && id <= f->count ? &f->calls[id - 1].dispatched : NULL;
}

static struct test_call *call_of(struct eb_dispatch_call *dispatched)
{
    return EB_CONTAINER_OF(dispatched, struct test_call, dispatched);
}

static bool accept_answer(
    struct eb_dispatch_call *dispatched, void *message, struct eb_error *error)
{
    struct fixture *f = call_of(dispatched)->fixture;
    struct eb_lookup_answer *answer = message;
    enum eb_status status = (enum eb_status)answer->response->error_code;
    if (status == EB_STATUS_OK && f->wrong_count > 0) {
        f->wrong_count--;
        status = f->wrong_status;
    }
    if (status != EB_STATUS_OK) {
        eb_error_set(error, status, "refused");
    }
    eb_lookup_call_free(answer);
    return status == EB_STATUS_OK;
}

static void drop_answer(void *context, void *message)
{
    (void)context;
    eb_lookup_call_free(message);
}

static void discard_answer(struct eb_dispatch_call *dispatched)
{
    (void)dispatched; /* The message was freed when it was accepted. */
}

static void abandon_all(struct fixture *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct eb_dispatch_call *dispatched = &f->calls[i].dispatched;
        if (dispatched->state != EB_DISPATCH_OVER) {
            eb_dispatcher_abandon(dispatched, EB_STATUS_CANCELLED, "not needed any more");
        }
    }
}

static void on_over(struct eb_dispatch_call *dispatched)
{
    struct test_call *call = call_of(dispatched);
    assert_false(call->is_over);
    call->is_over = true;
    call->fixture->over++;
    if (call->abandons_others) {
        abandon_all(call->fixture);
    }
}

static void on_opened(void *context, const struct eb_error *why)
{
    struct fixture *f = context;
    assert_null(why);
    f->is_opened = true;
}

static void on_servers(void *context, uint32_t connected, uint32_t known)
{
    struct fixture *f = context;
    assert_int_equal(known, SERVERS);
    f->connected = connected;
}

static void on_ended(void *context)
{
    struct fixture *f = context;
    f->has_ended = true;
    uv_close((uv_handle_t *)&f->before_sleep, NULL);
}

static void on_peer_open(void *context, struct eb_peer *peer)
{
    struct fixture *f = context;
    char address[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(&peer->address, address);
    for (int i = 0; i < SERVERS; i++) {
        if (strcmp(address, f->servers[i].address) == 0) {
            peer->user = &f->servers[i];
        }
    }
    assert_non_null(peer->user);
}

static void on_peer_gone(void *context, struct eb_peer *peer)
{
    struct fixture *f = context;
    f->gone += peer->user ? 1 : 0;
}

static void on_peer_told(void *context, struct eb_peer *peer, const struct eb_wire_server *server,
    const struct eb_error *why)
{
    struct fixture *f = context;
    (void)peer;
    (void)why;
    f->told += server ? 1 : 0;
}

static const struct eb_dispatch_handler handler = {
    .decode = decode_answer,
    .find = find_call,
    .accept = accept_answer,
    .drop = drop_answer,
    .discard = discard_answer,
    .on_over = on_over,
    .on_opened = on_opened,
    .on_servers = on_servers,
    .on_ended = on_ended,
    .on_peer_open = on_peer_open,
    .on_peer_gone = on_peer_gone,
    .on_peer_told = on_peer_told,
};

/* Says which servers have a part: server i if bit i is set. */
static void set_holders(struct fixture *f, uint32_t number, unsigned holders)
{
    struct part *part = &f->parts[number];
    part->instance_count = 0;
    for (unsigned i = 0; i < SERVERS; i++) {
        if (holders >> i & 1) {
            part->instances[part->instance_count++] = FIRST_INSTANCE + i;
        }
    }
}

static struct eb_peer_filter find_holders(const struct part *part)
{
    return (struct eb_peer_filter){part->instances, part->instance_count, NULL};
}

/* ---- the loop ---- */

static void on_before_sleep(uv_prepare_t *prepare)
{
    struct fixture *f = prepare->data;
    while (eb_dispatch_host_run(&f->host)) {
    }
    if (f->awaited && *f->awaited >= f->wanted) {
        uv_stop(&f->loop);
    }
}

/* Runs the loop until the number is at least `wanted`. */
static void run_until(struct fixture *f, const uint32_t *number, uint32_t wanted)
{
    uint64_t end_ns = uv_hrtime() + PATIENCE_NS;
    f->awaited = number;
    f->wanted = wanted;
    while (*number < wanted) {
        assert_true(uv_hrtime() < end_ns);
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    f->awaited = NULL;
}

static void run_until_over(struct fixture *f)
{
    run_until(f, &f->over, f->count);
}

/* ---- life ---- */

static void start_servers(struct fixture *f)
{
    struct eb_error error;
    char addresses[SERVERS * (sizeof f->servers[0].address + 1)] = "";
    for (int i = 0; i < SERVERS; i++) {
        assert_true(fake_server_start(&f->servers[i], FAKE_SERVER_SPEAKS_GRPC, NULL));
        atomic_store(&f->servers[i].instance, FIRST_INSTANCE + (unsigned)i);
        (void)strcat(addresses, i > 0 ? "," : "");
        (void)strcat(addresses, f->servers[i].address);
    }
    assert_true(eb_targets_parse(addresses, &f->targets, &error));
}

static void open_loop(struct fixture *f)
{
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_prepare_init(&f->loop, &f->before_sleep), 0);
    assert_int_equal(uv_prepare_start(&f->before_sleep, on_before_sleep), 0);
    f->before_sleep.data = f;
}

/* Opens a dispatcher whose groups allow one resend each, and waits until all servers are
 * connected. */
static struct fixture *open_fixture(uint32_t retries_max)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    start_servers(f);
    open_loop(f);
    for (uint32_t i = 0; i < PARTS; i++) {
        set_holders(f, i, EVERY_SERVER);
        eb_dispatch_group_init(&f->parts[i].group, 1, 0, EB_HEDGE_DELAY_MIN_NS);
    }
    f->host.calls_max = CALLS;
    f->wrong_status = EB_STATUS_NOT_FOUND; /* as an answer from another version is */
    f->host.dispatcher = (struct eb_dispatcher){.options = {.targets = &f->targets,
                                                    .credentials = &f->credentials,
                                                    .connect_timeout_ns = PATIENCE_NS,
                                                    .unacknowledged_ms_max = UNACKNOWLEDGED_MS_MAX,
                                                    .resolve_interval_ns = PATIENCE_NS,
                                                    .connections = 1,
                                                    .retries_max = retries_max,
                                                    .answer_bytes_max = 1U << 20,
                                                    .is_unary = is_unary},
        .handler = &handler,
        .context = f};
    assert_int_equal(eb_dispatch_host_open(&f->host, &f->loop), 0);
    run_until(f, &f->connected, SERVERS);
    run_until(f, &f->told, SERVERS);
    assert_true(f->is_opened);
    return f;
}

static void close_fixture(struct fixture *f)
{
    abandon_all(f);
    assert_int_equal(f->over, f->count);
    eb_dispatch_host_close(&f->host);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_true(f->has_ended);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    eb_dispatch_host_deinit(&f->host);
    assert_int_equal(f->gone, SERVERS);
    for (int i = 0; i < PARTS; i++) {
        eb_dispatch_group_deinit(&f->parts[i].group);
    }
    for (int i = 0; i < SERVERS; i++) {
        assert_true(fake_server_stop(&f->servers[i]));
    }
    eb_targets_free(&f->targets);
    free(f);
}

static struct test_call *take_call(struct fixture *f, uint32_t part, const char *model)
{
    int64_t index = 5;
    struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
    struct embag_request request = {.model = model, .queries = &query, .query_count = 1};
    assert_true(f->count < CALLS);
    struct test_call *call = &f->calls[f->count++];
    struct eb_lookup_label label = {.request_id = f->count, .timeout_us = PATIENCE_NS / 1000};
    call->fixture = f;
    call->dispatched.group = &f->parts[part].group;
    call->dispatched.id = f->count;
    call->dispatched.request =
        eb_lookup_call_encode(&request, &label, &eb_memory_heap, &call->error);
    assert_non_null(call->dispatched.request);
    call->dispatched.deadline_ns = uv_hrtime() + PATIENCE_NS;
    call->dispatched.names_version = true;
    call->dispatched.filter = find_holders(&f->parts[part]);
    call->dispatched.source = f->source;
    call->dispatched.error = &call->error;
    eb_dispatcher_take(&f->host.dispatcher, &call->dispatched);
    return call;
}

static unsigned count_at(struct fixture *f, int server)
{
    return atomic_load(&f->servers[server].call_count);
}

static const struct eb_dispatch_counters *counters_of(const struct fixture *f, uint32_t part)
{
    return &f->parts[part].group.counters;
}

/* ---- tests ---- */

static void sends_calls_only_to_servers_that_may_take_them(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(0);
    set_holders(f, 0, 1U << 0);
    set_holders(f, 1, 1U << 1 | 1U << 2);
    for (int i = 0; i < CALLS / 2; i++) {
        (void)take_call(f, 0, "echo");
        (void)take_call(f, 1, "echo");
    }
    run_until_over(f);
    for (uint32_t i = 0; i < f->count; i++) {
        assert_int_equal(f->calls[i].error.status, EB_STATUS_OK);
        assert_int_equal(f->calls[i].dispatched.attempts, 1);
    }
    assert_int_equal(count_at(f, 0), CALLS / 2);
    assert_int_equal(count_at(f, 1) + count_at(f, 2), CALLS / 2);
    assert_true(count_at(f, 1) > 0 && count_at(f, 2) > 0);
    assert_int_equal(counters_of(f, 0)->lookups, CALLS / 2);
    assert_int_equal(counters_of(f, 1)->lookups, CALLS / 2);
    close_fixture(f);
}

static void fails_a_call_that_no_server_may_take(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(1);
    set_holders(f, 0, 0);
    const struct test_call *call = take_call(f, 0, "echo");
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_UNAVAILABLE);
    assert_string_equal(call->error.text, "no server that has what is asked for is connected");
    assert_int_equal(call->dispatched.attempts, 2);
    assert_int_equal(counters_of(f, 0)->lookups, 0);
    close_fixture(f);
}

static void does_not_let_such_a_call_hold_back_the_next_one(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(100);
    struct part nowhere = {.instance_count = 0};
    struct test_call *stuck = take_call(f, 0, "echo");
    stuck->dispatched.filter = find_holders(&nowhere);
    const struct test_call *next = take_call(f, 0, "echo");
    run_until(f, &f->over, 1);
    assert_false(stuck->is_over);
    assert_int_equal(next->error.status, EB_STATUS_OK);
    close_fixture(f);
}

static void sends_a_paused_call_once_a_server_may_take_it(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(100);
    set_holders(f, 0, 0);
    struct test_call *call = take_call(f, 0, "echo");
    run_until(f, &call->dispatched.attempts, 2);
    set_holders(f, 0, 1U << 1);
    call->dispatched.filter = find_holders(&f->parts[0]);
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_OK);
    assert_int_equal(count_at(f, 1), 1);
    close_fixture(f);
}

static void holds_back_only_calls_of_the_same_group(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(0);
    set_holders(f, 0, 1U << 0);
    set_holders(f, 1, 1U << 1);
    for (int i = 0; i < 2 * EB_WINDOW_FIRST; i++) {
        (void)take_call(f, 0, "silent");
    }
    const struct test_call *other = take_call(f, 1, "echo");
    run_until(f, &f->over, 1);
    assert_true(other->is_over);
    assert_int_equal(other->error.status, EB_STATUS_OK);
    assert_true(eb_dispatch_group_count_waiting(&f->parts[0].group) >= EB_WINDOW_FIRST);
    close_fixture(f);
}

static void holds_back_only_calls_for_the_same_servers(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(0);
    set_holders(f, 0, 1U << 0);
    set_holders(f, 1, 1U << 1);
    for (int i = 0; i < EB_WINDOW_FIRST + 10; i++) {
        (void)take_call(f, 0, "silent");
    }
    /* In the same group, as a call for another version of the part is. */
    struct test_call *other = take_call(f, 0, "echo");
    other->dispatched.filter = find_holders(&f->parts[1]);
    run_until(f, &f->over, 1);
    assert_true(other->is_over);
    assert_int_equal(other->error.status, EB_STATUS_OK);
    assert_true(eb_dispatch_group_count_waiting(&f->parts[0].group) >= 10);
    close_fixture(f);
}

static void sources_take_turns(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(0);
    struct test_call *last = NULL;
    set_holders(f, 0, 1U << 0);
    while (eb_dispatch_group_count_waiting(&f->parts[0].group) == 0) {
        last = take_call(f, 0, "silent");
        (void)eb_dispatch_host_run(&f->host);
    }
    eb_dispatcher_abandon(&last->dispatched, EB_STATUS_CANCELLED, "it only showed that all wait");
    struct test_call *calls[6];
    for (int i = 0; i < 6; i++) {
        f->source = i < 4 ? &calls[0] : &calls[1];
        calls[i] = take_call(f, 0, "silent");
    }
    assert_int_equal(eb_dispatch_group_count_waiting(&f->parts[0].group), 6);
    const int order[] = {0, 4, 1, 5, 2, 3};
    const struct eb_list *link = f->parts[0].group.waiting[EB_PRIORITY_INTERACTIVE].links.next;
    for (int i = 0; i < 6; i++, link = link->next) {
        assert_ptr_equal(link, &calls[order[i]]->dispatched.attempt.link);
    }
    close_fixture(f);
}

static struct eb_peer *find_peer(const struct fixture *f, int server)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (f->host.dispatcher.servers.peers[i]->user == &f->servers[server]) {
            return f->host.dispatcher.servers.peers[i];
        }
    }
    fail();
    return NULL;
}

static void sends_unary_calls_to_a_server_without_streams_alone(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0);
    const struct test_call *call = take_call(f, 0, "unary");
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_OK);
    assert_int_equal(find_peer(f, 0)->is_unary, !is_unary);
    assert_false(find_peer(f, 1)->is_unary);
    assert_int_equal(f->host.dispatcher.options.is_unary, is_unary);
    /* Another connection may lead to another release of the server. */
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    do {
        (void)take_call(f, 0, "echo");
        run_until_over(f);
    } while (atomic_load(&f->servers[0].conn_count) < 2);
    assert_false(find_peer(f, 0)->is_unary);
    close_fixture(f);
}

static void moves_a_call_from_a_broken_server(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0 | 1U << 1);
    f->wrong_status = EB_STATUS_INTERNAL;
    f->wrong_count = 1;
    struct test_call *call = take_call(f, 0, "echo");
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_INTERNAL);
    f->wrong_count = 1;
    call = take_call(f, 0, "echo");
    call->dispatched.has_replicas = true;
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_OK);
    assert_int_equal(call->dispatched.attempts, 2);
    close_fixture(f);
}

/* Calls of many clients go to it, each of which would be sent several times. */
static void asks_the_last_server_of_a_part_again_within_the_budget(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(100);
    set_holders(f, 0, 1U << 0);
    f->wrong_status = EB_STATUS_UNAVAILABLE;
    f->wrong_count = 3;
    struct test_call *call = take_call(f, 0, "echo");
    call->dispatched.has_replicas = true;
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_UNAVAILABLE);
    assert_int_equal(call->dispatched.attempts, 2);
    close_fixture(f);
}

static void sends_a_second_attempt_only_to_a_server_that_may_take_it(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0 | 1U << 1);
    eb_dispatch_group_init(&f->parts[0].group, 1, 100, EB_HEDGE_DELAY_MIN_NS);
    const struct eb_dispatch_counters *counters = counters_of(f, 0);
    for (int i = 0; i < EB_HEDGE_SAMPLES_MIN; i++) {
        (void)take_call(f, 0, "echo");
        run_until_over(f);
    }
    atomic_store(&f->servers[0].is_stalled, true);
    atomic_store(&f->servers[1].is_stalled, true);
    const struct test_call *call = take_call(f, 0, "echo");
    run_until(f, &call->dispatched.attempts, 2);
    /* On a busy machine it may be because the server is silent. */
    assert_true(counters_of(f, 0)->hedges + eb_dispatch_counters_resent(counters_of(f, 0)) > 0);
    assert_int_equal(counters_of(f, 1)->hedges + eb_dispatch_counters_resent(counters_of(f, 1)), 0);
    assert_int_equal(count_at(f, 2), 0);
    /* Whether a hedge was of use is counted when its call is over. */
    assert_int_equal(counters->hedges_won + counters->hedges_lost, 0);
    atomic_store(&f->servers[0].is_stalled, false);
    atomic_store(&f->servers[1].is_stalled, false);
    run_until_over(f);
    assert_int_equal(counters->hedges_won + counters->hedges_lost, counters->hedges);
    close_fixture(f);
}

/* Part 0 is at servers 0 and 1. The second one has not answered for some time. */
static void sends_no_hedge_to_a_suspect_server(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0 | 1U << 1);
    eb_dispatch_group_init(&f->parts[0].group, 1, 100, EB_HEDGE_DELAY_MIN_NS);
    for (int i = 0; i < EB_HEDGE_SAMPLES_MIN; i++) {
        (void)take_call(f, 0, "echo");
        run_until_over(f);
    }
    const struct eb_peer_set *servers = &f->host.dispatcher.servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct eb_peer *peer = servers->peers[i];
        peer->replica.suspicion.is_suspect = peer->user == &f->servers[1];
    }
    struct eb_hedge *hedging = &f->parts[0].group.hedging;
    hedging->classes[0].summary_ns = 0; /* The latencies count at once. */
    unsigned before = count_at(f, 1);
    uint64_t end_ns = uv_hrtime() + PATIENCE_NS;
    const struct test_call *call = take_call(f, 0, "silent");
    run_until(f, &call->dispatched.attempts, 1);
    while (call->dispatched.hedge_alarm.slot != 0) {
        assert_true(uv_hrtime() < end_ns);
        (void)uv_run(&f->loop, UV_RUN_NOWAIT); /* Nothing wakes the loop after the alarm. */
    }
    assert_true(hedging->classes[0].summary.samples >= EB_HEDGE_SAMPLES_MIN);
    assert_int_equal(counters_of(f, 0)->hedges, 0);
    assert_int_equal(count_at(f, 1), before);
    close_fixture(f);
}

static void leaves_hedges_to_routers(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    eb_dispatch_group_init(&f->parts[0].group, 1, 100, EB_HEDGE_DELAY_MIN_NS);
    for (uint32_t i = 0; i < SERVERS; i++) {
        f->host.dispatcher.servers.peers[i]->is_router = true;
    }
    for (int i = 0; i < EB_HEDGE_SAMPLES_MIN; i++) {
        (void)take_call(f, 0, "echo");
        run_until_over(f);
    }
    for (int i = 0; i < SERVERS; i++) {
        atomic_store(&f->servers[i].is_stalled, true);
    }
    const struct test_call *call = take_call(f, 0, "echo");
    run_until(f, &call->dispatched.attempts, 2);
    assert_int_equal(counters_of(f, 0)->hedges, 0);
    assert_int_equal(counters_of(f, 0)->resent[EB_RESEND_SILENT], 1);
    close_fixture(f);
}

static void notices_soon_that_a_host_is_gone(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct eb_peer *peer = f->host.dispatcher.servers.peers[i];
        uv_os_fd_t fd;
        unsigned int set_ms = 0;
        socklen_t bytes = sizeof set_ms;
        assert_int_equal(uv_fileno(&peer->connections[0].transport.socket.handle, &fd), 0);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &set_ms, &bytes), 0);
        assert_int_equal(set_ms, UNACKNOWLEDGED_MS_MAX);
    }
    close_fixture(f);
}

static void moves_a_call_that_was_answered_from_another_version(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0 | 1U << 2);
    f->wrong_count = 1;
    const struct test_call *call = take_call(f, 0, "echo");
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_OK);
    assert_int_equal(call->dispatched.attempts, 2);
    assert_int_equal(count_at(f, 0), 1);
    assert_int_equal(count_at(f, 2), 1);
    assert_int_equal(
        atomic_load(&f->servers[0].repeat_count) + atomic_load(&f->servers[2].repeat_count), 1);
    assert_int_equal(counters_of(f, 0)->resent[EB_RESEND_MISSING], 1);
    assert_true(call->dispatched.answered_ns > 0);
    assert_true(counters_of(f, 0)->sent_bytes > 0);
    assert_int_equal(counters_of(f, 0)->sent_bytes % 2, 0); /* two attempts of the same size */
    /* There is no other server with the part. */
    f->wrong_count = 1;
    set_holders(f, 0, 1U << 0);
    call = take_call(f, 0, "echo");
    run_until_over(f);
    assert_int_equal(call->error.status, EB_STATUS_NOT_FOUND);
    assert_string_equal(call->error.text, "refused");
    assert_int_equal(call->dispatched.attempts, 1);
    close_fixture(f);
}

static void bounds_the_resends_of_each_group(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    const uint32_t parts[] = {0, 0, 1};
    const enum eb_status expected[] = {EB_STATUS_OK, EB_STATUS_NOT_FOUND, EB_STATUS_OK};
    for (int i = 0; i < 3; i++) {
        f->wrong_count = 1;
        const struct test_call *call = take_call(f, parts[i], "echo");
        run_until_over(f);
        assert_int_equal(call->error.status, expected[i]);
    }
    assert_int_equal(counters_of(f, 0)->lookups, 2);
    assert_int_equal(eb_dispatch_counters_resent(counters_of(f, 0)), 1);
    assert_int_equal(eb_dispatch_counters_resent(counters_of(f, 1)), 1);
    close_fixture(f);
}

/* A part with one server has nothing to choose, so its calls are not bounded by the budget. */
static void does_not_bound_resends_to_the_only_server(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(2);
    set_holders(f, 0, 1U << 0);
    for (int i = 0; i < 3; i++) {
        const struct test_call *call = take_call(f, 0, "busy");
        run_until_over(f);
        assert_int_equal(call->error.status, EB_STATUS_OK);
        assert_int_equal(call->dispatched.attempts, 2);
    }
    assert_int_equal(counters_of(f, 0)->resent[EB_RESEND_REFUSED], 3);
    assert_int_equal(eb_dispatch_counters_resent(counters_of(f, 0)), 3);
    close_fixture(f);
}

static void lets_one_failure_abandon_the_other_calls(void **state)
{
    (void)state;
    struct fixture *f = open_fixture(0);
    set_holders(f, 0, 1U << 0);
    set_holders(f, 1, 1U << 0 | 1U << 1);
    for (int i = 0; i < 8; i++) {
        take_call(f, (uint32_t)i % PARTS, "silent")->abandons_others = true;
    }
    take_call(f, 0, "hang-up")->abandons_others = true;
    /* Some of these wait. */
    for (int i = 0; i < EB_WINDOW_FIRST; i++) {
        take_call(f, 0, "silent")->abandons_others = true;
    }
    run_until_over(f);
    uint32_t failed = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        failed += f->calls[i].error.status == EB_STATUS_UNAVAILABLE;
    }
    assert_int_equal(failed, 1);
    close_fixture(f);
}

static int use_stream(void **state)
{
    (void)state;
    is_unary = false;
    return 0;
}

static int use_unary(void **state)
{
    (void)state;
    is_unary = true;
    return 0;
}

EB_TEST_GROUP(dispatcher)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_calls_only_to_servers_that_may_take_them),
        cmocka_unit_test(fails_a_call_that_no_server_may_take),
        cmocka_unit_test(does_not_let_such_a_call_hold_back_the_next_one),
        cmocka_unit_test(sends_a_paused_call_once_a_server_may_take_it),
        cmocka_unit_test(holds_back_only_calls_of_the_same_group),
        cmocka_unit_test(holds_back_only_calls_for_the_same_servers),
        cmocka_unit_test(sources_take_turns),
        cmocka_unit_test(sends_unary_calls_to_a_server_without_streams_alone),
        cmocka_unit_test(moves_a_call_from_a_broken_server),
        cmocka_unit_test(asks_the_last_server_of_a_part_again_within_the_budget),
        cmocka_unit_test(sends_a_second_attempt_only_to_a_server_that_may_take_it),
        cmocka_unit_test(sends_no_hedge_to_a_suspect_server),
        cmocka_unit_test(leaves_hedges_to_routers),
        cmocka_unit_test(notices_soon_that_a_host_is_gone),
        cmocka_unit_test(moves_a_call_that_was_answered_from_another_version),
        cmocka_unit_test(bounds_the_resends_of_each_group),
        cmocka_unit_test(does_not_bound_resends_to_the_only_server),
        cmocka_unit_test(lets_one_failure_abandon_the_other_calls),
    };
    return cmocka_run_group_tests_name("on a stream", tests, use_stream, NULL) +
           cmocka_run_group_tests_name("unary", tests, use_unary, NULL);
}
