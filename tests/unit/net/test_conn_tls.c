#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"
#include "tests/lib/tls_forger.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 60000 /* time allowed for an event that must happen */
#define SHORT_MS 100     /* a time limit that a test lets pass */
/* Clients that connect at once. With one handshake per second, those that wait do so for longer
 * than any test runs. */
#define CROWD 120
#define ROUNDS 5

static struct eb_scratch scratch;
static struct tls_authority authority;

static unsigned refused_thread; /* which of the next threads is refused; 0: none */

int __real_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument);
int __wrap_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument);
int __wrap_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument)
{
    if (refused_thread > 0 && --refused_thread == 0) {
        return UV_EAGAIN;
    }
    return __real_uv_thread_create(thread, run, argument);
}

/* A server and one client. The test moves the client's bytes. */
struct fixture {
    struct loop_host host;
    struct eb_tls *tls;
    SSL *client;
    struct tls_forger forger;
    int socket;
    struct eb_address address; /* the rest is for tests of handshakes that wait */
    SSL *crowd[CROWD];
    int crowd_sockets[CROWD]; /* 0 if there is none */
};

static int set_up_group(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    tls_authority_init(&authority);
    tls_authority_write(&authority, &scratch);
    tls_authority_issue(&authority, &scratch, "server", "server", "DNS:localhost");
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    tls_authority_deinit(&authority);
    eb_scratch_deinit(&scratch);
    return 0;
}

static struct eb_tls *open_server_tls(void)
{
    char certificate[EB_SCRATCH_PATH_BYTES];
    char key[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure = {.text = ""};
    eb_scratch_path(&scratch, "server.pem", certificate);
    eb_scratch_path(&scratch, "server.key", key);
    struct eb_tls_options options = {.certificate_file = certificate, .key_file = key};
    struct eb_tls *tls = eb_tls_open(&options, &failure);
    assert_string_equal(failure.text, "");
    assert_non_null(tls);
    return tls;
}

/* Sends everything that a client has to send. */
static void send_output(SSL *client, int socket)
{
    char *bytes;
    long size = BIO_get_mem_data(SSL_get_wbio(client), &bytes);
    if (size > 0) {
        wire_send(socket, bytes, (size_t)size);
        (void)BIO_reset(SSL_get_wbio(client));
    }
}

static void send_client_bytes(struct fixture *fixture)
{
    send_output(fixture->client, fixture->socket);
}

/* Runs a client's handshake to its end, but does not send the handshake's last bytes. */
static void shake_hands_unsent(SSL *client, int socket)
{
    while (SSL_do_handshake(client) != 1) {
        char bytes[4096];
        assert_int_equal(SSL_get_error(client, -1), SSL_ERROR_WANT_READ);
        send_output(client, socket);
        ssize_t got = recv(socket, bytes, sizeof bytes, 0);
        assert_true(got > 0);
        assert_int_equal(BIO_write(SSL_get_rbio(client), bytes, (int)got), got);
    }
}

static void shake_hands_with(SSL *client, int socket)
{
    shake_hands_unsent(client, socket);
    send_output(client, socket);
}

static int set_up(void **state)
{
    struct eb_address address;
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    *state = fixture;
    fixture->tls = open_server_tls();
    loop_host_init(&fixture->host);
    fixture->host.options.tls = fixture->tls;
    fixture->host.options.limits.conn.write_timeout_ms = SHORT_MS;
    loop_host_serve(&fixture->host, &address);
    fixture->client = tls_client_create(&scratch, "h2", NULL);
    tls_forger_init(&fixture->forger, fixture->client);
    fixture->socket = wire_connect(&address, 0);
    shake_hands_with(fixture->client, fixture->socket);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < CROWD; i++) {
        SSL_free(fixture->crowd[i]);
        if (fixture->crowd_sockets[i] > 0) {
            close(fixture->crowd_sockets[i]);
        }
    }
    close(fixture->socket);
    SSL_free(fixture->client);
    loop_host_stop(&fixture->host);
    eb_tls_drop(fixture->tls);
    free(fixture);
    return 0;
}

/* The server's output waits until the client has finished its KeyUpdate message. */
static void resets_a_peer_that_keeps_bytes_from_being_encrypted(void **state)
{
    struct fixture *fixture = *state;
    tls_forger_send(&fixture->forger, WIRE_HELLO, WIRE_HELLO_BYTES);
    tls_forger_begin_update(&fixture->forger);
    uint64_t begin_ns = uv_hrtime();
    send_client_bytes(fixture);
    assert_true(wire_read_to_end(fixture->socket, TIMEOUT_MS, NULL, 0));
    assert_true(uv_hrtime() - begin_ns >= UINT64_C(1000000) * (SHORT_MS / 2));
    assert_true(loop_host_wait_conns(&fixture->host, 0, TIMEOUT_MS));
}

