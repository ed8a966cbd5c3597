#include "proto/net/tls_stream.h"

#include "server/net/tls.h"
#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"
#include "tests/lib/tls_forger.h"
#include "tests/unit/proto/lender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY_BYTES ((size_t)600000)

static struct eb_scratch scratch;
static struct tls_authority authority;

/* A server's stream, its queue of output, and its client. */
struct fixture {
    struct lender lender;
    struct eb_tls *tls;
    struct eb_tls_stream *stream;
    struct eb_send_queue *queue;
    SSL *client;
    size_t portion; /* bytes fed at once; 0: all */
    uint8_t *got;   /* plain bytes that the server has read */
    size_t got_bytes;
    size_t sealed_bytes; /* encrypted bytes that the server has written */
    uint64_t now_ms;
    bool takes_steps; /* whether eb_tls_stream_handshake precedes each read */
    bool is_over;
};

static int set_up_group(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    tls_authority_init(&authority);
    tls_authority_write(&authority, &scratch);
    tls_authority_issue(&authority, &scratch, "server", "server", "DNS:localhost");
    tls_authority_issue(
        &authority, &scratch, "client", "cn", "DNS:a.example,URI:spiffe://x/y,email:e@a.example");
    tls_authority_issue(&authority, &scratch, "bare", "only a name", NULL);
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    tls_authority_deinit(&authority);
    eb_scratch_deinit(&scratch);
    return 0;
}

static struct eb_tls *open_stream_tls(bool asks_clients)
{
    char certificate[EB_SCRATCH_PATH_BYTES];
    char key[EB_SCRATCH_PATH_BYTES];
    char ca[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure = {.text = ""};
    eb_scratch_path(&scratch, "server.pem", certificate);
    eb_scratch_path(&scratch, "server.key", key);
    eb_scratch_path(&scratch, "ca.pem", ca);
    struct eb_tls_options options = {.certificate_file = certificate,
        .key_file = key,
        .client_ca_file = asks_clients ? ca : NULL};
    struct eb_tls *tls = eb_tls_open(&options, &failure);
    assert_string_equal(failure.text, "");
    assert_non_null(tls);
    return tls;
}

static void open_fixture(struct fixture *fixture, bool asks_clients, SSL *client)
{
    *fixture = (struct fixture){.client = client};
    lender_init(&fixture->lender, 0);
    fixture->tls = open_stream_tls(asks_clients);
    fixture->stream = eb_tls_accept(fixture->tls, &fixture->lender.memory);
    assert_non_null(fixture->stream);
    fixture->queue = eb_send_queue_create(&eb_memory_heap);
    assert_non_null(fixture->queue);
    fixture->got = malloc(MANY_BYTES);
    assert_non_null(fixture->got);
}

static void close_fixture(struct fixture *fixture)
{
    eb_tls_stream_destroy(fixture->stream);
    eb_tls_drop(fixture->tls);
    eb_send_queue_destroy(fixture->queue);
    SSL_free(fixture->client);
    free(fixture->got);
    assert_int_equal(fixture->lender.lent_count, 0);
}

/* ---- moving bytes ---- */

static void read_plain(struct fixture *fixture)
{
    uint8_t plain[EB_TLS_RECORD_BYTES];
    int got;
    while ((got = eb_tls_stream_read(fixture->stream, plain, sizeof plain)) > 0) {
        assert_true(fixture->got_bytes + (size_t)got <= MANY_BYTES);
        memcpy(fixture->got + fixture->got_bytes, plain, (size_t)got);
        fixture->got_bytes += (size_t)got;
    }
    fixture->is_over = got < 0;
}

/* Feeds the server everything that the client has written. Returns whether there was anything. */
static bool feed(struct fixture *fixture)
{
    char *bytes;
    BIO *out = SSL_get_wbio(fixture->client);
    long size = BIO_get_mem_data(out, &bytes);
    size_t portion = fixture->portion ? fixture->portion : (size_t)size;
    for (size_t at = 0; at < (size_t)size && !fixture->is_over; at += portion) {
        size_t left = (size_t)size - at;
        /* In memory of exactly this size, so that a sanitizer finds a read beyond it. */
        uint8_t *part = malloc(left < portion ? left : portion);
        assert_non_null(part);
        memcpy(part, bytes + at, left < portion ? left : portion);
        eb_tls_stream_feed(fixture->stream, part, left < portion ? left : portion, fixture->now_ms);
        if (fixture->takes_steps) {
            eb_tls_stream_handshake(fixture->stream);
        }
        read_plain(fixture);
        free(part);
    }
    (void)BIO_reset(out);
    return size > 0;
}

/* Passes the server's output to the client. Returns whether there was any. */
static bool write_output(struct fixture *fixture)
{
    size_t count;
    if (!eb_tls_stream_seal(fixture->stream, fixture->queue)) {
        fixture->is_over = true;
    }
    uint8_t *bytes = eb_tls_stream_begin_write(fixture->stream, &count);
    assert_true(count <= EB_TLS_OUTPUT_BYTES_MAX);
    if (count > 0) {
        assert_int_equal(BIO_write(SSL_get_rbio(fixture->client), bytes, (int)count), count);
    }
    fixture->sealed_bytes += count;
    eb_tls_stream_end_write(fixture->stream);
    return count > 0;
}

/* Runs the handshake until neither side has anything to send. Returns whether both have finished
 * it. */
static bool shake_both_hands(struct fixture *fixture)
{
    bool moved = true;
    while (moved) {
        (void)SSL_do_handshake(fixture->client);
        moved = feed(fixture);
        moved |= write_output(fixture);
    }
    return SSL_is_init_finished(fixture->client) && eb_tls_stream_is_ready(fixture->stream) &&
           !fixture->is_over;
}

static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(i * 131 >> 3);
    }
}

