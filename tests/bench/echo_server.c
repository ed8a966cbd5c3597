/* A server that embagd is compared with. It moves as many bytes, and does nothing else.
 *
 *     embag-echo-server MODE REQUEST_BYTES ANSWER_BYTES ANSWERS
 *
 * For every REQUEST_BYTES received on a connection it sends ANSWER_BYTES, in gathered writes, from
 * ANSWERS different answers in memory (bench_echo.h). MODE `libuv` serves any number of connections
 * on a libuv loop; `raw` serves one after another with blocking calls, which is the least work that
 * any server could do. It prints event=listening with its address and event=ready on stderr, as
 * embagd does, and runs until it is killed. */
#include "tests/bench/bench_echo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static struct eb_bench_echo echo;

struct conn {
    uv_tcp_t tcp;
    uv_write_t write;
    bool is_writing;
    struct eb_bench_echo_flow flow;
};

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_conn(struct conn *conn)
{
    if (!uv_is_closing((uv_handle_t *)&conn->tcp)) {
        uv_close((uv_handle_t *)&conn->tcp, on_closed);
    }
}

static void send_owed(struct conn *conn);

static void on_answer_written(uv_write_t *write, int status)
{
    struct conn *conn = write->handle->data;
    conn->is_writing = false;
    if (status == 0) {
        send_owed(conn);
    } else {
        close_conn(conn);
    }
}

/* Writes as much as the socket takes now. libuv writes the next pieces when it takes more. */
static void send_owed(struct conn *conn)
{
    uv_stream_t *stream = (uv_stream_t *)&conn->tcp;
    struct iovec pieces[EB_BENCH_ECHO_GATHER_MAX];
    while (conn->flow.owed_bytes > 0 && !conn->is_writing) {
        unsigned count = eb_bench_echo_gather(&echo, &conn->flow, pieces);
        uv_buf_t buffers[EB_BENCH_ECHO_GATHER_MAX];
        uint64_t bytes = 0;
        for (unsigned i = 0; i < count; i++) {
            buffers[i] = uv_buf_init(pieces[i].iov_base, (unsigned)pieces[i].iov_len);
            bytes += pieces[i].iov_len;
        }
        int sent = uv_try_write(stream, buffers, count);
        if (sent == UV_EAGAIN) {
            conn->is_writing =
                uv_write(&conn->write, stream, buffers, count, on_answer_written) == 0;
            sent = conn->is_writing ? (int)bytes : UV_ENOMEM;
        }
        if (sent < 0) {
            close_conn(conn);
            return;
        }
        eb_bench_echo_send(&conn->flow, (uint64_t)sent);
    }
}

static void on_server_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)handle;
    (void)suggested;
    *out = uv_buf_init((char *)echo.in, EB_BENCH_ECHO_READ_BYTES);
}

static void on_server_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    (void)buffer;
    if (count < 0) {
        close_conn(conn);
        return;
    }
    eb_bench_echo_receive(&echo, &conn->flow, (uint64_t)count);
    send_owed(conn);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (status < 0 || !conn) {
        free(conn);
        return;
    }
    (void)uv_tcp_init(listener->loop, &conn->tcp);
    conn->tcp.data = conn;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 || uv_tcp_nodelay(&conn->tcp, 1) != 0 ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_server_alloc, on_server_read) != 0) {
        close_conn(conn);
    }
}

static int serve_libuv(int listener)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t tcp;
    if (uv_tcp_init(loop, &tcp) != 0 || uv_tcp_open(&tcp, listener) != 0 ||
        uv_listen((uv_stream_t *)&tcp, EB_BENCH_ECHO_BACKLOG, on_connection) != 0) {
        return 1;
    }
    return uv_run(loop, UV_RUN_DEFAULT);
}

/* Reads a size. Returns false if it is not from 1 to EB_BENCH_ECHO_SIZE_MAX. */
static bool read_size(const char *text, uint64_t *out)
{
    *out = strtoull(text, NULL, 10);
    return *out > 0 && *out <= EB_BENCH_ECHO_SIZE_MAX;
}

int main(int argument_count, char **arguments)
{
    struct eb_bench_echo_sizes sizes;
    bool is_raw = argument_count == 5 && strcmp(arguments[1], "raw") == 0;
    if (argument_count != 5 || (!is_raw && strcmp(arguments[1], "libuv") != 0)) {
        fprintf(stderr, "Usage: embag-echo-server libuv|raw REQUEST_BYTES ANSWER_BYTES ANSWERS\n");
        return 2;
    }
    if (!read_size(arguments[2], &sizes.request_bytes) ||
        !read_size(arguments[3], &sizes.answer_bytes) ||
        !read_size(arguments[4], &sizes.answer_count)) {
        fprintf(stderr, "embag-echo-server: expected numbers from 1 to %u\n",
            (unsigned)EB_BENCH_ECHO_SIZE_MAX);
        return 2;
    }
    int listener = eb_bench_echo_init(&echo, &sizes) ? eb_bench_echo_listen() : -1;
    if (listener < 0) {
        return 1;
    }
    if (!is_raw) {
        return serve_libuv(listener);
    }
    eb_bench_echo_serve(&echo, listener);
    return 1;
}
