/* Records of TLS 1.3 that no client of OpenSSL's sends, after a handshake that one has done.
 * Thread: the test's. Memory: the caller's. What fails fails the test. */
#pragma once

#include <openssl/ssl.h>
#include <stdint.h>

#define TLS_FORGER_SECRET_BYTES 32

struct tls_forger {
    SSL *client;
    uint8_t secret[TLS_FORGER_SECRET_BYTES]; /* the client's, once the handshake is done */
    uint64_t sent_count;                     /* records after the handshake */
};

/* Before the handshake of a client that tls_client_create has made: learns its secret, for which
 * it speaks one cipher. Kept by the client for its life. */
void tls_forger_init(struct tls_forger *forger, SSL *client);
/* A record of what the application says, in the client's own way; at most 16384 bytes. */
void tls_forger_send(struct tls_forger *forger, const void *bytes, size_t count);
/* A record of that type, with at most 15 bytes, which OpenSSL's client might not send. */
void tls_forger_put(struct tls_forger *forger, uint8_t type, const void *bytes, size_t count);
/* A record with the head of a KeyUpdate, and one with the rest of it, after which the client's keys
 * are of no use. Both wait with what else the client has to send. */
void tls_forger_begin_update(struct tls_forger *forger);
void tls_forger_end_update(struct tls_forger *forger);
