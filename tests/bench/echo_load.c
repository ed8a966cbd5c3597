/* A load generator for embag-echo-server only: requests and answers are bytes without meaning.
 *
 *     embag-echo-load PORT REQUEST_BYTES ANSWER_BYTES IN_FLIGHT SECONDS
 *
 * It keeps IN_FLIGHT requests in flight on one connection with libuv, as embag's client does, and
 * prints their rate and latencies as one JSON object. */
#include "client/cli/load_clock.h"
#include "client/cli/load_stats.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define READ_BYTES ((size_t)256 << 10)
#define IN_FLIGHT_MAX 1024
#define NS_PER_S 1e9
/* Fraction of a run, at its start, that does not count, because connections and caches are cold. */
#define WARMUP_PART 0.2

static struct {
    uint64_t request_bytes;
    uint64_t answer_bytes;
    unsigned in_flight;
    uv_tcp_t tcp;
    char *request;
    char in[READ_BYTES];
    uint64_t sent_ns[IN_FLIGHT_MAX]; /* send times of requests in flight, a ring by number */
    uint64_t answer_count;
    uint64_t unanswered_bytes; /* received bytes of an incomplete answer */
    uint64_t begin_ns, end_ns;
    struct eb_load_histogram latency;
    bool has_failed;
} load;

static void stop(bool has_failed)
{
    load.has_failed = load.has_failed || has_failed;
    uv_stop(load.tcp.loop);
}

static void on_load_written(uv_write_t *write, int status)
{
    free(write);
    if (status != 0) {
        stop(true);
    }
}

/* Sends `count` requests, which take the slots from `first` on. */
static void send_requests(uint64_t first, uint64_t count)
{
    uv_write_t *write = calloc(1, sizeof *write);
    uv_buf_t buffers[IN_FLIGHT_MAX];
    uint64_t now_ns = eb_load_clock_read_ns();
    for (uint64_t i = 0; i < count; i++) {
        load.sent_ns[(first + i) % load.in_flight] = now_ns;
        buffers[i] = uv_buf_init(load.request, (unsigned)load.request_bytes);
    }
    uv_stream_t *stream = (uv_stream_t *)&load.tcp;
    if (!write || uv_write(write, stream, buffers, (unsigned)count, on_load_written) != 0) {
        free(write);
        stop(true);
    }
}

static void on_load_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(load.in, sizeof load.in);
}

static void on_load_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)stream;
    (void)buffer;
    uint64_t now_ns = eb_load_clock_read_ns();
    if (count < 0 || now_ns >= load.end_ns) {
        stop(count < 0);
        return;
    }
    load.unanswered_bytes += (uint64_t)count;
    uint64_t first = load.answer_count;
    while (load.unanswered_bytes >= load.answer_bytes) {
        load.unanswered_bytes -= load.answer_bytes;
        if (now_ns >= load.begin_ns) {
            uint64_t sent_ns = load.sent_ns[load.answer_count % load.in_flight];
            eb_load_histogram_add(&load.latency, now_ns - sent_ns);
        }
        load.answer_count++;
    }
    if (load.answer_count > first) {
        send_requests(first, load.answer_count - first);
    }
}

static void on_connected(uv_connect_t *connect, int status)
{
    if (status != 0 || uv_tcp_nodelay(&load.tcp, 1) != 0 ||
        uv_read_start(connect->handle, on_load_alloc, on_load_read) != 0) {
        stop(true);
        return;
    }
    send_requests(0, load.in_flight);
}

static bool run_echo(int port, double seconds)
{
    struct sockaddr_in address;
    uv_connect_t connect;
    uv_loop_t *loop = uv_default_loop();
    uint64_t now_ns = eb_load_clock_read_ns();
    load.begin_ns = now_ns + (uint64_t)(seconds * WARMUP_PART * NS_PER_S);
    load.end_ns = now_ns + (uint64_t)(seconds * NS_PER_S);
    if (uv_ip4_addr("127.0.0.1", port, &address) != 0 || uv_tcp_init(loop, &load.tcp) != 0 ||
        uv_tcp_connect(&connect, &load.tcp, (struct sockaddr *)&address, on_connected) != 0) {
        return false;
    }
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return !load.has_failed && load.latency.count > 0;
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 6) {
        fprintf(
            stderr, "Usage: embag-echo-load PORT REQUEST_BYTES ANSWER_BYTES IN_FLIGHT SECONDS\n");
        return 2;
    }
    load.request_bytes = strtoull(arguments[2], NULL, 10);
    load.answer_bytes = strtoull(arguments[3], NULL, 10);
    load.in_flight = (unsigned)strtoul(arguments[4], NULL, 10);
    double seconds = strtod(arguments[5], NULL);
    if (load.request_bytes == 0 || load.request_bytes > UINT32_MAX || load.answer_bytes == 0 ||
        load.in_flight == 0 || load.in_flight > IN_FLIGHT_MAX || seconds <= 0) {
        fprintf(stderr,
            "embag-echo-load: expected sizes and seconds above 0, and 1 to %d requests in flight\n",
            IN_FLIGHT_MAX);
        return 2;
    }
    load.request = calloc(1, load.request_bytes);
    if (!load.request || !run_echo(atoi(arguments[1]), seconds)) {
        fprintf(stderr, "embag-echo-load: no answer from port %s\n", arguments[1]);
        return 1;
    }
    printf("{\"answers\": %llu, \"requests_per_s\": %.1f, \"p50_us\": %.2f, "
           "\"p99_us\": %.2f}\n",
        (unsigned long long)load.answer_count,
        (double)load.latency.count / (seconds * (1 - WARMUP_PART)),
        eb_load_histogram_quantile_us(&load.latency, 0.5),
        eb_load_histogram_quantile_us(&load.latency, 0.99));
    return 0;
}
