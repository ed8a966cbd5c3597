/* Creates certificates for tests with OpenSSL, writes them as PEM files, and creates the client's
 * end of a TLS connection in memory.
 * Thread: the test's. Memory: the caller must free it. A call that fails also fails the test. */
#pragma once

#include "tests/lib/scratch.h"

#include <openssl/ssl.h>

/* A certificate authority. */
struct tls_authority {
    EVP_PKEY *key;
    X509 *certificate;
};

void tls_authority_init(struct tls_authority *authority);
void tls_authority_deinit(struct tls_authority *authority);

/* Writes the authority's certificate to ca.pem. */
void tls_authority_write(const struct tls_authority *authority, const struct eb_scratch *scratch);
/* Writes NAME.pem and NAME.key: a certificate for `common_name`, with the subjectAltName `names` in
 * OpenSSL's configuration syntax (NULL: no subjectAltName). */
void tls_authority_issue(const struct tls_authority *authority, const struct eb_scratch *scratch,
    const char *name, const char *common_name, const char *names);
/* Does the same as tls_authority_issue, with a certificate that is valid from `from_day` to
 * `to_day`, in days from now. */
void tls_authority_issue_for(const struct tls_authority *authority,
    const struct eb_scratch *scratch, const char *name, long from_day, long to_day);

/* Returns a client that trusts ca.pem of the scratch directory, requests `protocol` by ALPN (NULL:
 * none) and presents NAME.pem (NULL: no certificate). It reads from and writes to memory BIOs. Free
 * it with SSL_free. */
SSL *tls_client_create(const struct eb_scratch *scratch, const char *protocol, const char *name);
