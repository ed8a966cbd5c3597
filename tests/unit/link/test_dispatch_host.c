#include "proto/link/dispatch_host.h"

#include "proto/link/request_message.h"
#include "proto/message.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATIENCE_NS UINT64_C(20000000000)
#define INSTANCE 77
#define PAUSE_NS UINT64_C(1000000000) /* before a failed question is asked again */

/* One server, and a host on a loop of the test's thread. */
struct host_fixture {
    struct fake_server server;
    uv_loop_t loop;
    uv_prepare_t before_sleep;
    uv_idle_t no_sleep; /* active while the host must be called again */
    struct eb_targets targets;
    struct eb_credentials credentials;
    struct eb_dispatch_host host;
    struct eb_dispatch_group group;
    struct eb_dispatch_call call;
    struct eb_error error;
    struct eb_alarm alarm;
    uint64_t instance; /* that the server has told */
    char role[32];
    bool is_told;
    bool is_refused; /* the server has not told what it is */
    bool is_answered;
    bool is_over;
    bool has_rung;
    bool has_ended;
    const bool *awaited; /* the loop stops when it is true */
};

/* ---- the owner of the dispatcher ---- */

static bool on_host_message(
    struct eb_dispatch_call *call, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct host_fixture *f = EB_CONTAINER_OF(call, struct host_fixture, call);
    (void)bytes;
    (void)size;
    (void)error;
    f->is_answered = true;
    return true;
}

static void discard_host_answer(struct eb_dispatch_call *call)
{
    (void)call;
}

static void on_host_over(struct eb_dispatch_call *call)
{
    EB_CONTAINER_OF(call, struct host_fixture, call)->is_over = true;
}

static void on_host_opened(void *context, const struct eb_error *why)
{
    (void)context;
    (void)why;
}

static void on_host_servers(void *context, uint32_t connected, uint32_t known)
{
    (void)context;
    (void)connected;
    assert_int_equal(known, 1);
}

static void on_host_ended(void *context)
{
    struct host_fixture *f = context;
    f->has_ended = true;
    uv_close((uv_handle_t *)&f->before_sleep, NULL);
    uv_close((uv_handle_t *)&f->no_sleep, NULL);
}

static void on_host_told(void *context, struct eb_peer *peer, const struct eb_wire_server *server,
    const struct eb_error *why)
{
    struct host_fixture *f = context;
    if (!server) {
        assert_true(why->status != EB_STATUS_OK && why->text[0] != '\0');
        f->is_refused = true;
        return;
    }
    assert_null(why);
    assert_int_equal(peer->instance, server->instance);
    f->instance = server->instance;
    f->is_told = true;
    assert_true(strlen(server->role) < sizeof f->role);
    (void)strcpy(f->role, server->role);
}

static const struct eb_dispatch_handler host_handler = {
    .on_message = on_host_message,
    .discard = discard_host_answer,
    .on_over = on_host_over,
    .on_opened = on_host_opened,
    .on_servers = on_host_servers,
    .on_ended = on_host_ended,
    .on_peer_told = on_host_told,
};

/* ---- the loop ---- */

static void on_no_sleep(uv_idle_t *idle)
{
    (void)idle;
}

static void on_host_before_sleep(uv_prepare_t *prepare)
{
    struct host_fixture *f = EB_CONTAINER_OF(prepare, struct host_fixture, before_sleep);
    int rc = eb_dispatch_host_run(&f->host) ? uv_idle_start(&f->no_sleep, on_no_sleep)
                                            : uv_idle_stop(&f->no_sleep);
    assert_int_equal(rc, 0);
    if (f->awaited && *f->awaited) {
        uv_stop(&f->loop);
    }
}

