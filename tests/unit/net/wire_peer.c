#include "tests/unit/net/wire_peer.h"

#include "proto/grpc_text.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#define ECHO_TIMEOUT_MS 10000

int wire_connect(const struct eb_address *address, int receive_bytes)
{
    int fd = socket(address->socket_address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_bytes > 0) {
        assert_int_equal(
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes), 0);
    }
    if (connect(fd, (const struct sockaddr *)&address->socket_address, address->size) != 0) {
        assert_int_equal(errno, ECONNREFUSED);
        close(fd);
        return -1;
    }
    return fd;
}

void wire_send(int socket, const void *bytes, size_t count)
{
    assert_int_equal(send(socket, bytes, count, MSG_NOSIGNAL), count);
}

/* Returns how much is left of a timeout of `timeout_ms` that began at `begin_ns`, for poll. */
static int left_ms(uint64_t begin_ns, int timeout_ms)
{
    uint64_t passed_ms = (uv_hrtime() - begin_ns) / 1000000;
    return passed_ms < (uint64_t)timeout_ms ? timeout_ms - (int)passed_ms : 0;
}

bool wire_read_to_end(int socket, int timeout_ms, char *out, size_t out_bytes)
{
    uint64_t begin_ns = uv_hrtime();
    size_t kept = 0;
    for (;;) {
        char bytes[65536];
        struct pollfd waited = {.fd = socket, .events = POLLIN};
        if (poll(&waited, 1, left_ms(begin_ns, timeout_ms)) <= 0) {
            return false;
        }
        ssize_t got = recv(socket, bytes, sizeof bytes, 0);
        if (got <= 0) {
            return true;
        }
        if (out && kept + (size_t)got < out_bytes) {
            memcpy(out + kept, bytes, (size_t)got);
            kept += (size_t)got;
            out[kept] = '\0';
        }
    }
}

/* ---- the gRPC client ---- */

static void on_peer_message(void *context, struct eb_grpc_client_call *grpc_call, void *user,
    const uint8_t *bytes, size_t size)
{
    struct wire_call *call = user;
    (void)context;
    (void)grpc_call;
    call->has_message = true;
    call->message_count++;
    call->message_bytes += size;
    for (size_t i = 0; i < size; i++) {
        call->is_wrong |= bytes[i] != (uint8_t)i;
    }
    if (call->on_message) {
        call->on_message(call, bytes, size);
    }
}

static void on_finish(
    void *context, struct eb_grpc_client_call *grpc_call, void *user, const struct eb_error *error)
{
    const struct wire_peer *peer = context;
    struct wire_call *call = user;
    (void)grpc_call;
    if (peer->is_abandoned) {
        return;
    }
    call->call = NULL;
    call->is_finished = true;
    call->error = *error;
}

void wire_peer_open(struct wire_peer *peer, const struct eb_address *address)
{
    static const struct eb_grpc_client_limits limits = {.response_bytes_max = 1 << 30};
    static const struct eb_grpc_client_handler handler = {on_peer_message, on_finish};
    peer->is_over = false;
    peer->is_abandoned = false;
    peer->socket = wire_connect(address, 0);
    assert_true(peer->socket >= 0);
    static const struct eb_grpc_client_identity identity = {.authority = "t"};
    peer->client = eb_grpc_client_create(&identity, &limits, &eb_memory_heap, &handler, peer);
    assert_non_null(peer->client);
}

void wire_peer_close(struct wire_peer *peer)
{
    eb_grpc_client_destroy(peer->client);
    peer->client = NULL;
    close(peer->socket);
}

void wire_peer_abandon(struct wire_peer *peer)
{
    if (peer->client) {
        peer->is_abandoned = true;
        wire_peer_close(peer);
    }
}

void wire_peer_call(struct wire_peer *peer, struct wire_call *call, const char *path)
{
    *call = (struct wire_call){0};
    call->call = eb_grpc_client_start(peer->client, path, 0, call);
    assert_non_null(call->call);
}

static void release(struct eb_outgoing *message)
{
    free(message->bytes);
    free(message);
}

/* Creates a message with its prefix. The bytes are not set. */
static struct eb_outgoing *make_message(size_t size)
{
    struct eb_outgoing *message = malloc(sizeof *message);
    uint8_t *bytes = malloc(EB_GRPC_PREFIX_BYTES + size);
    assert_non_null(message);
    assert_non_null(bytes);
    *message = (struct eb_outgoing){
        .bytes = bytes, .size = EB_GRPC_PREFIX_BYTES + size, .holds = 1, .release = release};
    eb_grpc_prefix_write(bytes, (uint32_t)size);
    return message;
}

void wire_peer_write(struct wire_call *call, size_t size, size_t missing, bool last)
{
    struct eb_outgoing *message = make_message(size);
    for (size_t i = 0; i < size; i++) {
        message->bytes[EB_GRPC_PREFIX_BYTES + i] = (uint8_t)i;
    }
    message->size -= missing;
    eb_grpc_client_write(call->call, message, last);
}

void wire_peer_write_bytes(struct wire_call *call, const void *bytes, size_t size, bool last)
{
    struct eb_outgoing *message = make_message(size);
    memcpy(message->bytes + EB_GRPC_PREFIX_BYTES, bytes, size);
    eb_grpc_client_write(call->call, message, last);
}

void wire_peer_write_number(struct wire_call *call, uint32_t number)
{
    wire_peer_write_bytes(call, &number, sizeof number, true);
}

void wire_peer_send(struct wire_peer *peer)
{
    struct eb_send_queue *queue = eb_grpc_client_queue(peer->client);
    struct iovec part;
    peer->is_over = !eb_grpc_client_send(peer->client) || peer->is_over;
    while (eb_send_queue_peek(queue, &part, 1) > 0) {
        ssize_t sent = send(peer->socket, part.iov_base, part.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            peer->is_over = peer->is_over || errno != EAGAIN;
            return;
        }
        eb_send_queue_drop(queue, (size_t)sent);
        peer->is_over = !eb_grpc_client_send(peer->client) || peer->is_over;
    }
}

/* Receives at most one buffer of what has arrived. */
static void receive(struct wire_peer *peer)
{
    uint8_t bytes[65536];
    ssize_t got = recv(peer->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
        peer->is_over = !eb_grpc_client_receive(peer->client, bytes, (size_t)got) || peer->is_over;
    } else if (got == 0 || errno != EAGAIN) {
        peer->is_over = true;
    }
}

bool wire_peer_run(struct wire_peer *peer, const bool *until, int timeout_ms)
{
    uint64_t begin_ns = uv_hrtime();
    while (!*until && !peer->is_over) {
        wire_peer_send(peer);
        bool blocked = eb_send_queue_bytes(eb_grpc_client_queue(peer->client)) > 0;
        struct pollfd waited = {
            .fd = peer->socket, .events = (short)(POLLIN | (blocked ? POLLOUT : 0))};
        if (poll(&waited, 1, left_ms(begin_ns, timeout_ms)) <= 0) {
            break;
        }
        receive(peer);
    }
    return *until;
}

bool wire_peer_echo(struct wire_peer *peer, size_t size)
{
    struct wire_call call;
    wire_peer_call(peer, &call, "/t/Echo");
    wire_peer_write(&call, size, 0, true);
    return wire_peer_run(peer, &call.is_finished, ECHO_TIMEOUT_MS) &&
           call.error.status == EB_STATUS_OK && call.message_count == 1 &&
           call.message_bytes == size && !call.is_wrong;
}
