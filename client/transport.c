#include "client/transport.h"

#include <assert.h>
#include <netdb.h>
#include <string.h>

#define BUFFERS_MAX 16     /* of one gathered write */
#define DRAIN_TURNS_MAX 64 /* a peer that never stops sending must not hold a call back */
#define NS_PER_MS 1000000

static void lose(struct eb_transport *transport, int status)
{
    if (transport->state == EB_TRANSPORT_OPEN) {
        transport->state = EB_TRANSPORT_LOST;
        transport->status = status;
        transport->queue = NULL;
    }
}

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* It has woken the loop: that is all. */
}

static void on_alloc(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buffer)
{
    (void)suggested_bytes;
    struct eb_transport *transport = handle->data;
    *buffer = uv_buf_init(transport->read_buffer, sizeof transport->read_buffer);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct eb_transport *transport = stream->data;
    if (transport->state != EB_TRANSPORT_OPEN || count == 0) {
        return;
    }
    if (count < 0) {
        lose(transport, (int)count);
        return;
    }
    transport->read_count++;
    if (!transport->on_bytes(transport->context, (const uint8_t *)buffer->base, (size_t)count)) {
        lose(transport, UV_EPROTO);
    }
}

static void on_connect(uv_connect_t *request, int status)
{
    struct eb_transport *transport = request->data;
    if (transport->state == EB_TRANSPORT_CONNECTING) {
        transport->state = status == 0 ? EB_TRANSPORT_OPEN : EB_TRANSPORT_LOST;
        transport->status = status;
    }
}

static void on_close(uv_handle_t *handle)
{
    bool *closed = handle->data;
    *closed = true;
}

int eb_transport_init(struct eb_transport *transport, eb_transport_bytes_fn on_bytes, void *context)
{
    memset(transport, 0, sizeof *transport);
    transport->on_bytes = on_bytes;
    transport->context = context;
    int rc = uv_loop_init(&transport->loop);
    if (rc != 0) {
        return rc;
    }
    rc = uv_timer_init(&transport->loop, &transport->timer);
    assert(rc == 0);
    return 0;
}

/* Closes one handle and runs the loop until it is gone. */
static void close_handle(struct eb_transport *transport, uv_handle_t *handle)
{
    bool closed = false;
    handle->data = &closed;
    uv_close(handle, on_close);
    while (!closed) {
        uv_run(&transport->loop, UV_RUN_ONCE);
    }
}

void eb_transport_close(struct eb_transport *transport)
{
    if (transport->state == EB_TRANSPORT_CLOSED) {
        return;
    }
    transport->state = EB_TRANSPORT_CLOSED;
    transport->queue = NULL;
    close_handle(transport, &transport->socket.handle);
}

void eb_transport_deinit(struct eb_transport *transport)
{
    eb_transport_close(transport);
    close_handle(transport, (uv_handle_t *)&transport->timer);
    int rc = uv_loop_close(&transport->loop);
    assert(rc == 0);
}

