/* Certificates for tests, made anew by OpenSSL and written as PEM files, and the client's side of a
 * connection in memory.
 * Thread: the test's. Memory: the caller's to give back. What fails fails the test. */
#pragma once

#include "tests/lib/scratch.h"

#include <openssl/ssl.h>

/* One who vouches for others. */
struct tls_authority {
    EVP_PKEY *key;
    X509 *certificate;
};

void tls_authority_init(struct tls_authority *authority);
void tls_authority_deinit(struct tls_authority *authority);

/* Writes ca.pem. */
void tls_authority_write(const struct tls_authority *authority, const struct eb_scratch *scratch);
/* Writes NAME.pem and NAME.key: a certificate of `common_name`, with `names`, as OpenSSL's
 * subjectAltName is configured; NULL: without. */
void tls_authority_issue(const struct tls_authority *authority, const struct eb_scratch *scratch,
    const char *name, const char *common_name, const char *names);
/* Likewise, good from so many days from now until so many. */
void tls_authority_issue_for(const struct tls_authority *authority,
    const struct eb_scratch *scratch, const char *name, long from_day, long to_day);

/* A client that trusts the scratch's ca.pem, asks for `protocol` (NULL: for none) and shows
 * NAME.pem (NULL: nothing); freed by SSL_free. Its bytes are in memory. */
SSL *tls_client_create(const struct eb_scratch *scratch, const char *protocol, const char *name);
