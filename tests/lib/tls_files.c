#include "tests/lib/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DAYS 10
#define DAY_S 86400
#define CA_NAME "authority"

/* ---- certificates ---- */

static void add_extension(X509 *certificate, int id, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, id, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void set_name(X509_NAME *name, const char *text)
{
    assert_int_equal(X509_NAME_add_entry_by_txt(
                         name, "CN", MBSTRING_UTF8, (const unsigned char *)text, -1, -1, 0),
        1);
}

static X509 *make_certificate(EVP_PKEY *key, const char *common_name, const char *issuer)
{
    static long serial;
    X509 *certificate = X509_new();
    assert_non_null(certificate);
    assert_int_equal(X509_set_version(certificate, X509_VERSION_3), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_S));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), DAYS * DAY_S + DAY_S / 2));
    assert_int_equal(X509_set_pubkey(certificate, key), 1);
    set_name(X509_get_subject_name(certificate), common_name);
    X509_NAME *name = X509_NAME_new();
    assert_non_null(name);
    set_name(name, issuer);
    assert_int_equal(X509_set_issuer_name(certificate, name), 1);
    X509_NAME_free(name);
    return certificate;
}

void tls_authority_init(struct tls_authority *authority)
{
    authority->key = EVP_EC_gen("P-256");
    assert_non_null(authority->key);
    authority->certificate = make_certificate(authority->key, CA_NAME, CA_NAME);
    add_extension(authority->certificate, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(authority->certificate, authority->key, EVP_sha256()) > 0);
}

void tls_authority_deinit(struct tls_authority *authority)
{
    EVP_PKEY_free(authority->key);
    X509_free(authority->certificate);
}

/* ---- files ---- */

static void write_bio(const struct eb_scratch *scratch, const char *name, BIO *pem)
{
    char *bytes;
    long size = BIO_get_mem_data(pem, &bytes);
    eb_scratch_write(scratch, name, bytes, (size_t)size);
    BIO_free(pem);
}

static void write_certificate(const struct eb_scratch *scratch, const char *name, X509 *certificate)
{
    BIO *pem = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(pem, certificate), 1);
    write_bio(scratch, name, pem);
}

void tls_authority_write(const struct tls_authority *authority, const struct eb_scratch *scratch)
{
    write_certificate(scratch, "ca.pem", authority->certificate);
}

/* Signs a certificate, writes it and its key, and frees both. */
static void sign_and_write(const struct tls_authority *authority, const struct eb_scratch *scratch,
    const char *name, X509 *certificate, EVP_PKEY *key)
{
    char file[64];
    assert_true(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
    snprintf(file, sizeof file, "%s.pem", name);
    write_certificate(scratch, file, certificate);
    BIO *pem = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL), 1);
    snprintf(file, sizeof file, "%s.key", name);
    write_bio(scratch, file, pem);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void tls_authority_issue(const struct tls_authority *authority, const struct eb_scratch *scratch,
    const char *name, const char *common_name, const char *names)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    X509 *certificate = make_certificate(key, common_name, CA_NAME);
    if (names) {
        add_extension(certificate, NID_subject_alt_name, names);
    }
    sign_and_write(authority, scratch, name, certificate, key);
}

void tls_authority_issue_for(const struct tls_authority *authority,
    const struct eb_scratch *scratch, const char *name, long from_day, long to_day)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    X509 *certificate = make_certificate(key, "someone", CA_NAME);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), from_day * DAY_S));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), to_day * DAY_S));
    sign_and_write(authority, scratch, name, certificate, key);
}

/* ---- clients ---- */

static void show(SSL *client, const struct eb_scratch *scratch, const char *name)
{
    char file[64];
    char path[EB_SCRATCH_PATH_BYTES];
    snprintf(file, sizeof file, "%s.pem", name);
    eb_scratch_path(scratch, file, path);
    assert_int_equal(SSL_use_certificate_file(client, path, SSL_FILETYPE_PEM), 1);
    snprintf(file, sizeof file, "%s.key", name);
    eb_scratch_path(scratch, file, path);
    assert_int_equal(SSL_use_PrivateKey_file(client, path, SSL_FILETYPE_PEM), 1);
}

SSL *tls_client_create(const struct eb_scratch *scratch, const char *protocol, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    unsigned char protocols[32];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    assert_non_null(context);
    eb_scratch_path(scratch, "ca.pem", path);
    assert_int_equal(SSL_CTX_load_verify_file(context, path), 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL *client = SSL_new(context);
    assert_non_null(client);
    SSL_CTX_free(context);
    if (protocol) {
        protocols[0] = (unsigned char)strlen(protocol);
        memcpy(protocols + 1, protocol, strlen(protocol));
        assert_int_equal(SSL_set_alpn_protos(client, protocols, protocols[0] + 1U), 0);
    }
    if (name) {
        show(client, scratch, name);
    }
    SSL_set_bio(client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(client), -1);
    SSL_set_connect_state(client);
    return client;
}
