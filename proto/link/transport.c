#include "proto/link/transport.h"

#include "proto/list.h"
#include "proto/net/tls_stream.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BUFFERS_MAX 64 /* most buffers of one gathered write */
#define NS_PER_S UINT64_C(1000000000)
#define KEEPALIVE_S 30 /* idle time before the system asks whether the peer is still there */

static void finish_transport(struct eb_transport *transport)
{
    transport->queue = NULL;
    transport->writing_bytes = 0;
    transport->state = EB_TRANSPORT_CLOSED;
    eb_alarms_clear(transport->alarms, &transport->alarm);
    transport->handler->on_close(transport->context);
}

static void on_socket_close(uv_handle_t *handle)
{
    struct eb_transport *transport = handle->data;
    transport->has_socket = false;
    eb_tls_stream_destroy(transport->tls);
    transport->tls = NULL;
    finish_transport(transport);
}

static void close_socket(struct eb_transport *transport)
{
    if (transport->has_socket && !uv_is_closing(&transport->socket.handle)) {
        uv_close(&transport->socket.handle, on_socket_close);
    }
}

/* Ends a stream that is open or being opened. */
static void lose_for(struct eb_transport *transport, const char *why)
{
    const struct eb_endpoint *endpoint = transport->endpoint;
    if (transport->state == EB_TRANSPORT_OPEN) {
        eb_error_set(&transport->failure, EB_STATUS_UNAVAILABLE, "%s", why);
        transport->state = EB_TRANSPORT_CLOSING;
    } else if (endpoint->is_unix) {
        eb_error_set(&transport->failure, EB_STATUS_UNAVAILABLE, "cannot connect to %s: %s",
            endpoint->path, why);
    } else {
        eb_error_set(&transport->failure, EB_STATUS_UNAVAILABLE, "cannot connect to %s port %s: %s",
            endpoint->host, endpoint->port, why);
    }
    close_socket(transport);
}

static void lose(struct eb_transport *transport, int status)
{
    lose_for(transport, uv_strerror(status));
}

static void write_transport_sealed(struct eb_transport *transport);

void eb_transport_close(struct eb_transport *transport)
{
    if (transport->state == EB_TRANSPORT_CLOSING) {
        return;
    }
    assert(transport->state != EB_TRANSPORT_CLOSED);
    if (transport->tls && transport->writing_bytes == 0) {
        eb_tls_stream_end(transport->tls);
        transport->queue = NULL;
        write_transport_sealed(transport);
    }
    transport->state = EB_TRANSPORT_CLOSING;
    eb_error_set(&transport->failure, EB_STATUS_UNAVAILABLE, "the client closed it");
    close_socket(transport);
}

static void on_alloc(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buffer)
{
    (void)suggested_bytes;
    const struct eb_transport *transport = handle->data;
    *buffer = transport->read_buffer;
}

static bool is_alive(const struct eb_transport *transport)
{
    return transport->has_socket && !uv_is_closing(&transport->socket.handle);
}

static void hand_over(struct eb_transport *transport, const uint8_t *bytes, size_t count)
{
    if (!transport->handler->on_bytes(transport->context, bytes, count) &&
        transport->state == EB_TRANSPORT_OPEN) {
        lose(transport, UV_EPROTO);
    }
}

static void begin_transport(struct eb_transport *transport)
{
    eb_alarms_clear(transport->alarms, &transport->alarm);
    transport->state = EB_TRANSPORT_OPEN;
    transport->was_open = true;
    transport->handler->on_open(transport->context);
}

/* Decrypts bytes and passes them on. TLS's own output is written before an error is reported,
 * because that output may tell the peer the reason. */
