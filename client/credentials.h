/* By what a client knows its server, and is known to it: files read once, when it is opened.
 * Thread: any; what is open does not change. Memory: owns what it holds until closed. */
#pragma once

#include "client/embag.h"
#include "proto/grpc_headers.h"
#include "proto/net/address.h"

struct eb_tls_stream;
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

struct eb_credentials {
    struct ssl_ctx_st *tls;                          /* NULL: plain bytes */
    char server_name[EB_ENDPOINT_HOST_BYTES];        /* that the server's certificate must have */
    char authorization[EB_GRPC_AUTHORIZATION_BYTES]; /* of each call; empty: none */
};

/* false: *error, INVALID_ARGUMENT, names the file and what is wrong; nothing is open. */
bool eb_credentials_open(struct eb_credentials *credentials, const struct embag_access *access,
    const struct eb_endpoint *endpoint, struct eb_error *error);
/* Creates the stream of a connection, whose hello is output; for credentials with tls, which are
 * borrowed for the call. The stream is refused if the server does not speak HTTP/2, or sends too
 * many records without data in a row or for what data it sends. NULL: no memory. */
struct eb_tls_stream *eb_credentials_start_tls(const struct eb_credentials *credentials);
/* Accepts zeroes. */
void eb_credentials_close(struct eb_credentials *credentials);