static void expect_pattern(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (uint8_t)(i * 131 >> 3)) {
            fail_msg("byte %zu of %zu", i, count);
        }
    }
}

/* Sends `count` bytes from the client and expects the server to read them. */
static void send_from_client(struct fixture *fixture, size_t count)
{
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    fill(bytes, count);
    assert_int_equal(SSL_write(fixture->client, bytes, (int)count), count);
    free(bytes);
    (void)feed(fixture);
    assert_int_equal(fixture->got_bytes, count);
    expect_pattern(fixture->got, count);
}

/* ---- tests ---- */

static void reads_whatever_the_portions_are(void **state)
{
    (void)state;
    static const size_t portions[] = {1, 2, 3, 5, 6, 64, 1000, 16384, 0};
    for (size_t i = 0; i < sizeof portions / sizeof portions[0]; i++) {
        struct fixture fixture;
        open_fixture(&fixture, true, tls_client_create(&scratch, "h2", "client"));
        fixture.portion = portions[i];
        assert_false(eb_tls_stream_is_shaking(fixture.stream));
        assert_true(shake_both_hands(&fixture));
        send_from_client(&fixture, 40000);
        assert_string_equal(eb_tls_stream_reason(fixture.stream), "");
        close_fixture(&fixture);
    }
}

static void shakes_hands_in_steps_whatever_the_portions_are(void **state)
{
    (void)state;
    static const size_t portions[] = {1, 5, 64, 0};
    for (size_t i = 0; i < sizeof portions / sizeof portions[0]; i++) {
        struct fixture fixture;
        open_fixture(&fixture, true, tls_client_create(&scratch, "h2", "client"));
        fixture.portion = portions[i];
        fixture.takes_steps = true;
        assert_true(shake_both_hands(&fixture));
        send_from_client(&fixture, 40000);
        assert_string_equal(eb_tls_stream_reason(fixture.stream), "");
        close_fixture(&fixture);
    }
}

/* The step itself reports nothing: the next read does. */
static void keeps_the_end_of_a_handshake_that_fails_in_a_step(void **state)
{
    (void)state;
    struct fixture fixture;
    uint8_t hello[] = {EB_TLS_HANDSHAKE_RECORD, 3, 1, 0xff, 0xff}; /* too long */
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    eb_tls_stream_feed(fixture.stream, hello, sizeof hello, 0);
    eb_tls_stream_handshake(fixture.stream);
    eb_tls_stream_handshake(fixture.stream);
    read_plain(&fixture);
    assert_true(fixture.is_over);
    assert_non_null(strstr(eb_tls_stream_reason(fixture.stream), "TLS handshake: "));
    assert_true(write_output(&fixture)); /* the alert */
    close_fixture(&fixture);
}

