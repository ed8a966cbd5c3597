/* What embagd is measured against: a server that does nothing but move as many bytes.
 *
 *     embag-echo-server MODE REQUEST_BYTES ANSWER_BYTES ANSWERS
 *
 * For every REQUEST_BYTES that a connection has sent it sends ANSWER_BYTES, all that are due in
 * gathered writes. There are ANSWERS of them in memory, each in its own place, and each is sent in
 * its turn: as many as are in flight, since a server's answers lie nowhere else either. MODE
 * `libuv` serves any number of connections on a libuv loop; `raw` one after the other with blocking
 * calls, which is the least that any server could do. It says event=listening with its address and
 * event=ready on stderr, as embagd does, and runs until it is killed. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <uv.h>

#define READ_BYTES ((size_t)256 << 10) /* of one read, as embagd's */
#define GATHER_MAX 64                  /* answers of one write */
#define BACKLOG 128

static struct {
    uint64_t request_bytes;
    uint64_t answer_bytes;
    uint64_t answers_bytes; /* of all answers */
    char *answers;
    char in[READ_BYTES]; /* what is read is not kept */
} echo;

struct conn {
    uv_tcp_t tcp;
    uv_write_t write;
    bool is_writing;
    uint64_t unanswered_bytes; /* received, not a whole request yet */
    uint64_t owed_bytes;       /* to be sent */
    uint64_t sent_bytes;
};

/* Counts what has come; returns the bytes that are to be sent for it. */
static uint64_t count_owed(uint64_t *unanswered_bytes, uint64_t received_bytes)
{
    *unanswered_bytes += received_bytes;
    uint64_t requests = *unanswered_bytes / echo.request_bytes;
    *unanswered_bytes -= requests * echo.request_bytes;
    return requests * echo.answer_bytes;
}

/* What one write takes of the answers that are owed after those that were sent. Returns how many
 * pieces there are. */
static unsigned gather(uint64_t sent_bytes, uint64_t owed_bytes, struct iovec out[GATHER_MAX])
{
    unsigned count = 0;
    while (owed_bytes > 0 && count < GATHER_MAX) {
        uint64_t rest = echo.answer_bytes - sent_bytes % echo.answer_bytes;
        uint64_t piece = rest < owed_bytes ? rest : owed_bytes;
        char *from = echo.answers + sent_bytes % echo.answers_bytes;
        out[count++] = (struct iovec){.iov_base = from, .iov_len = piece};
        owed_bytes -= piece;
        sent_bytes += piece;
    }
    return count;
}

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

static void on_written(uv_write_t *write, int status)
{
    struct conn *conn = write->handle->data;
    conn->is_writing = false;
    if (status == 0) {
        send_owed(conn);
    } else {
        close_conn(conn);
    }
}

/* Writes what the socket takes now, and lets libuv write the next pieces when it takes more. */
static void send_owed(struct conn *conn)
{
    uv_stream_t *stream = (uv_stream_t *)&conn->tcp;
    struct iovec pieces[GATHER_MAX];
    while (conn->owed_bytes > 0 && !conn->is_writing) {
        unsigned count = gather(conn->sent_bytes, conn->owed_bytes, pieces);
        uv_buf_t buffers[GATHER_MAX];
        uint64_t bytes = 0;
        for (unsigned i = 0; i < count; i++) {
            buffers[i] = uv_buf_init(pieces[i].iov_base, (unsigned)pieces[i].iov_len);
            bytes += pieces[i].iov_len;
        }
        int sent = uv_try_write(stream, buffers, count);
        if (sent == UV_EAGAIN) {
            conn->is_writing = uv_write(&conn->write, stream, buffers, count, on_written) == 0;
            sent = conn->is_writing ? (int)bytes : UV_ENOMEM;
        }
        if (sent < 0) {
            close_conn(conn);
            return;
        }
        conn->owed_bytes -= (uint64_t)sent;
        conn->sent_bytes += (uint64_t)sent;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(echo.in, sizeof echo.in);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    (void)buffer;
    if (count < 0) {
        close_conn(conn);
        return;
    }
    conn->owed_bytes += count_owed(&conn->unanswered_bytes, (uint64_t)count);
    send_owed(conn);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (status < 0 || conn == NULL) {
        free(conn);
        return;
    }
    (void)uv_tcp_init(listener->loop, &conn->tcp);
    conn->tcp.data = conn;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 || uv_tcp_nodelay(&conn->tcp, 1) != 0 ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0) {
        close_conn(conn);
    }
}

