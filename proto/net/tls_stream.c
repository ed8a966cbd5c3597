#include "proto/net/tls_stream.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_OVERHEAD_BYTES 256 /* most overhead of one record */
#define OUTPUT_BYTES_MIN 4096     /* smallest capacity, mostly for a handshake's messages */
#define PIECES_MAX 64             /* most pieces of the queue that are gathered for one record */

struct output {
    const struct eb_memory *memory; /* where the bytes came from */
    uint8_t *bytes;                 /* NULL: none */
    size_t count;
    size_t capacity;
};

struct eb_tls_stream {
    SSL *ssl;
    BIO_METHOD *method;
    const struct eb_tls_side *side;
    const struct eb_memory *memory;
    const uint8_t *input; /* bytes that were fed and are not decrypted yet */
    size_t input_bytes;
    struct output filling;
    struct output writing;
    uint64_t period_ms;  /* time when the period in which records are counted began */
    uint64_t data_bytes; /* bytes read since they last earned a record */
    uint32_t row_count;  /* records since data came or the period began; the last one may be data */
    uint32_t idle_count; /* records whose type is not data, not counting forgiven ones */
    bool is_idling;      /* idle_row_max or idle_max was exceeded */
    bool has_begun;
    bool is_ready;   /* the handshake was done; set from what OpenSSL reports between messages */
    bool is_checked; /* the handshake is done and the right protocol was chosen */
    bool is_over;
    char reason[160];
};

/* ---- output ---- */

static void give_output(struct output *output)
{
    if (output->bytes) {
        output->memory->give(output->memory->context, output->bytes, output->capacity);
    }
    *output = (struct output){0};
}

/* Makes room for `bytes` more bytes of output. Returns false if out of memory, or if the output
 * would exceed its limit. */
static bool reserve_output(struct eb_tls_stream *stream, size_t bytes)
{
    struct output *output = &stream->filling;
    size_t capacity = output->capacity > 0 ? output->capacity : OUTPUT_BYTES_MIN;
    if (bytes > EB_TLS_OUTPUT_BYTES_MAX - output->count) {
        return false;
    }
    while (capacity - output->count < bytes) {
        capacity *= 2;
    }
    if (capacity == output->capacity) {
        return true;
    }
    uint8_t *larger = stream->memory->take(stream->memory->context, capacity);
    if (!larger) {
        return false;
    }
    size_t count = output->count;
    if (count > 0) {
        memcpy(larger, output->bytes, count);
    }
    give_output(output);
    *output = (struct output){stream->memory, larger, count, capacity};
    return true;
}

/* ---- OpenSSL's source and sink ---- */

static int on_bio_read(BIO *bio, char *out, int out_bytes)
{
    struct eb_tls_stream *stream = BIO_get_data(bio);
    size_t count = (size_t)out_bytes;
    BIO_clear_retry_flags(bio);
    if (stream->is_idling) {
        return -1; /* otherwise SSL_read would continue with the next record */
    }
    if (stream->input_bytes == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    if (count > stream->input_bytes) {
        count = stream->input_bytes;
    }
    memcpy(out, stream->input, count);
    stream->input += count;
    stream->input_bytes -= count;
    return (int)count;
}

static int on_bio_write(BIO *bio, const char *bytes, int count)
{
    struct eb_tls_stream *stream = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!reserve_output(stream, (size_t)count)) {
        return -1;
    }
    memcpy(stream->filling.bytes + stream->filling.count, bytes, (size_t)count);
    stream->filling.count += (size_t)count;
    return count;
}