/* The output of the handshake was not written yet when the memory changes. */
static void gives_output_back_to_where_it_came_from(void **state)
{
    (void)state;
    struct fixture fixture;
    struct lender other;
    lender_init(&other, 0);
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    (void)SSL_do_handshake(fixture.client);
    assert_true(feed(&fixture));
    assert_true(write_output(&fixture));
    assert_int_equal(SSL_do_handshake(fixture.client), 1);
    assert_true(feed(&fixture));
    assert_true(eb_tls_stream_is_ready(fixture.stream));
    assert_int_equal(fixture.lender.lent_count, 1); /* the session tickets */
    eb_tls_stream_set_memory(fixture.stream, &other.memory);
    uint8_t bytes[EB_TLS_RECORD_BYTES] = {0};
    assert_true(eb_send_queue_copy(fixture.queue, bytes, sizeof bytes));
    assert_true(eb_tls_stream_seal(fixture.stream, fixture.queue));
    assert_int_equal(fixture.lender.lent_count, 0);
    assert_int_equal(other.lent_count, 1);
    assert_true(write_output(&fixture));
    assert_int_equal(other.lent_count, 0);
    close_fixture(&fixture);
}

/* Feeds the client's first flight in two portions, split at every byte. */
static void reads_every_split_of_a_hello(void **state)
{
    (void)state;
    size_t size = 2;
    for (size_t at = 1; at < size; at++) {
        struct fixture fixture;
        char *bytes;
        open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
        (void)SSL_do_handshake(fixture.client);
        size = (size_t)BIO_get_mem_data(SSL_get_wbio(fixture.client), &bytes);
        eb_tls_stream_feed(fixture.stream, (const uint8_t *)bytes, at, 0);
        read_plain(&fixture);
        assert_true(eb_tls_stream_is_shaking(fixture.stream));
        eb_tls_stream_feed(fixture.stream, (const uint8_t *)bytes + at, size - at, 0);
        read_plain(&fixture);
        (void)BIO_reset(SSL_get_wbio(fixture.client));
        assert_true(write_output(&fixture));
        assert_true(shake_both_hands(&fixture));
        close_fixture(&fixture);
    }
}

/* Reads everything that has arrived at the client into `into` from `got` on. Returns the new
 * count. */
static size_t receive_at_client(struct fixture *fixture, uint8_t *into, size_t got)
{
    int part;
    while ((part = SSL_read(fixture->client, into + got, (int)(MANY_BYTES - got))) > 0) {
        got += (size_t)part;
    }
    return got;
}

static void seals_small_pieces_together_in_full_records(void **state)
{
    (void)state;
    struct fixture fixture;
    uint8_t *bytes = malloc(MANY_BYTES);
    uint8_t *back = malloc(MANY_BYTES);
    assert_true(bytes && back);
    fill(bytes, MANY_BYTES);
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    size_t before = fixture.sealed_bytes;
    struct eb_outgoing lent = {.bytes = bytes, .size = MANY_BYTES, .holds = 2};
    /* Pieces of 9 and 991 bytes, as frames have, and then a large one. */
    for (size_t at = 0; at < 100000; at += 1000) {
        assert_true(eb_send_queue_copy(fixture.queue, bytes + at, 9));
        assert_true(eb_send_queue_lend(fixture.queue, &lent, at + 9, 991));
    }
    assert_true(eb_send_queue_lend(fixture.queue, &lent, 100000, MANY_BYTES - 100000));
    size_t got = 0;
    while (write_output(&fixture)) {
        got = receive_at_client(&fixture, back, got);
    }
    assert_int_equal(got, MANY_BYTES);
    expect_pattern(back, MANY_BYTES);
    /* There is one record more where the large piece begins, and no record is small. */
    size_t records = MANY_BYTES / EB_TLS_RECORD_BYTES + 3;
    assert_true(fixture.sealed_bytes - before <= MANY_BYTES + records * 64);
    assert_int_equal(fixture.lender.lent_bytes, 0);
    close_fixture(&fixture);
    free(bytes);
    free(back);
}

static void keeps_the_queue_until_hands_are_shaken(void **state)
{
    (void)state;
    struct fixture fixture;
    char answer[8] = "";
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(eb_send_queue_copy(fixture.queue, "early", 5));
    assert_false(write_output(&fixture));
    assert_int_equal(eb_send_queue_bytes(fixture.queue), 5);
    assert_true(shake_both_hands(&fixture));
    assert_int_equal(SSL_read(fixture.client, answer, sizeof answer), 5);
    assert_string_equal(answer, "early");
    close_fixture(&fixture);
}

