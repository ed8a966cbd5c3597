/* Feeds a client any bytes that a server may send, raw or built by a frame script. The first three
 * bytes choose raw or script, the size of the portions, and the allocation that fails. Meanwhile
 * calls are begun, written to and cancelled. */
#include "tests/unit/grpc/frame_script.h"
#include "tests/unit/grpc/pair.h"

#include <stdlib.h>

#define ANSWER_BYTES_MAX 40000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* The fields that a frame script can put into header blocks. */
static const char *const fields[][2] = {{":status", "200"}, {"content-type", "application/grpc"},
    {"grpc-status", "0"}, {"grpc-status", "5"}, {"grpc-status", "99"}, {"grpc-status", "x"},
    {"grpc-message", "no such thing: 100%25 %c3%a4 %zz"}, {"grpc-encoding", "gzip"},
    {"grpc-encoding", "identity"}, {"grpc-retry-pushback-ms", "250"},
    {"grpc-retry-pushback-ms", "-1"}, {"grpc-retry-pushback-ms", "99999999999"}, {":status", "503"},
    {":status", "403"}, {":status", "404"}, {":status", "100"}, {":status", "x"},
    {"content-type", "text/html"}, {"content-length", "5"}, {"connection", "close"},
    {"x-bin", "AAAA"}};
static const struct frame_script_fields script_fields = {fields, sizeof fields / sizeof fields[0]};

/* Discards everything that the client sends. */
static void send(struct pair *pair)
{
    struct frames sent = {0};
    size_t size = 0;
    do {
        size = sent.size;
        pair->client_over = !eb_grpc_client_send(pair->client) || pair->client_over;
        host_drain_queue(eb_grpc_client_queue(pair->client), &sent);
    } while (sent.size > size && !pair->client_over);
    frames_deinit(&sent);
}

/* Begins a call that has sent everything, one that continues to send, and one that sends
 * nothing. */
static void begin_calls(struct pair *pair)
{
    pair_write(pair_call(pair, 0, "/t/Unary"), 10, true);
    pair_write(pair_call(pair, 1, "/t/Stream"), 5000, false);
    (void)pair_call(pair, 2, "/t/Silent");
    send(pair);
}

static void step_client(struct pair *pair, size_t number)
{
    if (number % 4 == 0) {
        send(pair);
    }
    if (number % 7 == 3) {
        pair_write(&pair->client_calls[1], number, false);
    }
    if (number % 31 == 30 && pair->client_calls[2].call) {
        eb_grpc_client_cancel(pair->client_calls[2].call);
    }
    if (number % 13 == 12 && !pair->client_calls[0].call) {
        pair_write(pair_call(pair, 0, "/t/Unary"), 10, true);
    }
}

/* Adds the first frames of a well-behaved server. */
static void put_opening(struct frames *in)
{
    struct frames block = {0};
    frames_head(in, 0, FRAME_SETTINGS, 0, 0);
    frames_field(&block, ":status", "200");
    frames_field(&block, "content-type", "application/grpc");
    for (uint32_t stream_id = 1; stream_id < 5; stream_id += 2) {
        frames_head(in, block.size, FRAME_HEADERS, FLAG_END_HEADERS, stream_id);
        frames_put(in, block.bytes, block.size);
    }
    frames_deinit(&block);
}

static void receive(struct pair *pair, const struct frames *in, size_t portion)
{
    for (size_t at = 0; at < in->size && !pair->client_over; at += portion) {
        size_t left = in->size - at;
        pair->client_over =
            !eb_grpc_client_receive(pair->client, in->bytes + at, left < portion ? left : portion);
        step_client(pair, at / portion);
    }
    send(pair);
    require(!pair->client_over || eb_grpc_client_reason(pair->client)[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pair pair;
    struct frames in = {0};
    if (size < 3) {
        return 0;
    }
    pair_init(&pair);
    lender_init(&pair.lender, data[1] & 1 ? 0 : data[0] % 30u + 4);
    require(pair_start(&pair, ANSWER_BYTES_MAX));
    begin_calls(&pair);
    if (data[2] & 1) {
        put_opening(&in);
    }
    if (data[2] & 4) {
        frame_script_run(&in, &script_fields, data + 3, size - 3);
    } else {
        frames_put(&in, data + 3, size - 3);
    }
    receive(&pair, &in, data[1] + 1u);
    frames_deinit(&in);
    pair_deinit(&pair);
    for (size_t i = 0; i < 3; i++) {
        require(!pair.client_calls[i].call);
    }
    require(pair.lender.lent_count == 0 && host_outgoing_live() == 0);
    return 0;
}
