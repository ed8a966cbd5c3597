/* Tests the TLS of a client with servers that keep OpenSSL busy without sending data, that end the
 * connection, or that hold the connection up. */
#include "proto/link/credentials.h"
#include "proto/net/tls_stream.h"

#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"
#include "tests/lib/tls_forger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROW_MAX 32
#define RECORDS_MAX 2000

struct fixture {
    struct eb_scratch scratch;
    SSL_CTX *context;
    SSL *server;
    struct eb_credentials credentials;
    struct eb_tls_stream *link;
    int got; /* result of the link's last read */
};

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
    const unsigned char *offered, unsigned offered_bytes, void *context)
{
    (void)ssl;
    (void)offered_bytes;
    (void)context;
    *out = offered + 1;
    *out_bytes = offered[0];
    return SSL_TLSEXT_ERR_OK;
}

static void make_server(struct fixture *fixture)
{
    char path[EB_SCRATCH_PATH_BYTES];
    fixture->context = SSL_CTX_new(TLS_server_method());
    assert_non_null(fixture->context);
    eb_scratch_path(&fixture->scratch, "server.pem", path);
    assert_int_equal(SSL_CTX_use_certificate_chain_file(fixture->context, path), 1);
    eb_scratch_path(&fixture->scratch, "server.key", path);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(fixture->context, path, SSL_FILETYPE_PEM), 1);
    SSL_CTX_set_alpn_select_cb(fixture->context, choose_h2, NULL);
    fixture->server = SSL_new(fixture->context);
    assert_non_null(fixture->server);
    SSL_set_bio(fixture->server, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(fixture->server), -1);
    SSL_set_accept_state(fixture->server);
}

/* Carries the link's output to the server. */
static void pass_to_server(struct fixture *fixture)
{
    size_t count;
    const uint8_t *bytes = eb_tls_stream_begin_write(fixture->link, &count);
    if (count > 0) {
        assert_int_equal(BIO_write(SSL_get_rbio(fixture->server), bytes, (int)count), count);
    }
    eb_tls_stream_end_write(fixture->link);
}

/* Carries each side's output to the other, and lets the link read. */
static void pass_on(struct fixture *fixture)
{
    uint8_t plain[EB_TLS_RECORD_BYTES];
    pass_to_server(fixture);
    (void)SSL_do_handshake(fixture->server);
    char *said;
    BIO *out = SSL_get_wbio(fixture->server);
    long size = BIO_get_mem_data(out, &said);
    if (size > 0) {
        eb_tls_stream_feed(fixture->link, (const uint8_t *)said, (size_t)size, 0);
    }
    do {
        fixture->got = eb_tls_stream_read(fixture->link, plain, sizeof plain);
    } while (fixture->got > 0);
    (void)BIO_reset(out);
}

static int begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct tls_authority authority;
    struct eb_targets targets;
    struct eb_error error;
    char ca[EB_SCRATCH_PATH_BYTES];
    assert_non_null(fixture);
    *state = fixture;
    eb_scratch_init(&fixture->scratch);
    tls_authority_init(&authority);
    tls_authority_write(&authority, &fixture->scratch);
    tls_authority_issue(&authority, &fixture->scratch, "server", "server", "DNS:localhost");
    tls_authority_deinit(&authority);
    make_server(fixture);
    eb_scratch_path(&fixture->scratch, "ca.pem", ca);
    assert_true(eb_targets_parse("localhost:1", &targets, &error));
    struct eb_file_list files = {.files = NULL};
    assert_true(eb_credentials_open(
        &fixture->credentials, &(struct eb_access){.tls_ca = ca}, &targets, &files, &error));
    eb_file_list_deinit(&files);
    eb_targets_free(&targets);
    fixture->link = eb_credentials_start_tls(&fixture->credentials, "localhost");
    assert_non_null(fixture->link);
    return 0;
}

static void shake_hands(struct fixture *fixture)
{
    for (int i = 0; i < 3; i++) {
        pass_on(fixture);
    }
}

