/* By what a client knows its server, and is known to it: files read once, when it is opened.
 * Thread: any; what is open does not change. Memory: owns what it holds until closed. */
#pragma once

#include "client/embag.h"
#include "proto/grpc_headers.h"
#include "proto/net/address.h"

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

struct eb_credentials {
    struct ssl_ctx_st *tls;                          /* NULL: plain bytes */
    char server_name[EB_ENDPOINT_HOST_BYTES];        /* that the server's certificate must have */
    char authorization[EB_GRPC_AUTHORIZATION_BYTES]; /* of each call; empty: none */
};

/* false: *error, INVALID_ARGUMENT, names the file and what is wrong; nothing is open. */
bool eb_credentials_open(struct eb_credentials *credentials, const struct embag_access *access,
    const struct eb_endpoint *endpoint, struct eb_error *error);
/* Accepts zeroes. */
void eb_credentials_close(struct eb_credentials *credentials);