static void receive_transport_sealed(
    struct eb_transport *transport, const uint8_t *bytes, size_t count)
{
    uint8_t plain[EB_TLS_RECORD_BYTES];
    int got = 1;
    eb_tls_stream_feed(transport->tls, bytes, count, 0);
    while (got > 0 && is_alive(transport)) {
        got = eb_tls_stream_read(transport->tls, plain, sizeof plain);
        if (got >= 0 && transport->state == EB_TRANSPORT_OPENING &&
            eb_tls_stream_is_ready(transport->tls)) {
            begin_transport(transport);
        }
        if (got > 0 && is_alive(transport)) {
            hand_over(transport, plain, (size_t)got);
        }
    }
    if (is_alive(transport)) {
        write_transport_sealed(transport);
    }
    if (got < 0 && is_alive(transport)) {
        lose_for(transport, eb_tls_stream_reason(transport->tls));
    }
}

static void on_transport_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct eb_transport *transport = stream->data;
    if (!is_alive(transport) || count == 0) {
        return;
    }
    if (count < 0 && transport->state == EB_TRANSPORT_OPENING) {
        lose_for(transport, "the server ended the TLS handshake: it does not use TLS, or does not "
                            "trust this client");
    } else if (count < 0) {
        lose(transport, (int)count);
    } else if (transport->tls) {
        receive_transport_sealed(transport, (const uint8_t *)buffer->base, (size_t)count);
    } else {
        hand_over(transport, (const uint8_t *)buffer->base, (size_t)count);
    }
}

static void watch_peer(struct eb_transport *transport)
{
    uv_os_fd_t fd;
    unsigned int unacknowledged_ms = transport->unacknowledged_ms_max;
    if (transport->endpoint->is_unix) {
        return;
    }
    /* Failures are harmless. Without the first option, calls are slower; without the others, a lost
     * connection is noticed later. */
    (void)uv_tcp_nodelay(&transport->socket.tcp, 1);
    (void)uv_tcp_keepalive(&transport->socket.tcp, 1, KEEPALIVE_S);
    if (uv_fileno(&transport->socket.handle, &fd) == 0) {
        (void)setsockopt(
            fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
    }
}

static void on_connect(uv_connect_t *request, int status)
{
    struct eb_transport *transport = request->data;
    if (uv_is_closing(&transport->socket.handle)) {
        return;
    }
    bool is_plain = !transport->credentials->tls;
    if (status == 0) {
        status = uv_read_start(&transport->socket.stream, on_alloc, on_transport_read);
    }
    if (status == 0 && !is_plain) {
        transport->tls =
            eb_credentials_start_tls(transport->credentials, transport->endpoint->host);
        status = transport->tls ? 0 : UV_ENOMEM;
    }
    if (status != 0) {
        lose(transport, status);
        return;
    }
    watch_peer(transport);
    if (is_plain) {
        begin_transport(transport);
    } else {
        write_transport_sealed(transport);
    }
}

static void on_alarm(struct eb_alarm *alarm)
{
    lose(EB_CONTAINER_OF(alarm, struct eb_transport, alarm), UV_ETIMEDOUT);
}

static void connect_tcp(struct eb_transport *transport)
{
    int rc = uv_tcp_init(transport->loop, &transport->socket.tcp);
    assert(rc == 0);
    transport->has_socket = true;
    transport->socket.handle.data = transport;
    transport->connect.data = transport;
    eb_alarms_set(transport->alarms, &transport->alarm, transport->deadline_ns);
    rc = uv_tcp_connect(&transport->connect, &transport->socket.tcp,
        (const struct sockaddr *)&transport->address->socket_address, on_connect);
    if (rc != 0) {
        lose(transport, rc);
    }
}

static void connect_unix(struct eb_transport *transport)
{
    int rc = uv_pipe_init(transport->loop, &transport->socket.pipe, 0);
    assert(rc == 0);
    transport->has_socket = true;
    transport->socket.handle.data = transport;
    transport->connect.data = transport;
    eb_alarms_set(transport->alarms, &transport->alarm, transport->deadline_ns);
    uv_pipe_connect(
        &transport->connect, &transport->socket.pipe, transport->endpoint->path, on_connect);
}

void eb_transport_open(struct eb_transport *transport, uint64_t deadline_ns)
{
    assert(transport->state == EB_TRANSPORT_CLOSED);
    transport->state = EB_TRANSPORT_OPENING;
    transport->was_open = false;
    transport->deadline_ns = deadline_ns;
    transport->alarm.ring = on_alarm;
    if (transport->endpoint->is_unix) {
        connect_unix(transport);
    } else {
        connect_tcp(transport);
    }
}

static void write_more(struct eb_transport *transport);

static void on_transport_write(uv_write_t *request, int status)
{
    struct eb_transport *transport = request->data;
    size_t written = transport->writing_bytes;
    transport->writing_bytes = 0;
    if (!is_alive(transport)) {
        return;
    }
    if (status < 0) {
        lose(transport, status);
        return;
    }
    if (transport->tls) {
        eb_tls_stream_end_write(transport->tls);
    } else {
        eb_send_queue_drop(transport->queue, written);
    }
    write_more(transport);
    if (transport->state == EB_TRANSPORT_OPEN && transport->writing_bytes == 0) {
        transport->handler->on_written(transport->context);
    }
}

/* Passes what the socket did not take to libuv, which writes it as the socket drains. */
static void write_rest(struct eb_transport *transport, const uv_buf_t *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        transport->writing_bytes += buffers[i].len;
    }
    transport->write.data = transport;
    int rc =
        uv_write(&transport->write, &transport->socket.stream, buffers, count, on_transport_write);
    if (rc != 0) {
        transport->writing_bytes = 0;
        lose(transport, rc);
    }
}

