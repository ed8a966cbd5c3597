/* Feeds a server any bytes that a peer may send, raw or built by a frame script. The first three
 * bytes choose raw or script, the size of the portions, and the allocation that fails. Meanwhile
 * time passes, paused calls are resumed and, late in the input, the connection drains. */
#include "tests/unit/grpc/frame_script.h"
#include "tests/unit/grpc/host.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The fields that a frame script can put into header blocks. */
static const char *const fields[][2] = {{":method", "POST"}, {":scheme", "http"},
    {":path", "/t/Echo"}, {":authority", "t"}, {"content-type", "application/grpc"},
    {"te", "trailers"}, {":path", "/t/Slow"}, {":path", "/t/Refuse"}, {":path", "/t/First"},
    {":path", "/t/Keep"}, {":path", "/u"}, {"content-type", "application/grpc+proto"},
    {"content-type", "text/html"}, {"grpc-timeout", "100m"}, {"grpc-timeout", "99999999H"},
    {"grpc-timeout", "1"}, {"grpc-encoding", "gzip"}, {"grpc-encoding", "br"},
    {"grpc-encoding", "identity"}, {"authorization", "Bearer abc"}, {":method", "GET"},
    {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {"content-length", "5"}, {"connection", "close"}, {"x-bin", "AAAA"}, {"Upper", "x"},
    {":path", "/t/One"}, {":path", "/t/Later"}};
static const struct frame_script_fields script_fields = {fields, sizeof fields / sizeof fields[0]};

static void step_server(struct host *host, size_t number)
{
    if (number % 4 == 0) {
        host_write(host);
    }
    if (number % 7 == 3 && host->call) {
        eb_grpc_call_resume(host->call);
    }
    if (number % 31 == 30) {
        host->now_ms += 9000;
        eb_grpc_server_tick(host->server, host->now_ms, number % 10000);
    }
    if (number % 61 == 60) {
        eb_grpc_server_drain(host->server);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const slow[2] = {":path", "/t/Slow"};
    static const char *const gzip[2] = {"grpc-encoding", "gzip"};
    struct host host;
    struct frames in = {0};
    if (size < 3) {
        return 0;
    }
    host_init(&host, data[1] & 1 ? 0 : data[0] % 30u + 2);
    host.limits.request_bytes_max = 40000;
    host.limits.reset_budget = 8;
    host.limits.ping_interval_min_ms = 5000;
    host.limits.ping_idle_interval_min_ms = 30000;
    if (!host_start(&host)) {
        abort();
    }
    if (data[2] & 1) {
        frames_open(&in);
        frames_request(&in, 1, false, NULL);
        frames_request(&in, 3, false, slow);
    }
    if (data[2] & 2) {
        frames_request(&in, 5, false, gzip);
    }
    if (data[2] & 4) {
        frame_script_run(&in, &script_fields, data + 3, size - 3);
    } else {
        frames_put(&in, data + 3, size - 3);
    }
    size_t portion = data[1] + 1u;
    for (size_t at = 0; at < in.size && !host.is_over; at += portion) {
        host_receive(&host, in.bytes + at, in.size - at < portion ? in.size - at : portion);
        step_server(&host, at / portion);
    }
    host_write(&host);
    frames_deinit(&in);
    host_deinit(&host);
    if (host.lender.lent_count > 0 || host_outgoing_live() > 0 ||
        host.call_count != host.close_count) {
        abort();
    }
    return 0;
}