static int set_up(void **state)
{
    assert_int_equal(begin(state), 0);
    struct fixture *fixture = *state;
    shake_hands(fixture);
    assert_true(eb_tls_stream_is_ready(fixture->link));
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_tls_stream_destroy(fixture->link);
    eb_credentials_close(&fixture->credentials);
    SSL_free(fixture->server);
    SSL_CTX_free(fixture->context);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

/* Returns how many KeyUpdates the link accepts, each followed by `data_bytes` bytes of data. */
static int count_updates(struct fixture *fixture, size_t data_bytes)
{
    static const uint8_t data[EB_TLS_RECORD_BYTES];
    int count = 0;
    while (fixture->got == 0 && count < RECORDS_MAX) {
        assert_int_equal(SSL_key_update(fixture->server, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(fixture->server), 1);
        for (size_t left = data_bytes; left > 0;) {
            size_t part = left < sizeof data ? left : sizeof data;
            assert_int_equal(SSL_write(fixture->server, data, (int)part), part);
            left -= part;
        }
        pass_on(fixture);
        count++;
    }
    return count;
}

static void leaves_a_server_that_updates_its_keys_again_and_again(void **state)
{
    struct fixture *fixture = *state;
    /* The session tickets of the handshake are counted, too. */
    assert_in_range(count_updates(fixture, 0), ROW_MAX - 2, ROW_MAX + 2);
    assert_int_equal(fixture->got, -1);
    assert_string_equal(eb_tls_stream_reason(fixture->link),
        "TLS: the server sends too many records without data (KeyUpdates and the like)");
}

/* Sends this many KeyUpdates followed by a byte of data, and returns the link's result of reading
 * them. The byte sent first separates the KeyUpdates from the session tickets of the handshake. */
static int read_behind(struct fixture *fixture, int updates)
{
    uint8_t plain[EB_TLS_RECORD_BYTES];
    char *said;
    assert_int_equal(SSL_write(fixture->server, "x", 1), 1);
    pass_on(fixture);
    for (int i = 0; i < updates; i++) {
        assert_int_equal(SSL_key_update(fixture->server, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(fixture->server), 1);
    }
    assert_int_equal(SSL_write(fixture->server, "x", 1), 1);
    long size = BIO_get_mem_data(SSL_get_wbio(fixture->server), &said);
    eb_tls_stream_feed(fixture->link, (const uint8_t *)said, (size_t)size, 0);
    return eb_tls_stream_read(fixture->link, plain, sizeof plain);
}

static void takes_data_behind_as_many_updates_as_may_be(void **state)
{
    assert_int_equal(read_behind(*state, ROW_MAX), 1);
}

static void takes_no_data_behind_one_update_more(void **state)
{
    assert_int_equal(read_behind(*state, ROW_MAX + 1), -1);
}

static void leaves_a_server_that_hides_them_among_data(void **state)
{
    struct fixture *fixture = *state;
    assert_in_range(count_updates(fixture, 1), ROW_MAX + 1, 101);
    assert_int_equal(fixture->got, -1);
}

static void takes_updates_among_much_data(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(count_updates(fixture, 65536), RECORDS_MAX);
    assert_int_equal(fixture->got, 0);
}

/* A server may send records under its application keys before the client has answered. */
static void leaves_a_server_that_sends_them_with_the_end_of_the_handshake(void **state)
{
    static const uint8_t user_canceled[] = {SSL3_AL_WARNING, 90};
    struct fixture *fixture = *state;
    struct tls_forger forger;
    tls_forger_init(&forger, fixture->server);
    pass_to_server(fixture);
    (void)SSL_do_handshake(fixture->server);
    /* OpenSSL itself refuses 33 empty records, or five warnings, in a row. */
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < ROW_MAX / 4; k++) {
            tls_forger_put(&forger, SSL3_RT_APPLICATION_DATA, "", 0);
        }
        tls_forger_put(&forger, SSL3_RT_ALERT, user_canceled, sizeof user_canceled);
    }
    pass_on(fixture);
    assert_int_equal(fixture->got, -1);
    assert_string_equal(eb_tls_stream_reason(fixture->link),
        "TLS: the server sends too many records without data (KeyUpdates and the like)");
}

static void leaves_a_server_that_picks_no_protocol(void **state)
{
    struct fixture *fixture = *state;
    SSL_CTX_set_alpn_select_cb(fixture->context, NULL, NULL);
    shake_hands(fixture);
    assert_int_equal(fixture->got, -1);
    assert_string_equal(
        eb_tls_stream_reason(fixture->link), "TLS: the server does not offer HTTP/2");
}

static void hears_that_nothing_follows(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(SSL_shutdown(fixture->server), 0);
    pass_on(fixture);
    assert_int_equal(fixture->got, -1);
    assert_string_equal(eb_tls_stream_reason(fixture->link), "closed by the server");
}

static void sends_nothing_amid_a_message_of_the_servers(void **state)
{
    struct fixture *fixture = *state;
    struct tls_forger forger;
    struct eb_send_queue *queue = eb_send_queue_create(&eb_memory_heap);
    assert_non_null(queue);
    tls_forger_init(&forger, fixture->server);
    /* The server sends no session tickets, because the forger does not count them. */
    assert_int_equal(SSL_set_num_tickets(fixture->server, 0), 1);
    shake_hands(fixture);
    assert_true(eb_send_queue_copy(queue, "request", 7));
    tls_forger_begin_update(&forger);
    pass_on(fixture);
    assert_true(eb_tls_stream_is_held_up(fixture->link));
    assert_true(eb_tls_stream_seal(fixture->link, queue));
    assert_int_equal(eb_send_queue_bytes(queue), 7);
    tls_forger_end_update(&forger);
    pass_on(fixture);
    assert_false(eb_tls_stream_is_held_up(fixture->link));
    assert_true(eb_tls_stream_seal(fixture->link, queue));
    assert_int_equal(eb_send_queue_bytes(queue), 0);
    eb_send_queue_destroy(queue);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static void takes_the_dot_of_a_name_for_no_part_of_it(void **state)
{
    struct fixture *fixture = *state;
    eb_tls_stream_destroy(fixture->link);
    fixture->link = eb_credentials_start_tls(&fixture->credentials, "localhost.");
    assert_non_null(fixture->link);
    shake_hands(fixture);
    assert_true(eb_tls_stream_is_ready(fixture->link));
}

EB_TEST_GROUP(tls_client)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(leaves_a_server_that_updates_its_keys_again_and_again),
        WITH_FIXTURE(takes_data_behind_as_many_updates_as_may_be),
        WITH_FIXTURE(takes_no_data_behind_one_update_more),
        WITH_FIXTURE(leaves_a_server_that_hides_them_among_data),
        WITH_FIXTURE(takes_updates_among_much_data),
        cmocka_unit_test_setup_teardown(
            leaves_a_server_that_sends_them_with_the_end_of_the_handshake, begin, tear_down),
        cmocka_unit_test_setup_teardown(leaves_a_server_that_picks_no_protocol, begin, tear_down),
        WITH_FIXTURE(hears_that_nothing_follows),
        cmocka_unit_test_setup_teardown(
            sends_nothing_amid_a_message_of_the_servers, begin, tear_down),
        cmocka_unit_test_setup_teardown(
            takes_the_dot_of_a_name_for_no_part_of_it, begin, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
