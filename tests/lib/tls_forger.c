#include "tests/lib/tls_forger.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CIPHER "TLS_AES_128_GCM_SHA256"
#define KEY_BYTES 16
#define NONCE_BYTES 12
#define TAG_BYTES 16
#define HEAD_BYTES 5
#define INNER_BYTES_MAX 16
#define HANDSHAKE 22
#define KEY_UPDATE 24

/* OpenSSL's key log callback: stores the peer's traffic secret and ignores other lines. Each line
 * is "NAME RANDOM SECRET", the latter two in hexadecimal. */
static void on_secret(const SSL *peer, const char *line)
{
    struct tls_forger *forger = SSL_get_app_data(peer);
    const char *name =
        SSL_is_server(peer) ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
    if (strncmp(line, name, strlen(name)) != 0) {
        return;
    }
    const char *digits = strrchr(line, ' ') + 1;
    assert_int_equal(strlen(digits), 2 * TLS_FORGER_SECRET_BYTES);
    for (size_t i = 0; i < TLS_FORGER_SECRET_BYTES; i++) {
        assert_int_equal(sscanf(digits + 2 * i, "%2hhx", &forger->secret[i]), 1);
    }
}

void tls_forger_init(struct tls_forger *forger, SSL *peer)
{
    *forger = (struct tls_forger){.peer = peer};
    assert_int_equal(SSL_set_min_proto_version(peer, TLS1_3_VERSION), 1);
    assert_int_equal(SSL_set_ciphersuites(peer, CIPHER), 1);
    assert_int_equal(SSL_set_app_data(peer, forger), 1);
    SSL_CTX_set_keylog_callback(SSL_get_SSL_CTX(peer), on_secret);
}

void tls_forger_send(struct tls_forger *forger, const void *bytes, size_t count)
{
    assert_int_equal(SSL_write(forger->peer, bytes, (int)count), count);
    forger->sent_count++;
}

/* HKDF-Expand-Label of RFC 8446, for outputs no longer than one HMAC. */
static void expand(const struct tls_forger *forger, const char *label, uint8_t *out, size_t count)
{
    uint8_t info[32];
    uint8_t hash[EVP_MAX_MD_SIZE];
    int size = snprintf((char *)info + 3, sizeof info - 3, "tls13 %s%c%c", label, 0, 1) + 3;
    info[0] = 0;
    info[1] = (uint8_t)count;
    info[2] = (uint8_t)(size - 5);
    assert_non_null(HMAC(
        EVP_sha256(), forger->secret, TLS_FORGER_SECRET_BYTES, info, (size_t)size, hash, NULL));
    memcpy(out, hash, count);
}

void tls_forger_put(struct tls_forger *forger, uint8_t type, const void *bytes, size_t count)
{
    uint8_t key[KEY_BYTES];
    uint8_t nonce[NONCE_BYTES];
    uint8_t inner[INNER_BYTES_MAX];
    uint8_t record[HEAD_BYTES + INNER_BYTES_MAX + TAG_BYTES] = {23, 3, 3, 0};
    int size = (int)count + 1;
    int done;
    assert_true(count < INNER_BYTES_MAX);
    memcpy(inner, bytes, count);
    inner[count] = type;
    record[4] = (uint8_t)(size + TAG_BYTES);
    expand(forger, "key", key, sizeof key);
    expand(forger, "iv", nonce, sizeof nonce);
    nonce[NONCE_BYTES - 1] ^= (uint8_t)forger->sent_count++;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    assert_non_null(cipher);
    assert_int_equal(EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, NULL, &done, record, HEAD_BYTES), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, record + HEAD_BYTES, &done, inner, size), 1);
    assert_int_equal(done, size);
    assert_int_equal(EVP_EncryptFinal_ex(cipher, record + HEAD_BYTES + size, &done), 1);
    assert_int_equal(
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, record + HEAD_BYTES + size),
        1);
    EVP_CIPHER_CTX_free(cipher);
    int total = HEAD_BYTES + size + TAG_BYTES;
    assert_int_equal(BIO_write(SSL_get_wbio(forger->peer), record, total), total);
}

void tls_forger_begin_update(struct tls_forger *forger)
{
    static const uint8_t head[] = {KEY_UPDATE, 0, 0, 1};
    tls_forger_put(forger, HANDSHAKE, head, sizeof head);
}

void tls_forger_end_update(struct tls_forger *forger)
{
    static const uint8_t not_requested[] = {0};
    tls_forger_put(forger, HANDSHAKE, not_requested, sizeof not_requested);
}
