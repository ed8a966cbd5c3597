#include "server/net/tls.h"

#include "proto/net/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ciphers that HTTP/2 allows in TLS 1.2. Both lists begin with the cheapest on processors that have
 * AES instructions. */
#define CIPHERS_1_2                                                                                \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"     \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define CIPHERS_1_3 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

/* The limits on records without data. Clients have reason to send such records only a few times in
 * a connection's life. */
static const struct eb_tls_side server_side = {
    .idle_row_max = 32,
    .idle_max = 100,
    .idle_period_ms = 60000,
    .idle_reason = "the peer sends too many TLS records without data (KeyUpdates and the like)",
    .ended_reason = "",
    .no_memory_reason = "no memory for the data to be sent (receive_memory_bytes)",
};

struct eb_tls {
    SSL_CTX *context;
    atomic_uint holds;
};

/* Sets *failure to `what`, with the reason from OpenSSL. Always returns false. */
static bool refuse_tls(struct eb_failure *failure, const char *file, const char *what)
{
    unsigned long code = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    eb_failure_set(failure, "%s: %s%s%s", file, what, reason ? ": " : "", reason ? reason : "");
    ERR_clear_error();
    return false;
}

/* ---- rules ---- */

/* Refuses a client that offers no application protocols (ALPN): OpenSSL would not call on_protocols
 * for it. */
static int on_hello(SSL *ssl, int *alert, void *context)
{
    const unsigned char *names;
    size_t bytes;
    (void)context;
    if (SSL_client_hello_get0_ext(
            ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &names, &bytes)) {
        return SSL_CLIENT_HELLO_SUCCESS;
    }
    ERR_raise(ERR_LIB_SSL, SSL_R_NO_APPLICATION_PROTOCOL);
    *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
    return SSL_CLIENT_HELLO_ERROR;
}

static int on_protocols(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
    const unsigned char *offered, unsigned offered_bytes, void *context)
{
    static const unsigned char ours[] = {2, 'h', '2'};
    (void)ssl;
    (void)context;
    return SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_bytes, ours, sizeof ours,
               offered, offered_bytes) == OPENSSL_NPN_NEGOTIATED
               ? SSL_TLSEXT_ERR_OK
               : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Supplies an empty password for an encrypted key. OpenSSL would otherwise ask on the terminal. */
static int on_tls_password(char *out, int out_bytes, int is_writing, void *context)
{
    (void)out;
    (void)out_bytes;
    (void)is_writing;
    (void)context;
    return 0;
}

/* Sets the rules of all connections. Sessions are resumed with tickets, since peers could fill a
 * cache of sessions on this side. */
static bool set_tls_rules(SSL_CTX *context, const struct eb_tls_options *options)
{
    static const unsigned char session_context[] = "embagd";
    SSL_CTX_set_options(
        context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_client_hello_cb(context, on_hello, NULL);
    SSL_CTX_set_alpn_select_cb(context, on_protocols, NULL);
    SSL_CTX_set_default_passwd_cb(context, on_tls_password);
    return SSL_CTX_set_min_proto_version(
               context, options->is_1_3_only ? TLS1_3_VERSION : TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(context, CIPHERS_1_2) == 1 &&
           SSL_CTX_set_ciphersuites(context, CIPHERS_1_3) == 1 &&
           SSL_CTX_set_session_id_context(context, session_context, sizeof session_context - 1) ==
               1;
}

/* ---- files ---- */

/* Returns whether the file is a regular one. Opening another kind, such as a FIFO, could block for
 * ever. */
static bool is_file(const char *file, struct eb_failure *failure)
{
    struct stat status;
    if (stat(file, &status) == 0 && !S_ISREG(status.st_mode)) {
        return refuse_tls(failure, file, "is not a regular file");
    }
    return true; /* If stat fails, reading the file fails too, and gives the reason. */
}

/* Checks that the certificate is valid now: clients refuse it otherwise. */
static bool check_time(const X509 *certificate, const char *file, struct eb_failure *failure)
{
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
        return refuse_tls(failure, file, "the certificate has expired; put a new one in its place");
    }
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
        return refuse_tls(
            failure, file, "the certificate is not valid yet; wait, or check this machine's clock");
    }
    return true;
}

static bool load_own(
    SSL_CTX *context, const struct eb_tls_options *options, struct eb_failure *failure)
{
    if (!is_file(options->certificate_file, failure) || !is_file(options->key_file, failure)) {
        return false;
    }
    if (SSL_CTX_use_certificate_chain_file(context, options->certificate_file) != 1) {
        return refuse_tls(
            failure, options->certificate_file, "cannot be read as certificates in PEM");
    }
    if (SSL_CTX_use_PrivateKey_file(context, options->key_file, SSL_FILETYPE_PEM) != 1) {
        return refuse_tls(failure, options->key_file,
            "cannot be used as the certificate's key, in PEM and without a password");
    }
    return check_time(SSL_CTX_get0_certificate(context), options->certificate_file, failure);
}

static bool load_clients(
    SSL_CTX *context, const struct eb_tls_options *options, struct eb_failure *failure)
{
    const char *file = options->client_ca_file;
    if (!file) {
        return true;
    }
    if (!is_file(file, failure)) {
        return false;
    }
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(file);
    if (!names || SSL_CTX_load_verify_file(context, file) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse_tls(failure, file, "cannot be read as certificates in PEM");
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context,
        SSL_VERIFY_PEER | (options->is_client_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
        NULL);
    return true;
}

/* ---- life ---- */

struct eb_tls *eb_tls_open(const struct eb_tls_options *options, struct eb_failure *failure)
{
    struct eb_tls *tls = calloc(1, sizeof *tls);
    ERR_clear_error();
    if (!tls) {
        refuse_tls(failure, "TLS", "out of memory");
        return NULL;
    }
    atomic_init(&tls->holds, 1);
    tls->context = SSL_CTX_new(TLS_server_method());
    if (!tls->context || !set_tls_rules(tls->context, options)) {
        refuse_tls(failure, "TLS", "OpenSSL cannot be used");
    } else if (load_own(tls->context, options, failure) &&
               load_clients(tls->context, options, failure)) {
        return tls;
    }
    eb_tls_drop(tls);
    return NULL;
}

struct eb_tls *eb_tls_hold(struct eb_tls *tls)
{
    if (tls) {
        atomic_fetch_add_explicit(&tls->holds, 1, memory_order_relaxed);
    }
    return tls;
}

void eb_tls_drop(struct eb_tls *tls)
{
    if (tls && atomic_fetch_sub_explicit(&tls->holds, 1, memory_order_acq_rel) == 1) {
        SSL_CTX_free(tls->context);
        free(tls);
    }
}

int64_t eb_tls_days_left(const struct eb_tls *tls)
{
    int days = 0;
    int seconds = 0;
    const X509 *certificate = SSL_CTX_get0_certificate(tls->context);
    if (ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate)) != 1) {
        return 0;
    }
    return seconds < 0 ? (int64_t)days - 1 : days;
}

int64_t eb_tls_expiry_unix_s(const struct eb_tls *tls)
{
    struct tm end;
    const X509 *certificate = SSL_CTX_get0_certificate(tls->context);
    return ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1 ? timegm(&end) : 0;
}

struct eb_tls_stream *eb_tls_accept(const struct eb_tls *tls, const struct eb_memory *memory)
{
    return eb_tls_stream_create(&server_side, tls->context, NULL, memory);
}