static int serve_libuv(int listener)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t tcp;
    if (uv_tcp_init(loop, &tcp) != 0 || uv_tcp_open(&tcp, listener) != 0 ||
        uv_listen((uv_stream_t *)&tcp, BACKLOG, on_connection) != 0) {
        return 1;
    }
    return uv_run(loop, UV_RUN_DEFAULT);
}

static bool write_owed(int socket, uint64_t *sent_bytes, uint64_t owed_bytes)
{
    struct iovec pieces[GATHER_MAX];
    while (owed_bytes > 0) {
        ssize_t sent = writev(socket, pieces, (int)gather(*sent_bytes, owed_bytes, pieces));
        if (sent <= 0) {
            return false;
        }
        owed_bytes -= (uint64_t)sent;
        *sent_bytes += (uint64_t)sent;
    }
    return true;
}

/* Answers until the peer is gone. */
static void serve_socket(int socket)
{
    const int one = 1;
    uint64_t unanswered_bytes = 0;
    uint64_t sent_bytes = 0;
    bool is_open = setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;
    while (is_open) {
        ssize_t received = read(socket, echo.in, sizeof echo.in);
        is_open = received > 0 && write_owed(socket, &sent_bytes,
                                      count_owed(&unanswered_bytes, (uint64_t)received));
    }
    (void)close(socket);
}

static int serve_raw(int listener)
{
    for (int socket = accept(listener, NULL, NULL); socket >= 0;
         socket = accept(listener, NULL, NULL)) {
        serve_socket(socket);
    }
    perror("embag-echo-server: accept");
    return 1;
}

/* Listens on a free port of loopback and says so; -1: said on stderr why not. */
static int listen_and_say(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, BACKLOG) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        perror("embag-echo-server: listen");
        return -1;
    }
    (void)fprintf(
        stderr, "event=listening address=127.0.0.1:%d\nevent=ready\n", ntohs(address.sin_port));
    return listener;
}

/* false: the sizes are none. */
static bool read_sizes(char **arguments)
{
    echo.request_bytes = strtoull(arguments[0], NULL, 10);
    echo.answer_bytes = strtoull(arguments[1], NULL, 10);
    const uint64_t answers = strtoull(arguments[2], NULL, 10);
    echo.answers_bytes = answers * echo.answer_bytes;
    return echo.request_bytes > 0 && echo.answer_bytes > 0 && echo.answer_bytes <= UINT32_MAX &&
           answers > 0 && answers <= UINT32_MAX;
}

/* Written once, so that they are there: memory that was only asked for is all one page. */
static bool make_answers(void)
{
    echo.answers = malloc(echo.answers_bytes);
    if (echo.answers == NULL) {
        perror("embag-echo-server: answers");
        return false;
    }
    memset(echo.answers, 1, echo.answers_bytes);
    return true;
}

int main(int argument_count, char **arguments)
{
    bool is_raw = argument_count == 5 && strcmp(arguments[1], "raw") == 0;
    if (argument_count != 5 || (!is_raw && strcmp(arguments[1], "libuv") != 0)) {
        (void)fprintf(
            stderr, "Usage: embag-echo-server libuv|raw REQUEST_BYTES ANSWER_BYTES ANSWERS\n");
        return 2;
    }
    if (!read_sizes(arguments + 2)) {
        (void)fprintf(stderr, "embag-echo-server: give numbers above 0\n");
        return 2;
    }
    int listener = make_answers() ? listen_and_say() : -1;
    if (listener < 0) {
        return 1;
    }
    return is_raw ? serve_raw(listener) : serve_libuv(listener);
}