static long on_bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Returns NULL if out of memory. */
static BIO *create_bio(struct eb_tls_stream *stream)
{
    stream->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "eb_tls_stream");
    if (!stream->method || BIO_meth_set_read(stream->method, on_bio_read) != 1 ||
        BIO_meth_set_write(stream->method, on_bio_write) != 1 ||
        BIO_meth_set_ctrl(stream->method, on_bio_control) != 1) {
        return NULL;
    }
    BIO *bio = BIO_new(stream->method);
    if (bio) {
        BIO_set_data(bio, stream);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- records that bring no data ---- */

/* Called by OpenSSL with the head of each record, and in TLS 1.3 also with its encrypted type. */
static void on_stream_record(int is_sent, int version, int content_type, const void *bytes,
    size_t count, SSL *ssl, void *context)
{
    struct eb_tls_stream *stream = context;
    bool is_head = content_type == SSL3_RT_HEADER;
    (void)version;
    if (is_sent || count == 0 || (!is_head && content_type != SSL3_RT_INNER_CONTENT_TYPE)) {
        return;
    }
    /* Records that come together with the handshake's last one count too. */
    stream->is_ready = stream->is_ready || SSL_is_init_finished(ssl);
    if (!stream->is_ready) {
        return;
    }
    stream->row_count += is_head;
    stream->idle_count += *(const uint8_t *)bytes != SSL3_RT_APPLICATION_DATA;
    /* One record more is allowed, because the last record of the row may be data, and a record's
     * head does not show that. */
    stream->is_idling = stream->row_count > stream->side->idle_row_max + 1 ||
                        stream->idle_count > stream->side->idle_max;
}

static void let_time_pass(struct eb_tls_stream *stream, uint64_t now_ms)
{
    uint32_t period_ms = stream->side->idle_period_ms;
    if (period_ms > 0 && now_ms - stream->period_ms >= period_ms) {
        stream->period_ms = now_ms;
        stream->row_count = 0;
        stream->idle_count = 0;
    }
}

static void count_data(struct eb_tls_stream *stream, size_t count)
{
    uint32_t price = stream->side->idle_price_bytes;
    stream->row_count = 0;
    stream->data_bytes += count;
    if (price > 0 && stream->data_bytes >= price) {
        stream->data_bytes = 0;
        stream->idle_count -= stream->idle_count > 0;
    }
}

/* ---- life ---- */

/* Sets the name or address that the server's certificate must have. A name is also sent to the
 * server. */
static bool expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, name) == 1) {
        return true;
    }
    ERR_clear_error();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

/* Outputs the client's hello. Returns false if out of memory. */
static bool begin_as_client(struct eb_tls_stream *stream, const char *server_name)
{
    SSL_set_connect_state(stream->ssl);
    if (!expect_name(stream->ssl, server_name)) {
        return false;
    }
    stream->has_begun = true;
    return SSL_get_error(stream->ssl, SSL_do_handshake(stream->ssl)) == SSL_ERROR_WANT_READ;
}

static bool open_session(
    struct eb_tls_stream *stream, struct ssl_ctx_st *context, const char *server_name)
{
    stream->ssl = SSL_new(context);
    BIO *bio = stream->ssl ? create_bio(stream) : NULL;
    if (!bio) {
        return false;
    }
    SSL_set_bio(stream->ssl, bio, bio);
    SSL_set_msg_callback(stream->ssl, on_stream_record);
    SSL_set_msg_callback_arg(stream->ssl, stream);
    if (server_name) {
        return begin_as_client(stream, server_name);
    }
    SSL_set_accept_state(stream->ssl);
    return true;
}

struct eb_tls_stream *eb_tls_stream_create(const struct eb_tls_side *side,
    struct ssl_ctx_st *context, const char *server_name, const struct eb_memory *memory)
{
    struct eb_tls_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        return NULL;
    }
    stream->side = side;
    stream->memory = memory;
    ERR_clear_error();
    if (!open_session(stream, context, server_name)) {
        ERR_clear_error();
        eb_tls_stream_destroy(stream);
        return NULL;
    }
    return stream;
}

void eb_tls_stream_destroy(struct eb_tls_stream *stream)
{
    if (!stream) {
        return;
    }
    SSL_free(stream->ssl);
    BIO_meth_free(stream->method);
    give_output(&stream->filling);
    give_output(&stream->writing);
    free(stream);
}

/* ---- reading ---- */

/* Ends the stream. The reason is `what`, followed by OpenSSL's reason if it has one. Always returns
 * -1. */
static int fail_stream(struct eb_tls_stream *stream, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_error());
    long verified = SSL_get_verify_result(stream->ssl);
    if (verified != X509_V_OK) {
        why = X509_verify_cert_error_string(verified);
    }
    stream->is_over = true;
    stream->input_bytes = 0;
    snprintf(
        stream->reason, sizeof stream->reason, "%s%s%s", what, why ? ": " : "", why ? why : "");
    ERR_clear_error();
    return -1;
}

