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
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000 /* time allowed for an event that must happen */
#define SHORT_MS 100     /* a time limit that a test lets pass */

static struct eb_scratch scratch;
static struct tls_authority authority;

/* A server and one client. The test moves the client's bytes. */
struct fixture {
    struct loop_host host;
    struct eb_tls *tls;
    SSL *client;
    struct tls_forger forger;
    int socket;
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

/* Sends everything that the client has to send. */
static void send_client_bytes(struct fixture *fixture)
{
    char *bytes;
    long size = BIO_get_mem_data(SSL_get_wbio(fixture->client), &bytes);
    if (size > 0) {
        wire_send(fixture->socket, bytes, (size_t)size);
        (void)BIO_reset(SSL_get_wbio(fixture->client));
    }
}

/* Runs the client's handshake to its end, and sends the handshake's last bytes. */
static void shake_hands_with(struct fixture *fixture)
{
    while (SSL_do_handshake(fixture->client) != 1) {
        char bytes[4096];
        assert_int_equal(SSL_get_error(fixture->client, -1), SSL_ERROR_WANT_READ);
        send_client_bytes(fixture);
        ssize_t got = recv(fixture->socket, bytes, sizeof bytes, 0);
        assert_true(got > 0);
        assert_int_equal(BIO_write(SSL_get_rbio(fixture->client), bytes, (int)got), got);
    }
    send_client_bytes(fixture);
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
    shake_hands_with(fixture);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
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

static void goes_on_with_a_peer_that_ends_what_it_has_begun(void **state)
{
    struct fixture *fixture = *state;
    char text[64];
    tls_forger_send(&fixture->forger, WIRE_HELLO, WIRE_HELLO_BYTES);
    tls_forger_begin_update(&fixture->forger);
    tls_forger_end_update(&fixture->forger);
    send_client_bytes(fixture);
    /* Reads the server's SETTINGS and its acknowledgement of the client's SETTINGS. */
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

EB_TEST_GROUP(conn_tls)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(resets_a_peer_that_keeps_bytes_from_being_encrypted),
        FIXTURE(drains_without_a_peer_that_keeps_bytes_from_being_encrypted),
        FIXTURE(goes_on_with_a_peer_that_ends_what_it_has_begun),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