static void drains_without_a_peer_that_keeps_bytes_from_being_encrypted(void **state)
{
    struct fixture *fixture = *state;
    tls_forger_send(&fixture->forger, WIRE_HELLO, WIRE_HELLO_BYTES);
    tls_forger_begin_update(&fixture->forger);
    send_client_bytes(fixture);
    loop_host_drain(&fixture->host);
    assert_true(loop_host_wait_drained(&fixture->host, TIMEOUT_MS));
}

/* Reads the server's SETTINGS and its acknowledgement of the client's SETTINGS. */
static void read_settings(struct fixture *fixture)
{
    char text[64];
    size_t got = 0;
    while (got < 18) {
        char bytes[4096];
        int part = SSL_read(fixture->client, text + got, (int)(sizeof text - got));
        if (part > 0) {
            got += (size_t)part;
            continue;
        }
        ssize_t count = recv(fixture->socket, bytes, sizeof bytes, 0);
        assert_true(count > 0);
        assert_int_equal(BIO_write(SSL_get_rbio(fixture->client), bytes, (int)count), count);
    }
}

static void goes_on_with_a_peer_that_ends_what_it_has_begun(void **state)
{
    struct fixture *fixture = *state;
    tls_forger_send(&fixture->forger, WIRE_HELLO, WIRE_HELLO_BYTES);
    tls_forger_begin_update(&fixture->forger);
    tls_forger_end_update(&fixture->forger);
    send_client_bytes(fixture);
    read_settings(fixture);
}

/* ---- handshakes that wait ---- */

/* Serves with one loop. Lets one client connect before it limits the rate of handshakes to one per
 * second. */
static int set_up_slow(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    *state = fixture;
    fixture->tls = open_server_tls();
    loop_host_init(&fixture->host);
    fixture->host.options.tls = fixture->tls;
    fixture->host.options.limits.handshakes_per_s_max = 1;
    fixture->host.options.limits.conn.header_timeout_ms = 3600000;
    loop_host_create(&fixture->host);
    loop_host_listen(&fixture->host, 0, "127.0.0.1:0", &fixture->address);
    loop_host_start(&fixture->host);
    fixture->client = tls_client_create(&scratch, "h2", NULL);
    fixture->socket = wire_connect(&fixture->address, 0);
    shake_hands_with(fixture->client, fixture->socket);
    return 0;
}

/* Connects the crowd and sends its first messages. */
static void send_crowd(struct fixture *fixture)
{
    for (int i = 0; i < CROWD; i++) {
        fixture->crowd[i] = tls_client_create(&scratch, "h2", NULL);
        assert_int_equal(SSL_do_handshake(fixture->crowd[i]), -1);
    }
    for (int i = 0; i < CROWD; i++) {
        fixture->crowd_sockets[i] = wire_connect(&fixture->address, 0);
        send_output(fixture->crowd[i], fixture->crowd_sockets[i]);
    }
}

/* What a loop knows about handshakes. */
struct handshake_facts {
    uint64_t waiting;
    uint64_t done;
    uint64_t refused;
    uint64_t timeouts;
    uint64_t busy_ns;
};

static void read_handshake_facts(struct eb_loop *loop, void *context)
{
    const struct eb_counters *counters = eb_loop_counters(loop);
    *(struct handshake_facts *)context = (struct handshake_facts){
        .waiting = eb_loop_handshake_count(loop),
        .done = eb_histogram_count(&counters->handshakes),
        .refused = counters->refusals[EB_REFUSAL_HANDSHAKES],
        .timeouts = counters->handshake_timeouts,
        .busy_ns = counters->handshake_ns,
    };
}

static struct handshake_facts find_facts(struct fixture *fixture)
{
    struct handshake_facts facts;
    loop_host_act(fixture->host.loops[0], read_handshake_facts, &facts);
    return facts;
}

/* Waits until the loop has accepted the whole crowd and found something to read from each. */
static void wait_for_crowd(struct fixture *fixture)
{
    assert_true(loop_host_wait_conns(&fixture->host, CROWD + 1, TIMEOUT_MS));
    uint64_t end_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (find_facts(fixture).waiting < CROWD / 4) {
        assert_true(uv_hrtime() < end_ns);
        uv_sleep(1);
    }
}

struct new_limit {
    uint64_t handshakes_per_s_max;
    uint64_t header_timeout_ms;
};

static void set_new_limit(struct eb_loop *loop, void *context)
{
    const struct new_limit *limit = context;
    struct eb_loop_limits limits = eb_loop_options(loop)->limits;
    limits.handshakes_per_s_max = limit->handshakes_per_s_max;
    limits.conn.header_timeout_ms = limit->header_timeout_ms;
    eb_loop_set_limits(loop, &limits);
}

