#include "tests/unit/grpc/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t outgoing_live;

static void release(struct eb_outgoing *message)
{
    outgoing_live--;
    free(message->bytes);
    free(message);
}

struct eb_outgoing *host_outgoing(size_t size)
{
    struct eb_outgoing *message = calloc(1, sizeof *message);
    uint8_t *bytes = malloc(EB_GRPC_PREFIX_BYTES + size);
    if (!message || !bytes) {
        abort();
    }
    eb_grpc_prefix_write(bytes, (uint32_t)size);
    for (size_t i = 0; i < size; i++) {
        bytes[EB_GRPC_PREFIX_BYTES + i] = (uint8_t)i;
    }
    *message = (struct eb_outgoing){
        .bytes = bytes, .size = EB_GRPC_PREFIX_BYTES + size, .holds = 1, .release = release};
    outgoing_live++;
    return message;
}

struct eb_outgoing *host_outgoing_of(const uint8_t *bytes, size_t size)
{
    struct eb_outgoing *message = host_outgoing(size);
    memcpy(message->bytes + EB_GRPC_PREFIX_BYTES, bytes, size);
    return message;
}

size_t host_outgoing_live(void)
{
    return outgoing_live;
}

static bool is_path(const struct eb_grpc_call *call, const char *path)
{
    return strcmp(call->path, path) == 0;
}

static void on_call(void *context, struct eb_grpc_call *call)
{
    struct host *host = context;
    host->call_count++;
    host->older = host->call;
    host->call = call;
    snprintf(host->authorization, sizeof host->authorization, "%s",
        call->authorization ? call->authorization : "");
    if (is_path(call, "/t/One") || is_path(call, "/t/Later")) {
        eb_grpc_call_expect_one(call, &host->hold);
    }
    if (is_path(call, "/t/Refuse")) {
        eb_grpc_call_finish(call, EB_STATUS_NOT_FOUND, "no such thing: 100%", 250);
    }
}

static void on_host_message(
    void *context, struct eb_grpc_call *call, struct eb_grpc_message message)
{
    struct host *host = context;
    if (host->message_count < HOST_ORDER_MAX) {
        host->order[host->message_count] = call->stream_id;
    }
    host->message_count++;
    host->message_bytes += message.size;
    if (is_path(call, "/t/First")) {
        eb_grpc_call_finish(call, EB_STATUS_FAILED_PRECONDITION, "one is enough", 0);
    } else if (!is_path(call, "/t/Keep")) {
        eb_grpc_call_answer(call, host_outgoing_of(message.bytes, message.size));
    }
    if (is_path(call, "/t/Slow")) {
        eb_grpc_call_pause(call);
    }
    eb_grpc_message_give(&host->lender.memory, &message);
}

static void on_request_end(void *context, struct eb_grpc_call *call)
{
    struct host *host = context;
    host->end_count++;
    if (!is_path(call, "/t/Keep")) {
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
}

static void on_host_request(void *context, struct eb_grpc_call *call)
{
    struct host *host = context;
    host->request_count++;
    if (is_path(call, "/t/One")) {
        struct eb_grpc_message message = eb_grpc_call_take_message(call);
        eb_grpc_call_answer(call, host_outgoing_of(message.bytes, message.size));
        eb_grpc_message_give(&host->lender.memory, &message);
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
}

static void on_host_inflated(void *context)
{
    struct host *host = context;
    host->inflated_count++;
}

static void on_close(void *context, struct eb_grpc_call *call)
{
    struct host *host = context;
    host->close_count++;
    /* Once a call is closing, answers and ends are dropped. */
    eb_grpc_call_answer(call, host_outgoing(3));
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    host->call = host->call == call ? NULL : host->call;
    host->older = host->older == call ? NULL : host->older;
}

static void on_refusal(void *context, struct eb_grpc_call *call)
{
    (void)context;
    (void)call;
}

static const struct eb_grpc_server_handler handler = {
    .on_call = on_call,
    .on_refusal = on_refusal,
    .on_message = on_host_message,
    .on_request_end = on_request_end,
    .on_request = on_host_request,
    .on_inflated = on_host_inflated,
    .on_close = on_close,
};

void host_init(struct host *host, size_t fail_at)
{
    *host = (struct host){
        .limits =
            {
                .request_bytes_max = HOST_REQUEST_BYTES_MAX,
                .streams_max = 256,
                .header_fields_max = 64,
                .header_bytes_max = 16384,
                .outbound_bytes_max = 64u << 20,
                .message_stall_ms_max = 15000,
                .answer_stall_ms_max = 30000,
                .reset_budget = 1000,
            },
        .now_ms = 5000,
        .hold = {.bytes_max = 2 * HOST_REQUEST_BYTES_MAX},
    };
    lender_init(&host->lender, fail_at);
}

bool host_start(struct host *host)
{
    struct eb_grpc_server_memory memory = {&host->lender.memory, &host->lender.memory};
    host->server = eb_grpc_server_create(&host->limits, &memory, &handler, host);
    return host->server;
}

void host_deinit(struct host *host)
{
    eb_grpc_server_destroy(host->server);
    host->server = NULL;
    frames_deinit(&host->sent);
}

void host_receive(struct host *host, const void *bytes, size_t count)
{
    if (!eb_grpc_server_receive(host->server, bytes, count, host->now_ms)) {
        host->is_over = true;
    }
}

void host_drain_queue(struct eb_send_queue *queue, struct frames *out)
{
    while (eb_send_queue_bytes(queue) > 0) {
        struct iovec parts[16];
        size_t part_count = eb_send_queue_peek(queue, parts, 16);
        size_t total = 0;
        for (size_t i = 0; i < part_count; i++) {
            frames_put(out, parts[i].iov_base, parts[i].iov_len);
            total += parts[i].iov_len;
        }
        eb_send_queue_drop(queue, total);
    }
}

void host_write(struct host *host)
{
    struct eb_send_queue *queue = eb_grpc_server_queue(host->server);
    bool waiting = true;
    while (waiting) {
        if (!eb_grpc_server_send(host->server)) {
            host->is_over = true;
        }
        waiting = eb_send_queue_bytes(queue) > 0;
        host_drain_queue(queue, &host->sent);
    }
}
