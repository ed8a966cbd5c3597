/* The TLS settings of the server: its certificate, its key and the authorities that it trusts. They
 * are replaced as a whole: a connection keeps the settings that it began with.
 * Thread: any; an open eb_tls does not change. Memory: on the heap until its last hold is gone. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_tls; /* opaque */
struct eb_memory;
struct eb_tls_stream;

struct eb_tls_options {
    const char *certificate_file; /* PEM: the server's, then the certificates that lead to a root */
    const char *key_file;         /* PEM, not encrypted */
    const char *client_ca_file; /* PEM: authorities for client certificates; NULL if clients are not
                                   asked for one */
    bool is_client_optional;    /* whether a client without a certificate is served too */
    bool is_1_3_only;           /* whether TLS 1.2 is refused */
};

/* Reads the files. The caller gets the only hold. Returns NULL with the file and the problem in
 * *failure. It is also a problem if a certificate has expired or is not valid yet. */
struct eb_tls *eb_tls_open(const struct eb_tls_options *options, struct eb_failure *failure);
/* Adds a hold and returns `tls`, which may be NULL. */
struct eb_tls *eb_tls_hold(struct eb_tls *tls);
/* Drops a hold. The last one frees `tls`. Accepts NULL. */
void eb_tls_drop(struct eb_tls *tls);

/* Returns the whole days until the certificate expires; negative if it has expired. */
int64_t eb_tls_days_left(const struct eb_tls *tls);

/* Returns the time at which the certificate expires, in seconds since 1970; 0 if that cannot be
 * read. */
int64_t eb_tls_expiry_unix_s(const struct eb_tls *tls);

/* Creates the stream of a client that has connected (proto/net/tls_stream.h). The client is refused
 * if it sends too many records without data, in a row or in a minute. The stream's reason is "" if
 * the client ends it. `memory` is borrowed for the stream's life. Returns NULL if out of memory. */
struct eb_tls_stream *eb_tls_accept(const struct eb_tls *tls, const struct eb_memory *memory);