/* Begins HTTP/2 on the connection that is not one of the crowd. */
static void greet_server(struct fixture *fixture)
{
    assert_int_equal(SSL_write(fixture->client, WIRE_HELLO, WIRE_HELLO_BYTES), WIRE_HELLO_BYTES);
    send_client_bytes(fixture);
    read_settings(fixture);
}

static void serves_others_while_handshakes_wait(void **state)
{
    struct fixture *fixture = *state;
    send_crowd(fixture);
    wait_for_crowd(fixture);
    greet_server(fixture);
    struct handshake_facts facts = find_facts(fixture);
    assert_int_equal(facts.done, 1);
    assert_true(facts.busy_ns > 0);
    assert_int_equal(facts.refused, 0);
    assert_int_equal(facts.timeouts, 0);
}

static void completes_the_handshakes_of_all_who_connect_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct new_limit none = {.header_timeout_ms = 3600000};
    send_crowd(fixture);
    wait_for_crowd(fixture);
    loop_host_act(fixture->host.loops[0], set_new_limit, &none);
    for (int i = 0; i < CROWD; i++) {
        shake_hands_with(fixture->crowd[i], fixture->crowd_sockets[i]);
    }
    uint64_t end_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (find_facts(fixture).done < CROWD + 1) {
        assert_true(uv_hrtime() < end_ns);
        uv_sleep(1);
    }
    assert_int_equal(find_facts(fixture).waiting, 0);
}

/* With one handshake per second, the seventh or eighth in the queue would begin after 6 s. */
static void refuses_who_could_not_begin_within_the_header_timeout(void **state)
{
    struct fixture *fixture = *state;
    struct new_limit limit = {.handshakes_per_s_max = 1, .header_timeout_ms = 6000};
    greet_server(fixture);
    loop_host_act(fixture->host.loops[0], set_new_limit, &limit);
    send_crowd(fixture);
    assert_true(loop_host_wait_conns(&fixture->host, 1, TIMEOUT_MS));
    struct handshake_facts facts = find_facts(fixture);
    assert_true(facts.refused > 0);
    assert_int_equal(facts.waiting, 0);
    /* The others were closed too, because the crowd does not go on with its handshakes. */
    assert_int_equal(facts.refused + facts.timeouts, CROWD);
}

static void closes_those_who_wait_when_their_time_is_over(void **state)
{
    struct fixture *fixture = *state;
    struct new_limit limit = {.handshakes_per_s_max = 1, .header_timeout_ms = SHORT_MS};
    greet_server(fixture);
    send_crowd(fixture);
    wait_for_crowd(fixture);
    loop_host_act(fixture->host.loops[0], set_new_limit, &limit);
    assert_true(loop_host_wait_conns(&fixture->host, 1, TIMEOUT_MS));
    struct handshake_facts facts = find_facts(fixture);
    assert_int_equal(facts.waiting, 0);
    assert_int_equal(facts.timeouts, CROWD);
}

static void limit_unknown_peers(struct eb_loop *loop, void *context)
{
    (void)context;
    struct eb_loop_limits limits = eb_loop_options(loop)->limits;
    limits.conn.age.unknown_max_ms = SHORT_MS;
    eb_loop_set_limits(loop, &limits);
}

/* Connects a peer that sends nothing, and waits until the loop closes it. */
static void outlast_silent_peer(const struct fixture *fixture)
{
    int silent = wire_connect(&fixture->address, 0);
    assert_true(wire_read_to_end(silent, TIMEOUT_MS, NULL, 0));
    close(silent);
}

/* Two silent peers, which connect later one after the other, show that the time of the others would
 * be over. */
static void waiting_for_a_step_does_not_count_towards_the_time_to_authenticate(void **state)
{
    struct fixture *fixture = *state;
    send_crowd(fixture);
    wait_for_crowd(fixture);
    loop_host_act(fixture->host.loops[0], limit_unknown_peers, NULL);
    outlast_silent_peer(fixture);
    outlast_silent_peer(fixture);
    assert_true(find_facts(fixture).waiting > 0);
}

static void spends_no_steps_on_peers_that_have_gone(void **state)
{
    struct fixture *fixture = *state;
    send_crowd(fixture);
    wait_for_crowd(fixture);
    for (int i = 0; i < CROWD; i++) {
        close(fixture->crowd_sockets[i]);
        fixture->crowd_sockets[i] = 0;
    }
    /* Their handshakes would take minutes to begin. */
    assert_true(loop_host_wait_conns(&fixture->host, 1, TIMEOUT_MS));
    assert_int_equal(find_facts(fixture).waiting, 0);
}

