/* What TLS needs on the server's side, certificate, key and whom to trust, as one thing that is
 * replaced as a whole: connections keep the one that they began with.
 * Thread: any; what is open does not change. Memory: on the heap until the last hold is dropped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_tls; /* opaque */
struct eb_memory;
struct eb_tls_stream;

struct eb_tls_options {
    const char *certificate_file; /* PEM: the server's, then those that lead to a root */
    const char *key_file;         /* PEM, not encrypted */
    const char *client_ca_file;   /* PEM: who may vouch for clients; NULL: they are not asked */
    bool is_client_optional;      /* a client without a certificate is served too */
    bool is_1_3_only;             /* else TLS 1.2 too */
};

/* Reads the files. The hold is the caller's. NULL: `why` names the file and what is wrong; a
 * certificate that has expired, or is not valid yet, is. */
struct eb_tls *eb_tls_open(const struct eb_tls_options *options, char *why, size_t why_bytes);
/* Accept NULL. hold returns its argument. */
struct eb_tls *eb_tls_hold(struct eb_tls *tls);
void eb_tls_drop(struct eb_tls *tls);

/* Whole days until the certificate expires; negative: it has. */
int64_t eb_tls_days_left(const struct eb_tls *tls);

/* When it does, in seconds since 1970; 0: it does not say. */
int64_t eb_tls_expiry_unix_s(const struct eb_tls *tls);

/* Creates the stream of a client that has connected (proto/net/tls_stream.h). It is refused if it
 * sends too many records without data in a row or in a minute. When it ends the stream the reason
 * is "". `memory` is borrowed for the stream's life. NULL: no memory. */
struct eb_tls_stream *eb_tls_accept(const struct eb_tls *tls, const struct eb_memory *memory);
