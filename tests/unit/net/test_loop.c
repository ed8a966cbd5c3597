#include "proto/list.h"
#include "tests/lib/test_group.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000 /* time allowed for an event that must happen */
#define SHORT_MS 100     /* a time limit that a test lets pass */
#define LISTENERS_OF_A_LOOP 128

static const bool never;
static char socket_path[] = "/tmp/embag-test-loop-XXXXXX/socket";

/* ---- connections ---- */

static void gives_everything_back_after_many_connections(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    loop_host_serve(host, &address);
    for (size_t i = 0; i < 200; i++) {
        struct wire_peer peer;
        wire_peer_open(&peer, &address);
        assert_true(wire_peer_echo(&peer, i * 97));
        wire_peer_close(&peer);
    }
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    assert_int_equal(atomic_load(&host->opened_count), 200);
    assert_int_equal(loop_host_taken_bytes(host), 0);
}

static void keeps_many_connections_open_at_once(void **state)
{
    struct loop_host *host = *state;
    enum { COUNT = 60 };
    struct eb_address address;
    struct wire_peer peers[COUNT];
    loop_host_serve(host, &address);
    for (size_t i = 0; i < COUNT; i++) {
        wire_peer_open(&peers[i], &address);
        assert_true(wire_peer_echo(&peers[i], 10));
    }
    assert_int_equal(loop_host_conn_count(host), COUNT);
    for (size_t i = 0; i < COUNT; i += 2) {
        wire_peer_close(&peers[i]);
    }
    assert_true(loop_host_wait_conns(host, COUNT / 2, TIMEOUT_MS));
    for (size_t i = 1; i < COUNT; i += 2) {
        assert_true(wire_peer_echo(&peers[i], 100000));
        wire_peer_close(&peers[i]);
    }
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
}

static void closes_connections_beyond_connections_max(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    int clients[3];
    host->options.limits.connections_max = 3;
    loop_host_serve(host, &address);
    for (unsigned i = 0; i < 3; i++) {
        clients[i] = wire_connect(&address, 0);
        assert_true(loop_host_wait_conns(host, i + 1, TIMEOUT_MS));
    }
    int beyond = wire_connect(&address, 0);
    assert_true(wire_read_to_end(beyond, TIMEOUT_MS, NULL, 0));
    close(beyond);
    assert_int_equal(loop_host_conn_count(host), 3);
    close(clients[0]);
    assert_true(loop_host_wait_conns(host, 2, TIMEOUT_MS));
    struct wire_peer peer;
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 1));
    wire_peer_close(&peer);
    close(clients[1]);
    close(clients[2]);
}

/* Runs on the loop's thread. */
static void set_limits(struct eb_loop *loop, void *limits)
{
    eb_loop_set_limits(loop, limits);
}

static void change_limits(struct loop_host *host, struct eb_loop_limits limits)
{
    for (size_t i = 0; i < LOOP_HOST_LOOPS; i++) {
        loop_host_act(host->loops[i], set_limits, &limits);
    }
}

static void accepts_as_many_connections_as_the_new_limits_allow(void **state)
{
    struct loop_host *host = *state;
    struct eb_loop_limits limits;
    struct eb_address address;
    int clients[3];
    host->options.limits.connections_max = 1;
    loop_host_serve(host, &address);
    clients[0] = wire_connect(&address, 0);
    assert_true(loop_host_wait_conns(host, 1, TIMEOUT_MS));
    int beyond = wire_connect(&address, 0);
    assert_true(wire_read_to_end(beyond, TIMEOUT_MS, NULL, 0));
    close(beyond);
    limits = host->options.limits;
    limits.connections_max = 3;
    change_limits(host, limits);
    for (unsigned i = 1; i < 3; i++) {
        clients[i] = wire_connect(&address, 0);
        assert_true(loop_host_wait_conns(host, i + 1, TIMEOUT_MS));
    }
    limits.connections_max = 2;
    change_limits(host, limits);
    assert_int_equal(loop_host_conn_count(host), 3);
    beyond = wire_connect(&address, 0);
    assert_true(wire_read_to_end(beyond, TIMEOUT_MS, NULL, 0));
    close(beyond);
    for (unsigned i = 0; i < 3; i++) {
        close(clients[i]);
    }
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
}