static void answers_peers_without_tls_while_handshakes_wait(void **state)
{
    struct fixture *fixture = *state;
    send_crowd(fixture);
    wait_for_crowd(fixture);
    int plain = wire_connect(&fixture->address, 0);
    wire_send(plain, WIRE_HELLO, WIRE_HELLO_BYTES);
    assert_true(wire_read_to_end(plain, TIMEOUT_MS, NULL, 0));
    close(plain);
    assert_true(find_facts(fixture).waiting > 0);
}

static void drains_while_handshakes_wait(void **state)
{
    struct fixture *fixture = *state;
    send_crowd(fixture);
    wait_for_crowd(fixture);
    close(fixture->socket);
    fixture->socket = -1;
    loop_host_drain(&fixture->host);
    assert_true(loop_host_wait_drained(&fixture->host, TIMEOUT_MS));
}

/* ---- handshakes in progress ---- */

static void limit_no_handshakes(const struct fixture *fixture)
{
    struct new_limit none = {.header_timeout_ms = 3600000};
    loop_host_act(fixture->host.loops[0], set_new_limit, &none);
}

static void reads_what_comes_with_the_last_bytes_of_a_handshake(void **state)
{
    struct fixture *fixture = *state;
    limit_no_handshakes(fixture);
    for (int i = 0; i < CROWD; i++) {
        SSL_free(fixture->client);
        close(fixture->socket);
        fixture->client = tls_client_create(&scratch, "h2", NULL);
        fixture->socket = wire_connect(&fixture->address, 0);
        shake_hands_unsent(fixture->client, fixture->socket);
        greet_server(fixture);
    }
}

/* They leave before, during and after the steps of their handshakes. */
static void survives_peers_that_leave_during_their_handshakes(void **state)
{
    struct fixture *fixture = *state;
    limit_no_handshakes(fixture);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CROWD; i++) {
            SSL *client = tls_client_create(&scratch, "h2", NULL);
            int socket = wire_connect(&fixture->address, 0);
            struct linger reset = {.l_onoff = i % 2};
            assert_int_equal(SSL_do_handshake(client), -1);
            send_output(client, socket);
            assert_int_equal(setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
            uv_sleep(i % 8 == 0);
            close(socket);
            SSL_free(client);
        }
        assert_true(loop_host_wait_conns(&fixture->host, 1, TIMEOUT_MS));
    }
    greet_server(fixture);
}

static void ends_while_handshakes_are_in_progress(void **state)
{
    struct fixture *fixture = *state;
    limit_no_handshakes(fixture);
    send_crowd(fixture);
    loop_host_cut(&fixture->host);
    assert_true(loop_host_wait_drained(&fixture->host, TIMEOUT_MS));
}

/* A loop with TLS has two threads. */
static void starts_again_after_a_thread_was_refused(void **state)
{
    (void)state;
    struct loop_host host;
    struct eb_tls *tls = open_server_tls();
    loop_host_init(&host);
    host.options.tls = tls;
    loop_host_create(&host);
    for (unsigned i = 1; i <= 2; i++) {
        refused_thread = i;
        assert_int_equal(
            eb_loop_start(host.loops[0], &host.mailbox, &host.words[0].mail), UV_EAGAIN);
        assert_int_equal(refused_thread, 0);
    }
    loop_host_start(&host);
    loop_host_stop(&host);
    eb_tls_drop(tls);
}

EB_TEST_GROUP(conn_tls)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(resets_a_peer_that_keeps_bytes_from_being_encrypted),
        FIXTURE(drains_without_a_peer_that_keeps_bytes_from_being_encrypted),
        FIXTURE(goes_on_with_a_peer_that_ends_what_it_has_begun),
#undef FIXTURE
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up_slow, tear_down)
        FIXTURE(serves_others_while_handshakes_wait),
        FIXTURE(completes_the_handshakes_of_all_who_connect_at_once),
        FIXTURE(refuses_who_could_not_begin_within_the_header_timeout),
        FIXTURE(closes_those_who_wait_when_their_time_is_over),
        FIXTURE(waiting_for_a_step_does_not_count_towards_the_time_to_authenticate),
        FIXTURE(spends_no_steps_on_peers_that_have_gone),
        FIXTURE(answers_peers_without_tls_while_handshakes_wait),
        FIXTURE(drains_while_handshakes_wait),
        FIXTURE(reads_what_comes_with_the_last_bytes_of_a_handshake),
        FIXTURE(survives_peers_that_leave_during_their_handshakes),
        FIXTURE(ends_while_handshakes_are_in_progress),
        cmocka_unit_test(starts_again_after_a_thread_was_refused),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