static void expect_client_refused(SSL *client, bool asks_clients, const char *part)
{
    struct fixture fixture;
    open_fixture(&fixture, asks_clients, client);
    assert_false(shake_both_hands(&fixture));
    assert_true(fixture.is_over);
    eb_scratch_expect(eb_tls_stream_reason(fixture.stream), part);
    eb_tls_stream_end(fixture.stream);
    close_fixture(&fixture);
}

static void refuses_who_does_not_speak_h2(void **state)
{
    (void)state;
    expect_client_refused(
        tls_client_create(&scratch, NULL, NULL), false, "no application protocol");
    expect_client_refused(
        tls_client_create(&scratch, "http/1.1", NULL), false, "no application protocol");
}

static void refuses_old_versions(void **state)
{
    (void)state;
    SSL *client = tls_client_create(&scratch, "h2", NULL);
    SSL_set_security_level(client, 0);
    assert_int_equal(SSL_set_min_proto_version(client, TLS1_1_VERSION), 1);
    assert_int_equal(SSL_set_max_proto_version(client, TLS1_1_VERSION), 1);
    expect_client_refused(client, false, "unsupported protocol");
}

static void refuses_plain_bytes(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    eb_tls_stream_feed(fixture.stream, (const uint8_t *)"PRI * HTTP/2.0", 14, 0);
    read_plain(&fixture);
    assert_true(fixture.is_over);
    eb_scratch_expect(eb_tls_stream_reason(fixture.stream), "plain text");
    assert_false(write_output(&fixture));
    close_fixture(&fixture);
}

static void refuses_clients_without_a_certificate_that_it_trusts(void **state)
{
    (void)state;
    struct tls_authority other;
    expect_client_refused(
        tls_client_create(&scratch, "h2", NULL), true, "peer did not return a certificate");
    tls_authority_init(&other);
    tls_authority_issue(&other, &scratch, "stranger", "cn", NULL);
    tls_authority_deinit(&other);
    expect_client_refused(
        tls_client_create(&scratch, "h2", "stranger"), true, "certificate signature failure");
}

static void tells_the_names_of_a_client(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name;
        bool has;
    } cases[] = {
        {"client", "a.example", true},
        {"client", "spiffe://x/y", true},
        {"client", "cn", false},
        {"client", "e@a.example", false},
        {"client", "a.example.org", false},
        {"client", "a.exampl", false},
        {"client", "", false},
        {"bare", "only a name", true},
        {"bare", "only a nam", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        open_fixture(&fixture, true, tls_client_create(&scratch, "h2", cases[i].file));
        assert_false(eb_tls_stream_has_name(fixture.stream, cases[i].name));
        assert_true(shake_both_hands(&fixture));
        assert_int_equal(eb_tls_stream_has_name(fixture.stream, cases[i].name), cases[i].has);
        close_fixture(&fixture);
    }
    struct fixture fixture;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", "client"));
    assert_true(shake_both_hands(&fixture));
    assert_false(eb_tls_stream_has_name(fixture.stream, "a.example"));
    close_fixture(&fixture);
}

/* A changed bit can only end the connection, wherever it is. No data comes through. */
static void ends_with_bytes_that_were_changed(void **state)
{
    (void)state;
    size_t size = 1;
    for (size_t at = 0; at < size; at += 13) {
        struct fixture fixture;
        char *bytes;
        open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
        assert_true(shake_both_hands(&fixture));
        assert_int_equal(SSL_write(fixture.client, "0123456789", 10), 10);
        size = (size_t)BIO_get_mem_data(SSL_get_wbio(fixture.client), &bytes);
        bytes[at] = (char)(bytes[at] ^ 4);
        (void)feed(&fixture);
        (void)write_output(&fixture);
        assert_int_equal(fixture.got_bytes, 0);
        const char *reason = eb_tls_stream_reason(fixture.stream);
        assert_true(*reason == '\0' || strncmp(reason, "TLS:", 4) == 0);
        close_fixture(&fixture);
    }
}