/* Encrypts what is in the queue. Returns false if the connection is lost. */
static bool seal_queue(struct eb_transport *transport)
{
    if (!eb_tls_stream_seal(transport->tls, transport->queue)) {
        lose_for(transport, eb_tls_stream_reason(transport->tls));
        return false;
    }
    if (eb_send_queue_bytes(transport->queue) > 0 && eb_tls_stream_is_held_up(transport->tls)) {
        lose_for(transport,
            "TLS cannot send: the server began a handshake message and did not complete it");
        return false;
    }
    return true;
}

/* Writes TLS's own output, and encrypts and writes the queue as soon as TLS allows. */
static void write_transport_sealed(struct eb_transport *transport)
{
    while (is_alive(transport) && transport->writing_bytes == 0) {
        if (transport->queue && !seal_queue(transport)) {
            return;
        }
        size_t count = 0;
        uint8_t *bytes = eb_tls_stream_begin_write(transport->tls, &count);
        if (!bytes) {
            transport->queue = NULL;
            return;
        }
        uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)count);
        int written = uv_try_write(&transport->socket.stream, &buffer, 1);
        if (written < 0 && written != UV_EAGAIN) {
            lose(transport, written);
        } else if ((size_t)(written < 0 ? 0 : written) < count) {
            buffer.base += written < 0 ? 0 : written;
            buffer.len -= written < 0 ? 0 : (size_t)written;
            write_rest(transport, &buffer, 1);
        } else {
            eb_tls_stream_end_write(transport->tls);
        }
    }
}

static void write_more(struct eb_transport *transport)
{
    if (transport->tls) {
        write_transport_sealed(transport);
        return;
    }
    while (transport->state == EB_TRANSPORT_OPEN && transport->writing_bytes == 0) {
        struct iovec pieces[BUFFERS_MAX];
        uv_buf_t buffers[BUFFERS_MAX];
        size_t count = eb_send_queue_peek(transport->queue, pieces, BUFFERS_MAX);
        if (count == 0) {
            transport->queue = NULL;
            return;
        }
        for (size_t i = 0; i < count; i++) {
            buffers[i] = (uv_buf_t){.base = pieces[i].iov_base, .len = pieces[i].iov_len};
        }
        int written = uv_try_write(&transport->socket.stream, buffers, (unsigned)count);
        if (written > 0) {
            eb_send_queue_drop(transport->queue, (size_t)written);
        } else if (written == UV_EAGAIN) {
            write_rest(transport, buffers, (unsigned)count);
        } else {
            lose(transport, written);
        }
    }
}

void eb_transport_write(struct eb_transport *transport, struct eb_send_queue *queue)
{
    if (transport->state == EB_TRANSPORT_OPEN) {
        transport->queue = queue;
        write_more(transport);
    }
}
