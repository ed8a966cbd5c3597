/* Forges records of TLS 1.3 that OpenSSL does not send, on behalf of an OpenSSL client or server.
 * Thread: the test's. Memory: the caller's. A call that fails also fails the test. */
#pragma once

#include <openssl/ssl.h>
#include <stdint.h>

#define TLS_FORGER_SECRET_BYTES 32

struct tls_forger {
    SSL *peer;
    uint8_t secret[TLS_FORGER_SECRET_BYTES]; /* the peer's traffic secret, set by the handshake */
    uint64_t sent_count;                     /* records sent with keys from that secret */
};

/* Prepares `peer`, before its handshake, to store its secret in `forger`, and limits it to one
 * cipher. The peer keeps `forger`. */
void tls_forger_init(struct tls_forger *forger, SSL *peer);
/* Sends one record of application data, at most 16384 bytes, through the peer. */
void tls_forger_send(struct tls_forger *forger, const void *bytes, size_t count);
/* Sends a forged record of any type with at most 15 bytes. */
void tls_forger_put(struct tls_forger *forger, uint8_t type, const void *bytes, size_t count);
/* Send a KeyUpdate split into two records: begin_update sends its head, and end_update the rest.
 * After that the forger's keys are no longer valid. Both records are queued with the peer's other
 * output. */
void tls_forger_begin_update(struct tls_forger *forger);
void tls_forger_end_update(struct tls_forger *forger);
