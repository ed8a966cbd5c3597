#include "tests/bench/bench_echo.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Reports on stderr which system call failed, and why. */
static void complain(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
}

bool eb_bench_echo_init(struct eb_bench_echo *out, const struct eb_bench_echo_sizes *sizes)
{
    uint64_t bytes = sizes->answer_bytes * sizes->answer_count;
    *out = (struct eb_bench_echo){
        .sizes = *sizes, .answers = malloc(bytes), .in = malloc(EB_BENCH_ECHO_READ_BYTES)};
    if (!out->answers || !out->in) {
        complain("memory of answers");
        return false;
    }
    memset(out->answers, 1, bytes);
    memset(out->in, 1, EB_BENCH_ECHO_READ_BYTES);
    return true;
}

void eb_bench_echo_deinit(struct eb_bench_echo *echo)
{
    free(echo->answers);
    free(echo->in);
    *echo = (struct eb_bench_echo){0};
}

void eb_bench_echo_receive(
    const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow, uint64_t received_bytes)
{
    flow->unanswered_bytes += received_bytes;
    uint64_t requests = flow->unanswered_bytes / echo->sizes.request_bytes;
    flow->unanswered_bytes -= requests * echo->sizes.request_bytes;
    flow->owed_bytes += requests * echo->sizes.answer_bytes;
}

unsigned eb_bench_echo_gather(const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow,
    struct iovec out[EB_BENCH_ECHO_GATHER_MAX])
{
    const struct eb_bench_echo_sizes *sizes = &echo->sizes;
    uint64_t end = flow->sent_bytes + flow->owed_bytes;
    uint64_t at = flow->sent_bytes;
    unsigned count = 0;
    while (at < end && count < EB_BENCH_ECHO_GATHER_MAX && count < sizes->answer_count) {
        uint8_t *from = echo->answers + at % (sizes->answer_bytes * sizes->answer_count);
        uint64_t rest = sizes->answer_bytes - at % sizes->answer_bytes;
        if (echo->make && at >= flow->made_bytes) {
            echo->make(echo->self, from);
            flow->made_bytes = at + rest;
        }
        out[count++] = (struct iovec){.iov_base = from, .iov_len = rest};
        at += rest;
    }
    return count;
}

void eb_bench_echo_send(struct eb_bench_echo_flow *flow, uint64_t sent_bytes)
{
    assert(sent_bytes <= flow->owed_bytes);
    flow->owed_bytes -= sent_bytes;
    flow->sent_bytes += sent_bytes;
}

int eb_bench_echo_listen(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
        bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, EB_BENCH_ECHO_BACKLOG) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        complain("listen");
        return -1;
    }
    fprintf(stderr, "event=listening address=127.0.0.1:%d\nevent=ready\n", ntohs(address.sin_port));
    return listener;
}

static bool write_owed(
    const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow, int socket)
{
    struct iovec pieces[EB_BENCH_ECHO_GATHER_MAX];
    while (flow->owed_bytes > 0) {
        ssize_t sent = writev(socket, pieces, (int)eb_bench_echo_gather(echo, flow, pieces));
        if (sent <= 0) {
            return false;
        }
        eb_bench_echo_send(flow, (uint64_t)sent);
    }
    return true;
}

/* Answers until the peer closes the connection. */
static void serve_socket(const struct eb_bench_echo *echo, int socket)
{
    int one = 1;
    struct eb_bench_echo_flow flow = {0};
    bool is_open = setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;
    while (is_open) {
        ssize_t received = read(socket, echo->in, EB_BENCH_ECHO_READ_BYTES);
        is_open = received > 0;
        if (is_open) {
            eb_bench_echo_receive(echo, &flow, (uint64_t)received);
            is_open = write_owed(echo, &flow, socket);
        }
    }
    (void)close(socket);
}

void eb_bench_echo_serve(const struct eb_bench_echo *echo, int listener)
{
    for (int socket = accept(listener, NULL, NULL); socket >= 0;
         socket = accept(listener, NULL, NULL)) {
        serve_socket(echo, socket);
    }
    complain("accept");
}
