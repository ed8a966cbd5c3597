#include "client/tls_link.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_BYTES 131072
/* Of output that has not been taken; then nothing more is encrypted. */
#define OUTPUT_BYTES_FULL (OUTPUT_BYTES - EB_TLS_LINK_PLAIN_BYTES)
#define PIECES_MAX 64 /* of the queue that are looked at for one record */

/* Limits on records that carry no data, mostly KeyUpdates. OpenSSL processes these by itself; one
 * of some 28 bytes costs 19 us. The first limit is on records in a row without data, the second on
 * all of them, less one for each DATA_BYTES_PER_IDLE_RECORD bytes of data. */
#define IDLE_RECORDS_IN_ROW_MAX 32u
#define IDLE_RECORDS_MAX 100u
#define DATA_BYTES_PER_IDLE_RECORD 65536u

struct eb_tls_link {
    SSL *ssl;
    BIO *in;               /* the SSL's */
    BIO *out;              /* the SSL's */
    uint64_t data_bytes;   /* read, since the last of them earned a record */
    uint32_t row_count;    /* records since data, its own included */
    uint32_t record_count; /* records that are no data by their type, and not earned by data */
    bool is_ready;
    bool is_over;
    char reason[160];
    uint8_t output[OUTPUT_BYTES];
};

static bool fail_link(struct eb_tls_link *link, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_error());
    long verified = SSL_get_verify_result(link->ssl);
    if (verified != X509_V_OK) {
        why = X509_verify_cert_error_string(verified);
    }
    link->is_over = true;
    snprintf(link->reason, sizeof link->reason, "%s%s%s", what, why ? ": " : "", why ? why : "");
    ERR_clear_error();
    return false;
}

/* ---- records that bring no data ---- */

/* Called by OpenSSL with the head of each record, and in TLS 1.3 also with its encrypted type. */
static void on_link_record(int is_sent, int version, int content_type, const void *bytes,
    size_t count, SSL *ssl, void *context)
{
    struct eb_tls_link *link = context;
    const bool is_head = content_type == SSL3_RT_HEADER;
    /* Records that come together with the handshake's last one count too. */
    const bool is_ready = link->is_ready || SSL_is_init_finished(ssl);
    (void)version;
    if (is_sent == 0 && is_ready && count > 0 &&
        (is_head || content_type == SSL3_RT_INNER_CONTENT_TYPE)) {
        link->row_count += is_head;
        link->record_count += *(const uint8_t *)bytes != SSL3_RT_APPLICATION_DATA;
    }
}

static void count_data(struct eb_tls_link *link, size_t count)
{
    link->row_count = 0;
    link->data_bytes += count;
    if (link->data_bytes >= DATA_BYTES_PER_IDLE_RECORD) {
        link->data_bytes = 0;
        link->record_count -= link->record_count > 0;
    }
}

static bool is_idling(const struct eb_tls_link *link)
{
    /* The last of the row may be data: its head does not tell. */
    return link->row_count > IDLE_RECORDS_IN_ROW_MAX + 1 || link->record_count > IDLE_RECORDS_MAX;
}

/* ---- life ---- */

/* The name or address that the server's certificate must have; names are told to the server. */
static bool expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, name) == 1) {
        return true;
    }
    ERR_clear_error();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static bool open_session(struct eb_tls_link *link, const struct eb_credentials *credentials)
{
    link->ssl = SSL_new(credentials->tls);
    link->in = BIO_new(BIO_s_mem());
    link->out = BIO_new(BIO_s_mem());
    if (!link->ssl || !link->in || !link->out) {
        BIO_free(link->in);
        BIO_free(link->out);
        return false;
    }
    /* Nothing there is not the end. */
    BIO_set_mem_eof_return(link->in, -1);
    SSL_set_bio(link->ssl, link->in, link->out);
    SSL_set_connect_state(link->ssl);
    SSL_set_msg_callback(link->ssl, on_link_record);
    SSL_set_msg_callback_arg(link->ssl, link);
    return expect_name(link->ssl, credentials->server_name);
}

struct eb_tls_link *eb_tls_link_create(const struct eb_credentials *credentials)
{
    struct eb_tls_link *link = calloc(1, sizeof *link);
    ERR_clear_error();
    if (!link || !open_session(link, credentials)) {
        ERR_clear_error();
        eb_tls_link_destroy(link);
        return NULL;
    }
    (void)SSL_do_handshake(link->ssl);
    return link;
}