/* The tick in use is so long that only a new one can find the call that stalls. */
static void a_call_keeps_the_limits_that_it_began_with(void **state)
{
    struct loop_host *host = *state;
    struct eb_loop_limits limits;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call former;
    struct wire_call call;
    host->options.limits.tick_ms = 1000000;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    wire_peer_call(&peer, &former, "/t/Echo");
    wire_peer_write(&former, 1000, 1, false);
    assert_true(wire_peer_echo(&peer, 1)); /* the former call has arrived, too */
    limits = host->options.limits;
    limits.tick_ms = 10;
    limits.conn.session.message_stall_ms_max = SHORT_MS;
    change_limits(host, limits);
    wire_peer_call(&peer, &call, "/t/Echo");
    wire_peer_write(&call, 1000, 1, false);
    assert_true(wire_peer_run(&peer, &call.is_finished, TIMEOUT_MS));
    assert_int_equal(call.error.status, EB_STATUS_DEADLINE_EXCEEDED);
    assert_false(wire_peer_run(&peer, &former.is_finished, 2 * SHORT_MS));
    wire_peer_close(&peer);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
}

struct held_loop {
    struct eb_mail mail;
    uv_sem_t may_go;
};

static void on_hold(struct eb_mail *mail)
{
    uv_sem_wait(&EB_CONTAINER_OF(mail, struct held_loop, mail)->may_go);
}

static void read_refusals(struct eb_loop *loop, void *context)
{
    *(uint64_t *)context = eb_loop_counters(loop)->refusals[EB_REFUSAL_CONNECTIONS];
}

static void counts_connections_that_are_on_their_way_to_a_loop(void **state)
{
    struct loop_host *host = *state;
    enum { COUNT = 8, PLACES = 3 };
    struct eb_address address;
    static struct held_loop held = {.mail = {.deliver = on_hold}};
    int clients[COUNT];
    uint64_t refusals;
    char text[EB_ADDRESS_TEXT_BYTES];
    host->options.limits.connections_max = PLACES;
    loop_host_create(host);
    snprintf(text, sizeof text, "unix:%s", socket_path);
    loop_host_listen(host, 0, text, &address);
    loop_host_start(host);
    assert_int_equal(uv_sem_init(&held.may_go, 0), 0);
    eb_mailbox_post(eb_loop_mailbox(host->loops[1]), &held.mail);
    for (size_t i = 0; i < COUNT; i++) {
        clients[i] = wire_connect(&address, 0);
    }
    /* One of the three admitted connections waits for the held loop. The connections after these
     * three are closed without waiting. */
    bool are_closed = true;
    for (size_t i = PLACES; i < COUNT; i++) {
        are_closed &= wire_read_to_end(clients[i], TIMEOUT_MS, NULL, 0);
    }
    uv_sem_post(&held.may_go);
    assert_true(are_closed);
    assert_int_equal(loop_host_conn_count(host), PLACES);
    loop_host_act(host->loops[0], read_refusals, &refusals);
    assert_int_equal(refusals, COUNT - PLACES);
    for (size_t i = 0; i < COUNT; i++) {
        close(clients[i]);
    }
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    for (size_t i = 0; i < 2 * PLACES; i++) {
        struct wire_peer peer;
        wire_peer_open(&peer, &address);
        assert_true(wire_peer_echo(&peer, 1));
        wire_peer_close(&peer);
        assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    }
    loop_host_stop(host);
    uv_sem_destroy(&held.may_go);
}

static void hands_unix_connections_round_the_loops(void **state)
{
    struct loop_host *host = *state;
    enum { COUNT = 6 };
    struct eb_address address;
    struct wire_peer peers[COUNT];
    char text[EB_ADDRESS_TEXT_BYTES];
    loop_host_create(host);
    snprintf(text, sizeof text, "unix:%s", socket_path);
    loop_host_listen(host, 0, text, &address);
    loop_host_start(host);
    for (size_t i = 0; i < COUNT; i++) {
        wire_peer_open(&peers[i], &address);
        assert_true(wire_peer_echo(&peers[i], 100000));
    }
    assert_int_equal(eb_loop_conn_count(host->loops[0]), COUNT / 2);
    assert_int_equal(eb_loop_conn_count(host->loops[1]), COUNT / 2);
    for (size_t i = 0; i < COUNT; i++) {
        wire_peer_close(&peers[i]);
    }
    loop_host_stop(host);
    assert_int_not_equal(access(socket_path, F_OK), 0);
}

/* ---- stopping ---- */

static void drains_at_once_where_nothing_is_open(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    loop_host_serve(host, &address);
    loop_host_drain(host);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
    assert_int_equal(wire_connect(&address, 0), -1);
}

static void drains_an_idle_client_that_answers_pings(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    assert_true(wire_peer_echo(&peer, 10));
    loop_host_drain(host);
    assert_false(wire_peer_run(&peer, &never, TIMEOUT_MS));
    assert_true(peer.is_over);
    wire_peer_close(&peer);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
}