/* Ends the stream with `reason` alone: OpenSSL has nothing to add. Always returns -1. */
static int end_stream(struct eb_tls_stream *stream, const char *reason)
{
    ERR_clear_error();
    stream->is_over = true;
    stream->input_bytes = 0;
    snprintf(stream->reason, sizeof stream->reason, "%s", reason);
    return -1;
}

void eb_tls_stream_feed(
    struct eb_tls_stream *stream, const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    let_time_pass(stream, now_ms);
    stream->input = bytes;
    stream->input_bytes = stream->is_over ? 0 : count;
    if (!stream->has_begun && count > 0) {
        stream->has_begun = true;
        if (bytes[0] != EB_TLS_HANDSHAKE_RECORD) {
            end_stream(stream, "the peer sent plain text to a TLS port");
        }
    }
}

/* Returns whether the next record can be written: no TLS message is incomplete. */
static bool can_write(const struct eb_tls_stream *stream)
{
    return SSL_is_init_finished(stream->ssl);
}

/* Returns false if the handshake is done but HTTP/2 was not chosen. Servers choose the protocol or
 * refuse the connection. A server that chooses none is assumed to speak HTTP/1.1. */
static bool check_protocol(struct eb_tls_stream *stream)
{
    const unsigned char *protocol = NULL;
    unsigned bytes = 0;
    if (stream->is_checked || !stream->is_ready) {
        return true;
    }
    SSL_get0_alpn_selected(stream->ssl, &protocol, &bytes);
    stream->is_checked = bytes == 2 && memcmp(protocol, "h2", 2) == 0;
    return stream->is_checked;
}

/* Ends the stream if OpenSSL's result `got` is an error. Returns 0 if OpenSSL wants more bytes,
 * otherwise -1. */
static int check_result(struct eb_tls_stream *stream, int got)
{
    if (stream->is_idling) {
        return end_stream(stream, stream->side->idle_reason);
    }
    switch (SSL_get_error(stream->ssl, got)) {
    case SSL_ERROR_WANT_READ: return 0;
    case SSL_ERROR_ZERO_RETURN: return end_stream(stream, stream->side->ended_reason);
    default: return fail_stream(stream, stream->is_ready ? "TLS" : "TLS handshake");
    }
}

void eb_tls_stream_handshake(struct eb_tls_stream *stream)
{
    if (stream->is_over || stream->is_ready) {
        return;
    }
    ERR_clear_error();
    int done = SSL_do_handshake(stream->ssl);
    if (done != 1) {
        (void)check_result(stream, done); /* The stream keeps its end. */
    }
}

int eb_tls_stream_read(struct eb_tls_stream *stream, uint8_t *out, size_t out_bytes)
{
    if (stream->is_over) {
        return -1;
    }
    assert(out_bytes >= EB_TLS_RECORD_BYTES && out_bytes <= INT32_MAX);
    ERR_clear_error();
    int got = SSL_read(stream->ssl, out, (int)out_bytes);
    stream->is_ready = stream->is_ready || can_write(stream);
    if (!check_protocol(stream)) {
        return fail_stream(stream, "TLS: the server does not offer HTTP/2");
    }
    if (got > 0) {
        count_data(stream, (size_t)got);
        return got;
    }
    return check_result(stream, got);
}

void eb_tls_stream_set_memory(struct eb_tls_stream *stream, const struct eb_memory *memory)
{
    stream->memory = memory;
}

/* ---- writing ---- */

/* Returns the next bytes for one record, in place or gathered in `record`. */
static const uint8_t *gather_records(
    const struct eb_send_queue *queue, uint8_t record[EB_TLS_RECORD_BYTES], size_t *count)
{
    struct iovec pieces[PIECES_MAX];
    size_t piece_count = eb_send_queue_peek(queue, pieces, PIECES_MAX);
    if (piece_count == 1 || pieces[0].iov_len >= EB_TLS_RECORD_BYTES) {
        *count = pieces[0].iov_len < EB_TLS_RECORD_BYTES ? pieces[0].iov_len : EB_TLS_RECORD_BYTES;
        return pieces[0].iov_base;
    }
    *count = 0;
    for (size_t i = 0; i < piece_count && *count < EB_TLS_RECORD_BYTES; i++) {
        size_t room = EB_TLS_RECORD_BYTES - *count;
        size_t part = pieces[i].iov_len < room ? pieces[i].iov_len : room;
        memcpy(record + *count, pieces[i].iov_base, part);
        *count += part;
    }
    return record;
}