void eb_tls_link_destroy(struct eb_tls_link *link)
{
    if (link) {
        SSL_free(link->ssl);
        free(link);
    }
}

/* ---- reading ---- */

bool eb_tls_link_feed(struct eb_tls_link *link, const uint8_t *bytes, size_t count)
{
    return BIO_write(link->in, bytes, (int)count) == (int)count;
}

/* A server that picks no protocol would be taken for one of HTTP/1.1. */
static bool check_ready(struct eb_tls_link *link)
{
    const unsigned char *protocol = NULL;
    unsigned bytes = 0;
    if (link->is_ready || !SSL_is_init_finished(link->ssl)) {
        return true;
    }
    SSL_get0_alpn_selected(link->ssl, &protocol, &bytes);
    link->is_ready = bytes == 2 && memcmp(protocol, "h2", 2) == 0;
    return link->is_ready || fail_link(link, "TLS: the server does not speak HTTP/2");
}

int eb_tls_link_read(struct eb_tls_link *link, uint8_t *out)
{
    if (link->is_over) {
        return -1;
    }
    ERR_clear_error();
    int got = SSL_read(link->ssl, out, EB_TLS_LINK_PLAIN_BYTES);
    int code = got > 0 ? SSL_ERROR_NONE : SSL_get_error(link->ssl, got);
    if (is_idling(link)) {
        ERR_clear_error();
        fail_link(
            link, "TLS: the server sends too many records without data (KeyUpdates and the like)");
        return -1;
    }
    if (got > 0) {
        count_data(link, (size_t)got);
    }
    if (code == SSL_ERROR_ZERO_RETURN) {
        fail_link(link, "closed by the server");
        return -1;
    }
    if (code != SSL_ERROR_NONE && code != SSL_ERROR_WANT_READ) {
        fail_link(link, SSL_is_init_finished(link->ssl) ? "TLS" : "TLS handshake");
        return -1;
    }
    if (!check_ready(link)) {
        return -1;
    }
    return got > 0 ? got : 0;
}

/* ---- writing ---- */

/* The first bytes of the queue, at most a record's. */
static size_t gather_link_records(const struct eb_send_queue *queue, uint8_t *record)
{
    struct iovec pieces[PIECES_MAX];
    size_t piece_count = eb_send_queue_peek(queue, pieces, PIECES_MAX);
    size_t count = 0;
    for (size_t i = 0; i < piece_count && count < EB_TLS_LINK_PLAIN_BYTES; i++) {
        size_t room = EB_TLS_LINK_PLAIN_BYTES - count;
        size_t bytes = pieces[i].iov_len < room ? pieces[i].iov_len : room;
        memcpy(record + count, pieces[i].iov_base, bytes);
        count += bytes;
    }
    return count;
}

bool eb_tls_link_seal(struct eb_tls_link *link, struct eb_send_queue *queue)
{
    uint8_t record[EB_TLS_LINK_PLAIN_BYTES];
    while (!link->is_over && eb_send_queue_bytes(queue) > 0 &&
           BIO_ctrl_pending(link->out) < OUTPUT_BYTES_FULL) {
        size_t count = gather_link_records(queue, record);
        ERR_clear_error();
        if (SSL_write(link->ssl, record, (int)count) != (int)count) {
            return fail_link(link, "TLS cannot send");
        }
        eb_send_queue_drop(queue, count);
    }
    return !link->is_over;
}

void eb_tls_link_end(struct eb_tls_link *link)
{
    if (link->is_ready && !link->is_over) {
        ERR_clear_error();
        (void)SSL_shutdown(link->ssl); /* 0: said, and the server has not yet. */
    }
}

const uint8_t *eb_tls_link_take_output(struct eb_tls_link *link, size_t *count)
{
    int got = BIO_read(link->out, link->output, sizeof link->output);
    *count = got > 0 ? (size_t)got : 0;
    return link->output;
}

bool eb_tls_link_is_ready(const struct eb_tls_link *link)
{
    return link->is_ready;
}

const char *eb_tls_link_reason(const struct eb_tls_link *link)
{
    return link->reason;
}