static void run_until_true(struct host_fixture *f, const bool *awaited)
{
    uint64_t end_ns = uv_hrtime() + PATIENCE_NS;
    f->awaited = awaited;
    while (!*awaited) {
        assert_true(uv_hrtime() < end_ns);
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    f->awaited = NULL;
}

static void run_until_told(struct host_fixture *f)
{
    f->is_told = false;
    run_until_true(f, &f->is_told);
}

static void describe_host(struct host_fixture *f, bool asks_instances)
{
    f->host = (struct eb_dispatch_host){.calls_max = 1,
        .alarms_max = 1,
        .dispatcher = {.options = {.targets = &f->targets,
                           .credentials = &f->credentials,
                           .connect_timeout_ns = PATIENCE_NS,
                           .resolve_interval_ns = PATIENCE_NS,
                           .connections = 1,
                           .asks_instances = asks_instances,
                           .answer_bytes_max = 1U << 20,
                           .is_unary = true},
            .handler = &host_handler,
            .context = f}};
}

/* ---- life ---- */

static struct host_fixture *start_server(void)
{
    struct host_fixture *f = calloc(1, sizeof *f);
    struct eb_error error;
    assert_non_null(f);
    assert_true(fake_server_start(&f->server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    f->server.instance = INSTANCE;
    assert_true(eb_targets_parse(f->server.address, &f->targets, &error));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    eb_dispatch_group_init(&f->group, 1, 0, EB_HEDGE_DELAY_MIN_NS);
    return f;
}

static void stop_server(struct host_fixture *f)
{
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    eb_dispatch_host_deinit(&f->host);
    eb_dispatch_group_deinit(&f->group);
    eb_targets_free(&f->targets);
    assert_true(fake_server_stop(&f->server));
    free(f);
}

static int open_host_with(void **state, bool asks_instances)
{
    struct host_fixture *f = start_server();
    *state = f;
    assert_int_equal(uv_prepare_init(&f->loop, &f->before_sleep), 0);
    assert_int_equal(uv_prepare_start(&f->before_sleep, on_host_before_sleep), 0);
    assert_int_equal(uv_idle_init(&f->loop, &f->no_sleep), 0);
    describe_host(f, asks_instances);
    assert_int_equal(eb_dispatch_host_open(&f->host, &f->loop), 0);
    return 0;
}

static int open_host(void **state)
{
    return open_host_with(state, false);
}

static int open_asking_host(void **state)
{
    return open_host_with(state, true);
}

static int close_host(void **state)
{
    struct host_fixture *f = *state;
    eb_dispatch_host_close(&f->host);
    stop_server(f);
    return 0;
}

static void take_host_call(struct host_fixture *f)
{
    f->call = (struct eb_dispatch_call){.group = &f->group,
        .path = "/embag.v1.EmbeddingBag/GetServer",
        .request = eb_request_message_create(&eb_memory_heap, 0, 0),
        .deadline_ns = UINT64_MAX,
        .changes_server = true,
        .error = &f->error};
    assert_non_null(f->call.request);
    eb_dispatcher_take(&f->host.dispatcher, &f->call);
}

/* ---- tests ---- */

static void asks_a_single_server_for_its_instance_at_once(void **state)
{
    struct host_fixture *f = *state;
    run_until_told(f);
    assert_int_equal(f->instance, INSTANCE);
    assert_string_equal(f->role, "server");
    assert_int_equal(atomic_load(&f->server.conn_count), 1);
    /* No call was made for that. */
    assert_int_equal(f->group.counters.lookups, 0);
}

static void asks_again_when_the_connection_was_lost(void **state)
{
    struct host_fixture *f = *state;
    run_until_told(f);
    eb_peer_close(f->host.dispatcher.servers.peers[0]);
    run_until_told(f);
    assert_int_equal(f->instance, INSTANCE);
    assert_int_equal(atomic_load(&f->server.conn_count), 2);
    assert_false(f->is_refused);
}

static void tells_that_a_server_has_not_answered(void **state)
{
    struct host_fixture *f = *state;
    const struct eb_peer *peer = f->host.dispatcher.servers.peers[0];
    while (!peer->question.connection) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    eb_peer_close(f->host.dispatcher.servers.peers[0]);
    assert_true(fake_server_stop(&f->server));
    run_until_true(f, &f->is_refused);
    assert_int_equal(f->instance, 0);
    assert_true(fake_server_start(&f->server, FAKE_SERVER_SPEAKS_GRPC, NULL));
}

/* The question does not end with the connection if there is a new one by then. */
static void asks_on_a_new_connection_while_the_old_one_ends(void **state)
{
    struct host_fixture *f = *state;
    const struct eb_peer *peer = f->host.dispatcher.servers.peers[0];
    while (!peer->question.connection) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    eb_peer_close(f->host.dispatcher.servers.peers[0]);
    run_until_told(f);
    assert_int_equal(f->instance, INSTANCE);
}

static void does_not_ask_a_single_server_otherwise(void **state)
{
    struct host_fixture *f = *state;
    take_host_call(f);
    run_until_true(f, &f->is_over);
    assert_int_equal(f->error.status, EB_STATUS_OK);
    assert_true(f->is_answered);
    assert_int_equal(f->instance, 0);
}

/* A call that never ends must not be sent with the time that is left until then. */
static void sends_a_call_without_a_deadline(void **state)
{
    struct host_fixture *f = *state;
    take_host_call(f);
    run_until_true(f, &f->is_over);
    assert_int_equal(f->error.status, EB_STATUS_OK);
    assert_int_equal(atomic_load(&f->server.timeout_count), 0);
}

/* Sends a call that only one process may take, before any connection is open. */
static void ask_process(struct host_fixture *f, uint64_t instance)
{
    take_host_call(f);
    f->call.filter = (struct eb_peer_filter){.instances = &instance, .instance_count = 1};
    run_until_true(f, &f->is_over);
}

static void waits_for_servers_that_may_be_the_wanted_process(void **state)
{
    struct host_fixture *f = *state;
    ask_process(f, INSTANCE);
    assert_int_equal(f->error.status, EB_STATUS_OK);
    assert_true(f->is_answered);
    assert_int_equal(f->instance, INSTANCE);
}

static void fails_once_no_server_can_be_the_wanted_process(void **state)
{
    struct host_fixture *f = *state;
    ask_process(f, INSTANCE + 1);
    assert_int_equal(f->error.status, EB_STATUS_UNAVAILABLE);
    assert_string_equal(f->error.text, "no server that has what is asked for is connected");
    assert_int_equal(f->instance, INSTANCE);
}

static void fails_if_no_server_can_be_connected(void **state)
{
    struct host_fixture *f = *state;
    assert_true(fake_server_stop(&f->server));
    ask_process(f, INSTANCE);
    assert_int_equal(f->error.status, EB_STATUS_UNAVAILABLE);
    assert_int_equal(f->instance, 0);
    assert_true(fake_server_start(&f->server, FAKE_SERVER_SPEAKS_GRPC, NULL));
}

static void ring_alarm(struct eb_alarm *alarm)
{
    EB_CONTAINER_OF(alarm, struct host_fixture, alarm)->has_rung = true;
}

static void rings_an_alarm_of_its_owner(void **state)
{
    struct host_fixture *f = *state;
    uint64_t at_ns = uv_hrtime() + 5000000;
    f->alarm.ring = ring_alarm;
    eb_alarms_set(&f->host.alarms, &f->alarm, at_ns);
    run_until_true(f, &f->has_rung);
    assert_true(uv_hrtime() >= at_ns);
}

/* A server that has no memory for an answer, say, gets no lookups before it has told. */
static void asks_again_on_a_connection_that_stays_open(void **state)
{
    struct host_fixture *f = *state;
    atomic_store(&f->server.told_status, EB_STATUS_RESOURCE_EXHAUSTED);
    run_until_true(f, &f->is_refused);
    assert_int_equal(atomic_load(&f->server.told_count), 1);
    atomic_store(&f->server.told_status, EB_STATUS_OK);
    uint64_t refused_ns = uv_hrtime();
    run_until_told(f);
    assert_in_range(uv_hrtime() - refused_ns, PAUSE_NS / 2, PAUSE_NS * 5);
    assert_int_equal(f->instance, INSTANCE);
    assert_int_equal(atomic_load(&f->server.told_count), 2);
    assert_int_equal(atomic_load(&f->server.conn_count), 1);
    ask_process(f, INSTANCE);
    assert_int_equal(f->error.status, EB_STATUS_OK);
}

static void asks_again_at_once_with_new_credentials(void **state)
{
    struct host_fixture *f = *state;
    atomic_store(&f->server.told_status, EB_STATUS_UNAUTHENTICATED);
    for (unsigned i = 1; i <= 2; i++) {
        f->is_refused = false;
        run_until_true(f, &f->is_refused);
        assert_int_equal(atomic_load(&f->server.told_count), i);
    }
    atomic_store(&f->server.told_status, EB_STATUS_OK);
    uint64_t renewed_ns = uv_hrtime();
    eb_dispatcher_renew(&f->host.dispatcher, false);
    run_until_told(f);
    assert_true(uv_hrtime() - renewed_ns < PAUSE_NS);
}

/* Such a server is no embagd, or an old one. */
static void does_not_ask_again_if_the_method_is_unknown(void **state)
{
    struct host_fixture *f = *state;
    atomic_store(&f->server.told_status, EB_STATUS_UNIMPLEMENTED);
    run_until_true(f, &f->is_refused);
    eb_alarms_set(&f->host.alarms, &f->alarm, uv_hrtime() + PAUSE_NS * 5 / 4);
    f->alarm.ring = ring_alarm;
    run_until_true(f, &f->has_rung);
    assert_int_equal(atomic_load(&f->server.told_count), 1);
}

static void leaves_nothing_if_it_cannot_be_opened(void **state)
{
    (void)state;
    unsigned failures = 0;
    int rc = UV_ENOMEM;
    for (unsigned number = 1; rc != 0; number++) {
        struct host_fixture *f = start_server();
        describe_host(f, true);
        eb_faults_fail_allocation(number);
        rc = eb_dispatch_host_open(&f->host, &f->loop);
        eb_faults_fail_allocation(0);
        if (rc == 0) {
            assert_int_equal(uv_prepare_init(&f->loop, &f->before_sleep), 0);
            assert_int_equal(uv_idle_init(&f->loop, &f->no_sleep), 0);
            eb_dispatch_host_close(&f->host);
            assert_true(f->has_ended);
        } else {
            assert_int_equal(rc, UV_ENOMEM);
            failures++;
        }
        stop_server(f);
    }
    assert_true(failures >= 4);
}

EB_TEST_GROUP(dispatch_host)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            asks_a_single_server_for_its_instance_at_once, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            asks_again_when_the_connection_was_lost, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            tells_that_a_server_has_not_answered, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            asks_on_a_new_connection_while_the_old_one_ends, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            asks_again_on_a_connection_that_stays_open, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            asks_again_at_once_with_new_credentials, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            does_not_ask_again_if_the_method_is_unknown, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            waits_for_servers_that_may_be_the_wanted_process, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            fails_once_no_server_can_be_the_wanted_process, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            fails_if_no_server_can_be_connected, open_asking_host, close_host),
        cmocka_unit_test_setup_teardown(
            does_not_ask_a_single_server_otherwise, open_host, close_host),
        cmocka_unit_test_setup_teardown(sends_a_call_without_a_deadline, open_host, close_host),
        cmocka_unit_test_setup_teardown(rings_an_alarm_of_its_owner, open_host, close_host),
        cmocka_unit_test_teardown(leaves_nothing_if_it_cannot_be_opened, eb_faults_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
