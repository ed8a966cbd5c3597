/* The files with which a client and its server authenticate each other. They are read once, when
 * the client is opened.
 * Thread: any; open credentials do not change. Memory: owns what it holds until closed. */
#pragma once

#include "client/embag.h"
#include "proto/grpc_headers.h"
#include "proto/net/address.h"

struct eb_tls_stream;
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

struct eb_credentials {
    struct ssl_ctx_st *tls;                   /* NULL: plain bytes */
    char server_name[EB_ENDPOINT_HOST_BYTES]; /* name that the server's certificate must have */
    char authorization[EB_GRPC_AUTHORIZATION_BYTES]; /* sent with each call; empty: none */
};

/* Returns false with *error set to INVALID_ARGUMENT, naming the file and what is wrong; then
 * nothing is open. */
bool eb_credentials_open(struct eb_credentials *credentials, const struct embag_access *access,
    const struct eb_endpoint *endpoint, struct eb_error *error);
/* Creates the TLS stream of a connection. Its first output is the client hello. The credentials
 * must have `tls`; they are borrowed for the call. The stream fails if the server does not speak
 * HTTP/2, or sends too many records without data, in a row or in proportion to its data. Returns
 * NULL if out of memory. */
struct eb_tls_stream *eb_credentials_start_tls(const struct eb_credentials *credentials);
/* Accepts a zeroed struct. */
void eb_credentials_close(struct eb_credentials *credentials);