static void says_and_hears_that_nothing_follows(void **state)
{
    (void)state;
    struct fixture fixture;
    char byte;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    assert_int_equal(SSL_shutdown(fixture.client), 0);
    (void)feed(&fixture);
    assert_true(fixture.is_over);
    assert_string_equal(eb_tls_stream_reason(fixture.stream), "");
    close_fixture(&fixture);
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    eb_tls_stream_end(fixture.stream);
    assert_true(write_output(&fixture));
    assert_int_equal(SSL_read(fixture.client, &byte, 1), 0);
    assert_int_equal(SSL_get_error(fixture.client, 0), SSL_ERROR_ZERO_RETURN);
    close_fixture(&fixture);
}

static void seals_nothing_for_a_peer_that_has_ended(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    assert_int_equal(SSL_shutdown(fixture.client), 0);
    (void)feed(&fixture);
    assert_true(eb_send_queue_copy(fixture.queue, "late", 4));
    for (int i = 0; i < 2; i++) {
        size_t count;
        assert_true(eb_tls_stream_seal(fixture.stream, fixture.queue));
        /* No write has begun, so there is none to end. */
        assert_null(eb_tls_stream_begin_write(fixture.stream, &count));
        assert_int_equal(count, 0);
    }
    assert_int_equal(eb_send_queue_bytes(fixture.queue), 4);
    close_fixture(&fixture);
}

static void is_held_up_by_a_message_that_does_not_end(void **state)
{
    (void)state;
    struct fixture fixture;
    struct tls_forger forger;
    char answer[8] = "";
    open_fixture(&fixture, true, tls_client_create(&scratch, "h2", "client"));
    tls_forger_init(&forger, fixture.client);
    assert_false(eb_tls_stream_is_held_up(fixture.stream));
    assert_true(shake_both_hands(&fixture));
    tls_forger_begin_update(&forger);
    assert_true(feed(&fixture));
    assert_true(eb_tls_stream_is_held_up(fixture.stream));
    /* The unfinished message is not part of the handshake. */
    assert_true(eb_tls_stream_is_ready(fixture.stream));
    assert_false(eb_tls_stream_is_shaking(fixture.stream));
    assert_true(eb_tls_stream_has_name(fixture.stream, "a.example"));
    assert_true(eb_send_queue_copy(fixture.queue, "answer", 6));
    assert_false(write_output(&fixture));
    assert_int_equal(eb_send_queue_bytes(fixture.queue), 6);
    tls_forger_end_update(&forger);
    assert_true(feed(&fixture));
    assert_false(eb_tls_stream_is_held_up(fixture.stream));
    assert_true(write_output(&fixture));
    assert_int_equal(SSL_read(fixture.client, answer, sizeof answer), 6);
    assert_string_equal(answer, "answer");
    close_fixture(&fixture);
}

static void does_not_renegotiate(void **state)
{
    (void)state;
    struct fixture fixture;
    SSL *client = tls_client_create(&scratch, "h2", NULL);
    assert_int_equal(SSL_set_max_proto_version(client, TLS1_2_VERSION), 1);
    open_fixture(&fixture, false, client);
    assert_true(shake_both_hands(&fixture));
    assert_int_equal(SSL_renegotiate(client), 1);
    (void)SSL_do_handshake(client);
    (void)feed(&fixture);
    (void)write_output(&fixture);
    (void)SSL_do_handshake(client);
    assert_false(SSL_is_init_finished(client));
    close_fixture(&fixture);
}