static void drains_a_client_that_has_said_nothing_at_once(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    loop_host_serve(host, &address);
    int silent = wire_connect(&address, 0);
    int half = wire_connect(&address, 0);
    wire_send(half, WIRE_HELLO, 10);
    assert_true(loop_host_wait_conns(host, 2, TIMEOUT_MS));
    loop_host_drain(host);
    assert_true(wire_read_to_end(silent, TIMEOUT_MS, NULL, 0));
    assert_true(wire_read_to_end(half, TIMEOUT_MS, NULL, 0));
    close(silent);
    close(half);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
}

static void cuts_a_client_that_does_not_answer_after_drain_timeout(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    host->options.limits.drain_timeout_ms = SHORT_MS;
    loop_host_serve(host, &address);
    int mute = wire_connect(&address, 0);
    char byte;
    wire_send(mute, WIRE_HELLO, WIRE_HELLO_BYTES);
    assert_int_equal(recv(mute, &byte, 1, 0), 1);
    uint64_t begin_ns = uv_hrtime();
    loop_host_drain(host);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
    assert_true(uv_hrtime() - begin_ns >= UINT64_C(1000000) * (SHORT_MS / 2));
    assert_true(wire_read_to_end(mute, TIMEOUT_MS, NULL, 0));
    close(mute);
}

static void serves_a_call_that_was_begun_before_the_drain(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peer;
    struct wire_call call;
    loop_host_serve(host, &address);
    wire_peer_open(&peer, &address);
    wire_peer_call(&peer, &call, "/t/Echo");
    wire_peer_write(&call, 1000, 0, false);
    assert_true(wire_peer_run(&peer, &call.has_message, TIMEOUT_MS));
    loop_host_drain(host);
    while (eb_grpc_client_is_usable(peer.client)) {
        assert_false(wire_peer_run(&peer, &never, 1));
        assert_false(peer.is_over);
    }
    wire_peer_write(&call, 50000, 0, true);
    assert_true(wire_peer_run(&peer, &call.is_finished, TIMEOUT_MS));
    assert_int_equal(call.error.status, EB_STATUS_OK);
    assert_int_equal(call.message_count, 2);
    assert_int_equal(call.message_bytes, 51000);
    assert_false(wire_peer_run(&peer, &never, TIMEOUT_MS));
    assert_true(peer.is_over);
    wire_peer_close(&peer);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
}

static void cuts_open_calls_when_told_to(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    struct wire_peer peers[4];
    struct wire_call calls[4];
    loop_host_serve(host, &address);
    for (int i = 0; i < 4; i++) {
        wire_peer_open(&peers[i], &address);
        wire_peer_call(&peers[i], &calls[i], "/t/Echo");
        wire_peer_write(&calls[i], 1000, 0, false);
        assert_true(wire_peer_run(&peers[i], &calls[i].has_message, TIMEOUT_MS));
    }
    loop_host_drain(host);
    loop_host_cut(host);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
    for (int i = 0; i < 4; i++) {
        assert_false(wire_peer_run(&peers[i], &never, TIMEOUT_MS));
        assert_true(peers[i].is_over);
        wire_peer_close(&peers[i]);
    }
}

static void take_hold(struct eb_loop *loop, void *context)
{
    (void)context;
    eb_loop_hold(loop);
}

static void release_hold(struct eb_loop *loop, void *context)
{
    (void)context;
    eb_loop_release(loop);
}

static void do_nothing(struct eb_loop *loop, void *context)
{
    (void)loop;
    (void)context;
}

static void has_not_drained_while_a_hold_is_there(void **state)
{
    struct loop_host *host = *state;
    struct eb_address address;
    loop_host_serve(host, &address);
    loop_host_act(host->loops[1], take_hold, NULL);
    loop_host_act(host->loops[1], take_hold, NULL);
    loop_host_drain(host);
    loop_host_act(host->loops[0], do_nothing, NULL); /* this mail arrives after the drain's */
    loop_host_act(host->loops[1], release_hold, NULL);
    uv_run(&host->uv, UV_RUN_NOWAIT);
    assert_int_equal(host->drained_count, 1);
    loop_host_act(host->loops[1], release_hold, NULL);
    assert_true(loop_host_wait_drained(host, TIMEOUT_MS));
}

/* ---- starting ---- */