void eb_transport_wait(struct eb_transport *transport, uint64_t deadline_ns)
{
    uint64_t now_ns = uv_hrtime();
    if (now_ns >= deadline_ns) {
        uv_run(&transport->loop, UV_RUN_NOWAIT);
        return;
    }
    uint64_t wait_ms = (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    uv_update_time(&transport->loop);
    int rc = uv_timer_start(&transport->timer, on_timer, wait_ms, 0);
    assert(rc == 0);
    uv_run(&transport->loop, UV_RUN_ONCE);
    rc = uv_timer_stop(&transport->timer);
    assert(rc == 0);
}

void eb_transport_drain(struct eb_transport *transport)
{
    uint64_t read_count = 0;
    int turns = 0;
    do {
        read_count = transport->read_count;
        uv_run(&transport->loop, UV_RUN_NOWAIT);
    } while (transport->state == EB_TRANSPORT_OPEN && transport->read_count != read_count &&
             ++turns < DRAIN_TURNS_MAX);
}

/* Finishes a connect that has been started, or could not be (`status` below 0): true where the
 * stream is open; false where it is closed, with the reason in transport->status. */
static bool await_connect(struct eb_transport *transport, int status, uint64_t deadline_ns)
{
    while (status == 0 && transport->state == EB_TRANSPORT_CONNECTING) {
        eb_transport_wait(transport, deadline_ns);
        if (transport->state == EB_TRANSPORT_CONNECTING && uv_hrtime() >= deadline_ns) {
            status = UV_ETIMEDOUT;
        }
    }
    if (status == 0) {
        status = transport->status;
    }
    if (status == 0) {
        transport->socket.handle.data = transport;
        status = uv_read_start(&transport->socket.stream, on_alloc, on_read);
    }
    transport->status = status;
    if (status != 0) {
        eb_transport_close(transport);
    }
    return status == 0;
}

static bool connect_address(
    struct eb_transport *transport, const struct sockaddr *address, uint64_t deadline_ns)
{
    transport->status = uv_tcp_init(&transport->loop, &transport->socket.tcp);
    if (transport->status != 0) {
        return false;
    }
    transport->state = EB_TRANSPORT_CONNECTING;
    transport->connect.data = transport;
    int rc = uv_tcp_connect(&transport->connect, &transport->socket.tcp, address, on_connect);
    if (!await_connect(transport, rc, deadline_ns)) {
        return false;
    }
    /* Without it a call is slower, not wrong. */
    (void)uv_tcp_nodelay(&transport->socket.tcp, 1);
    return true;
}

static bool connect_unix(struct eb_transport *transport, const char *path, uint64_t deadline_ns)
{
    transport->status = uv_pipe_init(&transport->loop, &transport->socket.pipe, 0);
    if (transport->status != 0) {
        return false;
    }
    transport->state = EB_TRANSPORT_CONNECTING;
    transport->connect.data = transport;
    uv_pipe_connect(&transport->connect, &transport->socket.pipe, path, on_connect);
    return await_connect(transport, 0, deadline_ns);
}

/* Every address gets an even share of the time that is left. */
static bool connect_any(
    struct eb_transport *transport, const struct addrinfo *addresses, uint64_t deadline_ns)
{
    uint64_t left = 0;
    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        left++;
    }
    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        uint64_t now_ns = uv_hrtime();
        uint64_t share_ns = deadline_ns > now_ns ? (deadline_ns - now_ns) / left : 0;
        if (connect_address(transport, a->ai_addr, now_ns + share_ns)) {
            return true;
        }
        left--;
    }
    return false;
}

static bool connect_name(struct eb_transport *transport, const struct eb_endpoint *endpoint,
    uint64_t deadline_ns, struct eb_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    int rc = getaddrinfo(endpoint->host, endpoint->port, &hints, &addresses);
    if (rc != 0) {
        eb_error_set(error, EB_STATUS_UNAVAILABLE, "cannot find the host \"%s\": %s",
            endpoint->host, gai_strerror(rc));
        return false;
    }
    bool connected = connect_any(transport, addresses, deadline_ns);
    freeaddrinfo(addresses);
    if (!connected) {
        eb_error_set(error, EB_STATUS_UNAVAILABLE, "cannot connect to %s port %s: %s",
            endpoint->host, endpoint->port, uv_strerror(transport->status));
    }
    return connected;
}

bool eb_transport_open(struct eb_transport *transport, const struct eb_endpoint *endpoint,
    uint64_t deadline_ns, struct eb_error *error)
{
    assert(transport->state == EB_TRANSPORT_CLOSED);
    if (!endpoint->is_unix) {
        return connect_name(transport, endpoint, deadline_ns, error);
    }
    if (!connect_unix(transport, endpoint->path, deadline_ns)) {
        eb_error_set(error, EB_STATUS_UNAVAILABLE, "cannot connect to %s: %s", endpoint->path,
            uv_strerror(transport->status));
        return false;
    }
    return true;
}

static void write_more(struct eb_transport *transport);

static void on_write(uv_write_t *request, int status)
{
    struct eb_transport *transport = request->data;
    size_t written = transport->writing_bytes;
    transport->writing_bytes = 0;
    if (transport->state != EB_TRANSPORT_OPEN) {
        return;
    }
    if (status < 0) {
        lose(transport, status);
        return;
    }
    eb_send_queue_drop(transport->queue, written);
    write_more(transport);
}

/* Hands what the socket did not take to libuv, which writes it as the socket drains. */
static void write_rest(struct eb_transport *transport, const uv_buf_t *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        transport->writing_bytes += buffers[i].len;
    }
    transport->write.data = transport;
    int rc = uv_write(&transport->write, &transport->socket.stream, buffers, count, on_write);
    if (rc != 0) {
        transport->writing_bytes = 0;
        lose(transport, rc);
    }
}

static void write_more(struct eb_transport *transport)
{
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
