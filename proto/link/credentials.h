/* The files with which a client and its servers authenticate each other. They are read at start,
 * and again when they change (proto/link/credentials_watch.h).
 * Thread: one at a time. Memory: owns what it holds until closed. */
#pragma once

#include "proto/grpc_headers.h"
#include "proto/link/target.h"
#include "proto/net/file_watch.h"

struct eb_tls_stream;
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

#define EB_CREDENTIALS_TLS_FILES 3 /* CA, certificate, key */

/* Names of the files, borrowed, and what they are for. TLS is used if any of the TLS fields is
 * set. */
struct eb_access {
    bool tls; /* TLS even if no other TLS field is set */
    /* PEM file: the CAs that may vouch for the server; NULL: those of the system. */
    const char *tls_ca;
    const char *tls_cert;        /* PEM file: this client's certificate; NULL: none */
    const char *tls_key;         /* PEM file without a password: the certificate's key */
    const char *tls_server_name; /* name in the server's certificate; NULL: the address's host */
    const char *token_file;      /* its only line is sent with each call; NULL: none */
};

struct eb_credentials {
    struct ssl_ctx_st *tls; /* NULL: plain bytes */
    /* Stamps of the files that `tls` was read from; zeroes for those that are not used. */
    struct eb_watched_stamp tls_stamps[EB_CREDENTIALS_TLS_FILES];
    /* Name that each server's certificate must have; empty: the host of its address. */
    char server_name[EB_ENDPOINT_HOST_BYTES];
    char authorization[EB_GRPC_AUTHORIZATION_BYTES]; /* sent with each call; empty: none */
    /* Reason why files could not be read again, so that their former contents are in use; empty if
     * they could. */
    char stale_reason[EB_ERROR_TEXT_BYTES];
};

/* Which credentials have changed. */
struct eb_credentials_change {
    bool is_token_new;
    bool is_tls_new; /* a certificate, key or CA file has changed */
};

/* Adds the files of `access` to `files`, and then reads them. Returns false with *error set to
 * INVALID_ARGUMENT if one is not valid: the text names the file and what is wrong, and nothing is
 * open. */
bool eb_credentials_open(struct eb_credentials *credentials, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files, struct eb_error *error);
/* Adds the files to `files`, and then reads them again for eb_credentials_replace. If the files of
 * TLS are not valid, *fresh has only the token; if the token file is not valid, it has only the
 * certificates. fresh->stale_reason says why. */
void eb_credentials_reopen(struct eb_credentials *fresh, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files);
/* Replaces the contents of *credentials by what eb_credentials_reopen has read for the same access
 * and targets. Closes `fresh`. Connections that have begun keep the former certificates. Returns
 * which of them have changed: none if the files are the same as before, or not valid. */
struct eb_credentials_change eb_credentials_replace(
    struct eb_credentials *credentials, struct eb_credentials *fresh);
/* Creates the TLS stream of a connection to a host. Its first output is the client hello. Ignores a
 * dot at the end of `host`, which only keeps resolvers from trying other domains. The credentials
 * must have `tls`; they are borrowed for the call. The stream fails if the server does not speak
 * HTTP/2, or sends too many records without data, in a row or in proportion to its data. Returns
 * NULL if out of memory. */
struct eb_tls_stream *eb_credentials_start_tls(
    const struct eb_credentials *credentials, const char *host);
/* Accepts a zeroed struct. */
void eb_credentials_close(struct eb_credentials *credentials);