static void closes_its_listeners_when_never_started(void **state)
{
    struct loop_host *host = *state;
    struct eb_address tcp;
    struct eb_address local;
    char text[EB_ADDRESS_TEXT_BYTES];
    loop_host_create(host);
    snprintf(text, sizeof text, "unix:%s", socket_path);
    loop_host_listen(host, 0, "127.0.0.1:0", &tcp);
    loop_host_listen(host, 0, text, &local);
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        eb_loop_destroy(host->loops[i]);
    }
    eb_loop_destroy(NULL);
    assert_int_equal(wire_connect(&tcp, 0), -1);
    assert_int_not_equal(access(socket_path, F_OK), 0);
    assert_int_equal(atomic_load(&host->loop_states), 0);
    assert_int_equal(host->drained_count, 0);
    eb_mailbox_close(&host->mailbox);
    uv_run(&host->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&host->uv), 0);
    host->is_created = false;
}

static void takes_so_many_listeners_and_no_more(void **state)
{
    struct loop_host *host = *state;
    struct eb_loop *loop;
    struct eb_listener listener;
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    struct eb_failure failure;
    assert_int_equal(eb_address_resolve("127.0.0.1:0", addresses, &error), 1);
    assert_int_equal(eb_loop_create(&loop, &host->options), 0);
    for (unsigned i = 0; i <= LISTENERS_OF_A_LOOP; i++) {
        assert_int_equal(eb_listener_open(&listener, &addresses[0],
                             (struct eb_listener_options){.probe = true}, &failure),
            0);
        assert_int_equal(
            eb_loop_listen(loop, &listener, false), i < LISTENERS_OF_A_LOOP ? 0 : UV_ENOBUFS);
    }
    eb_listener_close(&listener);
    eb_loop_destroy(loop);
}

static void is_not_created_without_the_services_state(void **state)
{
    struct loop_host *host = *state;
    struct eb_loop *loop = (void *)host;
    host->lacks_memory = true;
    assert_int_equal(eb_loop_create(&loop, &host->options), UV_ENOMEM);
    assert_null(loop);
}

/* Raises the limit of file descriptors until there are enough to create a loop. */
static void create_with_few_descriptors(void)
{
    struct loop_host host;
    struct eb_loop *loop;
    struct rlimit limit;
    int failures = 0;
    int code = UV_EMFILE;
    loop_host_init(&host);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = STDERR_FILENO + 1;
    while (code == UV_EMFILE) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        code = eb_loop_create(&loop, &host.options);
        assert_true(code == 0 || !loop);
        failures += code != 0;
        limit.rlim_cur += 2; /* libuv keeps one descriptor of each attempt */
    }
    assert_int_equal(code, 0);
    assert_true(failures > 1);
    eb_loop_destroy(loop);
    assert_int_equal(atomic_load(&host.loop_states), 0);
}

/* Runs in a child, whose limits affect no other test. */
static void is_not_created_without_descriptors(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        create_with_few_descriptors();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int make_socket_folder(void **state)
{
    (void)state;
    char *slash = strrchr(socket_path, '/');
    *slash = '\0';
    bool made = mkdtemp(socket_path);
    *slash = '/';
    return made ? 0 : -1;
}

static int remove_socket_folder(void **state)
{
    (void)state;
    *strrchr(socket_path, '/') = '\0';
    return rmdir(socket_path);
}

EB_TEST_GROUP(loop)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, loop_host_set_up, loop_host_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(gives_everything_back_after_many_connections),
        FIXTURE(keeps_many_connections_open_at_once),
        FIXTURE(closes_connections_beyond_connections_max),
        FIXTURE(accepts_as_many_connections_as_the_new_limits_allow),
        FIXTURE(a_call_keeps_the_limits_that_it_began_with),
        FIXTURE(counts_connections_that_are_on_their_way_to_a_loop),
        FIXTURE(hands_unix_connections_round_the_loops),
        FIXTURE(drains_at_once_where_nothing_is_open),
        FIXTURE(drains_an_idle_client_that_answers_pings),
        FIXTURE(drains_a_client_that_has_said_nothing_at_once),
        FIXTURE(cuts_a_client_that_does_not_answer_after_drain_timeout),
        FIXTURE(serves_a_call_that_was_begun_before_the_drain),
        FIXTURE(cuts_open_calls_when_told_to),
        FIXTURE(has_not_drained_while_a_hold_is_there),
        FIXTURE(closes_its_listeners_when_never_started),
        FIXTURE(takes_so_many_listeners_and_no_more),
        FIXTURE(is_not_created_without_the_services_state),
        cmocka_unit_test(is_not_created_without_descriptors),
    };
    return cmocka_run_group_tests(tests, make_socket_folder, remove_socket_folder);
}