/* Returns the encrypted size of the queue's bytes, or EB_TLS_OUTPUT_BYTES_MAX, the most that is
 * written at once, if that is less. */
static size_t find_sealed_bytes(const struct eb_send_queue *queue)
{
    size_t bytes = eb_send_queue_bytes(queue);
    bytes += (bytes / EB_TLS_RECORD_BYTES + 1) * RECORD_OVERHEAD_BYTES;
    return bytes < EB_TLS_OUTPUT_BYTES_MAX ? bytes : EB_TLS_OUTPUT_BYTES_MAX;
}

bool eb_tls_stream_seal(struct eb_tls_stream *stream, struct eb_send_queue *queue)
{
    uint8_t record[EB_TLS_RECORD_BYTES];
    size_t full = EB_TLS_OUTPUT_BYTES_MAX - EB_TLS_RECORD_BYTES - RECORD_OVERHEAD_BYTES;
    if (stream->is_over || !can_write(stream) || eb_send_queue_bytes(queue) == 0) {
        return true;
    }
    if (!stream->filling.bytes && !reserve_output(stream, find_sealed_bytes(queue))) {
        end_stream(stream, stream->side->no_memory_reason);
        return false;
    }
    while (stream->filling.count <= full && eb_send_queue_bytes(queue) > 0) {
        size_t count;
        const uint8_t *bytes = gather_records(queue, record, &count);
        ERR_clear_error();
        if (SSL_write(stream->ssl, bytes, (int)count) != (int)count) {
            fail_stream(stream, "TLS cannot send");
            return false;
        }
        eb_send_queue_drop(queue, count);
    }
    return true;
}

void eb_tls_stream_end(struct eb_tls_stream *stream)
{
    if (!stream->is_over && can_write(stream)) {
        ERR_clear_error();
        /* A result of 0 means that our closing message was sent and the peer's has not come yet. */
        (void)SSL_shutdown(stream->ssl);
        stream->is_over = true;
    }
}

uint8_t *eb_tls_stream_begin_write(struct eb_tls_stream *stream, size_t *count)
{
    assert(!stream->writing.bytes);
    stream->writing = stream->filling;
    stream->filling = (struct output){0};
    *count = stream->writing.count;
    return stream->writing.bytes;
}

void eb_tls_stream_end_write(struct eb_tls_stream *stream)
{
    give_output(&stream->writing);
}

/* ---- queries ---- */

bool eb_tls_stream_is_ready(const struct eb_tls_stream *stream)
{
    return stream->is_ready;
}

bool eb_tls_stream_is_shaking(const struct eb_tls_stream *stream)
{
    return stream->has_begun && !stream->is_over && !stream->is_ready;
}

bool eb_tls_stream_is_held_up(const struct eb_tls_stream *stream)
{
    return stream->is_ready && !stream->is_over && !can_write(stream);
}

const char *eb_tls_stream_reason(const struct eb_tls_stream *stream)
{
    return stream->reason;
}

static bool is_stream_text(const ASN1_STRING *text, const char *name)
{
    return text && (size_t)ASN1_STRING_length(text) == strlen(name) &&
           memcmp(ASN1_STRING_get0_data(text), name, strlen(name)) == 0;
}

static bool has_common_name(const X509 *certificate, const char *name)
{
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    return at >= 0 &&
           is_stream_text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), name);
}

bool eb_tls_stream_has_name(const struct eb_tls_stream *stream, const char *name)
{
    const X509 *certificate = SSL_get0_peer_certificate(stream->ssl);
    if (!eb_tls_stream_is_ready(stream) || !certificate ||
        SSL_get_verify_result(stream->ssl) != X509_V_OK) {
        return false;
    }
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool has_names = false;
    bool is_found = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        int kind;
        const ASN1_STRING *text = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &kind);
        bool is_name = kind == GEN_DNS || kind == GEN_URI;
        has_names |= is_name;
        is_found |= is_name && is_stream_text(text, name);
    }
    GENERAL_NAMES_free(names);
    return has_names ? is_found : has_common_name(certificate, name);
}