static void bounds_output_that_a_peer_causes(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    /* Each update asks for an answer, and nobody takes the answers. */
    for (int i = 0; i < 20000 && !fixture.is_over; i++) {
        assert_int_equal(SSL_key_update(fixture.client, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(fixture.client), 1);
        (void)feed(&fixture);
        assert_true(fixture.lender.lent_bytes <= EB_TLS_OUTPUT_BYTES_MAX);
    }
    close_fixture(&fixture);
}

/* ---- records without data ---- */

#define ROW_MAX 32
#define MINUTE_MAX 100
#define RECORDS_MAX 2000

/* Adds a record to the client's output. */
typedef void (*put_fn)(struct fixture *fixture, struct tls_forger *forger);

static void put_update(struct fixture *fixture, struct tls_forger *forger)
{
    (void)forger;
    assert_int_equal(SSL_key_update(fixture->client, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_do_handshake(fixture->client), 1);
}

static void put_empty(struct fixture *fixture, struct tls_forger *forger)
{
    (void)fixture;
    tls_forger_put(forger, SSL3_RT_APPLICATION_DATA, "", 0);
}

static void put_warning(struct fixture *fixture, struct tls_forger *forger)
{
    static const uint8_t user_canceled[] = {SSL3_AL_WARNING, 90};
    (void)fixture;
    tls_forger_put(forger, SSL3_RT_ALERT, user_canceled, sizeof user_canceled);
}

/* Adds a record that middleboxes expect to see. It is never encrypted. */
static void put_change_of_cipher(struct fixture *fixture, struct tls_forger *forger)
{
    static const uint8_t record[] = {SSL3_RT_CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1};
    (void)forger;
    assert_int_equal(
        BIO_write(SSL_get_wbio(fixture->client), record, sizeof record), sizeof record);
}

/* Returns how many records made by `put` the server accepts, `pause_ms` apart. If `has_data`, a
 * byte of data follows each record. If `is_forged`, `put` writes through the forger, so the data
 * goes through the forger, too. */
static size_t count_records(put_fn put, bool is_forged, bool has_data, uint64_t pause_ms)
{
    struct fixture fixture;
    struct tls_forger forger;
    size_t count = 0;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    tls_forger_init(&forger, fixture.client);
    assert_true(shake_both_hands(&fixture));
    while (!fixture.is_over && count < RECORDS_MAX) {
        put(&fixture, &forger);
        if (has_data && is_forged) {
            tls_forger_put(&forger, SSL3_RT_APPLICATION_DATA, "x", 1);
        } else if (has_data) {
            assert_int_equal(SSL_write(fixture.client, "x", 1), 1);
        }
        fixture.now_ms += pause_ms;
        fixture.got_bytes = 0;
        (void)feed(&fixture);
        (void)write_output(&fixture);
        (void)SSL_read(fixture.client, fixture.got, 1);
        count++;
    }
    if (fixture.is_over) {
        assert_string_not_equal(eb_tls_stream_reason(fixture.stream), "");
    }
    close_fixture(&fixture);
    return count;
}

static void ends_a_peer_that_updates_its_keys_again_and_again(void **state)
{
    (void)state;
    assert_int_equal(count_records(put_update, false, false, 0), ROW_MAX + 2);
    assert_int_equal(count_records(put_update, false, true, 0), MINUTE_MAX + 1);
    assert_int_equal(count_records(put_update, false, true, 500), MINUTE_MAX + 1);
}

/* Sends `updates` updates and a byte of data, all at once. Returns whether the byte arrived. */
static bool takes_data_behind(int updates)
{
    struct fixture fixture;
    struct tls_forger forger;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    for (int i = 0; i < updates; i++) {
        put_update(&fixture, &forger);
    }
    assert_int_equal(SSL_write(fixture.client, "x", 1), 1);
    (void)feed(&fixture);
    bool is_taken = fixture.got_bytes == 1;
    assert_int_equal(fixture.is_over, !is_taken);
    close_fixture(&fixture);
    return is_taken;
}

static void takes_data_behind_as_many_updates_as_may_be(void **state)
{
    (void)state;
    assert_true(takes_data_behind(ROW_MAX));
    assert_false(takes_data_behind(ROW_MAX + 1));
}

static void lets_a_peer_update_its_keys_now_and_then(void **state)
{
    (void)state;
    assert_int_equal(count_records(put_update, false, false, 2000), RECORDS_MAX);
    assert_int_equal(count_records(put_update, false, true, 700), RECORDS_MAX);
}

static void ends_a_peer_whose_records_bring_no_data(void **state)
{
    (void)state;
    static const put_fn puts[] = {put_empty, put_warning};
    for (size_t i = 0; i < sizeof puts / sizeof puts[0]; i++) {
        assert_in_range(count_records(puts[i], true, false, 0), 2, ROW_MAX + 2);
    }
    /* After the handshake, OpenSSL itself accepts none of these. */
    assert_int_equal(count_records(put_change_of_cipher, true, false, 0), 1);
}

static void ends_a_peer_that_hides_such_records_among_data(void **state)
{
    (void)state;
    assert_in_range(count_records(put_warning, true, true, 0), 2, MINUTE_MAX + 1);
}

/* The stream does not process everything that arrives at once. */
static void stops_amid_a_flood_of_updates(void **state)
{
    (void)state;
    struct fixture fixture;
    struct tls_forger forger;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    fixture.sealed_bytes = 0;
    for (int i = 0; i < 5000; i++) {
        put_update(&fixture, &forger);
    }
    (void)feed(&fixture);
    (void)write_output(&fixture);
    assert_true(fixture.is_over);
    eb_scratch_expect(eb_tls_stream_reason(fixture.stream),
        "the peer sends too many TLS records without data (KeyUpdates and the like)");
    assert_in_range(fixture.sealed_bytes, 1, 40 * (ROW_MAX + 2));
    close_fixture(&fixture);
}

/* The handshake's last record is still unread when the updates arrive. */
static void stops_amid_updates_that_come_with_the_end_of_the_handshake(void **state)
{
    (void)state;
    struct fixture fixture;
    struct tls_forger forger;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    (void)SSL_do_handshake(fixture.client);
    (void)feed(&fixture);
    (void)write_output(&fixture);
    assert_int_equal(SSL_do_handshake(fixture.client), 1);
    assert_false(eb_tls_stream_is_ready(fixture.stream));
    fixture.sealed_bytes = 0;
    for (int i = 0; i < 1200; i++) {
        put_update(&fixture, &forger);
    }
    (void)feed(&fixture);
    (void)write_output(&fixture);
    assert_true(fixture.is_over);
    eb_scratch_expect(eb_tls_stream_reason(fixture.stream), "too many TLS records without data");
    assert_in_range(fixture.sealed_bytes, 1, 1000 + 40 * (ROW_MAX + 2));
    close_fixture(&fixture);
}

static void ends_without_memory_for_output(void **state)
{
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    fixture.lender.fail_at = 1;
    assert_false(shake_both_hands(&fixture));
    assert_true(fixture.is_over);
    close_fixture(&fixture);
    open_fixture(&fixture, false, tls_client_create(&scratch, "h2", NULL));
    assert_true(shake_both_hands(&fixture));
    assert_true(eb_send_queue_copy(fixture.queue, "answer", 6));
    fixture.lender.fail_at = fixture.lender.taken_count + 1;
    assert_false(eb_tls_stream_seal(fixture.stream, fixture.queue));
    eb_scratch_expect(eb_tls_stream_reason(fixture.stream), "no memory");
    close_fixture(&fixture);
}

EB_TEST_GROUP(tls_stream)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_whatever_the_portions_are),
        cmocka_unit_test(shakes_hands_in_steps_whatever_the_portions_are),
        cmocka_unit_test(keeps_the_end_of_a_handshake_that_fails_in_a_step),
        cmocka_unit_test(gives_output_back_to_where_it_came_from),
        cmocka_unit_test(reads_every_split_of_a_hello),
        cmocka_unit_test(seals_small_pieces_together_in_full_records),
        cmocka_unit_test(keeps_the_queue_until_hands_are_shaken),
        cmocka_unit_test(refuses_who_does_not_speak_h2),
        cmocka_unit_test(refuses_old_versions),
        cmocka_unit_test(refuses_plain_bytes),
        cmocka_unit_test(refuses_clients_without_a_certificate_that_it_trusts),
        cmocka_unit_test(tells_the_names_of_a_client),
        cmocka_unit_test(ends_with_bytes_that_were_changed),
        cmocka_unit_test(says_and_hears_that_nothing_follows),
        cmocka_unit_test(seals_nothing_for_a_peer_that_has_ended),
        cmocka_unit_test(is_held_up_by_a_message_that_does_not_end),
        cmocka_unit_test(does_not_renegotiate),
        cmocka_unit_test(bounds_output_that_a_peer_causes),
        cmocka_unit_test(ends_a_peer_that_updates_its_keys_again_and_again),
        cmocka_unit_test(takes_data_behind_as_many_updates_as_may_be),
        cmocka_unit_test(lets_a_peer_update_its_keys_now_and_then),
        cmocka_unit_test(ends_a_peer_whose_records_bring_no_data),
        cmocka_unit_test(ends_a_peer_that_hides_such_records_among_data),
        cmocka_unit_test(stops_amid_a_flood_of_updates),
        cmocka_unit_test(stops_amid_updates_that_come_with_the_end_of_the_handshake),
        cmocka_unit_test(ends_without_memory_for_output),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
