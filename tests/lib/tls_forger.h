/* Records of TLS 1.3 that OpenSSL does not send, from a client or a server of its own.
 * Thread: the test's. Memory: the caller's. What fails fails the test. */
#pragma once

#include <openssl/ssl.h>
#include <stdint.h>

#define TLS_FORGER_SECRET_BYTES 32

struct tls_forger {
    SSL *peer;
    uint8_t secret[TLS_FORGER_SECRET_BYTES]; /* the peer's, once it has its keys for data */
    uint64_t sent_count;                     /* records with those keys */
};

/* Before the handshake of `peer`: learns its secret, for which it speaks one cipher. Kept by the
 * peer for its life. */
void tls_forger_init(struct tls_forger *forger, SSL *peer);
/* A record of what the application says, in the peer's own way; at most 16384 bytes. */
void tls_forger_send(struct tls_forger *forger, const void *bytes, size_t count);
/* A record of that type, with at most 15 bytes, which OpenSSL might not send. */
void tls_forger_put(struct tls_forger *forger, uint8_t type, const void *bytes, size_t count);
/* A record with the head of a KeyUpdate, and one with the rest of it, after which the peer's keys
 * are of no use. Both wait with what else the peer has to send. */
void tls_forger_begin_update(struct tls_forger *forger);
void tls_forger_end_update(struct tls_forger *forger);
