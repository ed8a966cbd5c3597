#include "tests/unit/grpc/pair.h"

#include <stdlib.h>

static void on_pair_message(
    void *context, struct eb_grpc_client_call *call, void *user, const uint8_t *bytes, size_t size)
{
    (void)context;
    (void)call;
    struct client_call *client_call = user;
    client_call->message_count++;
    client_call->message_bytes += size;
    for (size_t i = 0; i < size; i++) {
        client_call->is_wrong = client_call->is_wrong || bytes[i] != (uint8_t)i;
    }
}

static void on_finish(
    void *context, struct eb_grpc_client_call *call, void *user, const struct eb_error *error)
{
    (void)context;
    struct client_call *client_call = user;
    client_call->finished = true;
    client_call->call = NULL;
    client_call->error = *error;
    client_call->pushback_ms = eb_grpc_client_pushback_ms(call);
}

const struct eb_grpc_client_handler pair_handler = {
    .on_message = on_pair_message, .on_finish = on_finish};

void pair_init(struct pair *pair)
{
    *pair = (struct pair){0};
    host_init(&pair->host, 0);
    lender_init(&pair->lender, 0);
}

bool pair_start(struct pair *pair, uint32_t response_bytes_max)
{
    struct eb_grpc_client_limits limits = {.response_bytes_max = response_bytes_max};
    static const struct eb_grpc_client_identity identity = {.authority = "t"};
    pair->client =
        eb_grpc_client_create(&identity, &limits, &pair->lender.memory, &pair_handler, pair);
    return pair->client && host_start(&pair->host);
}

void pair_deinit(struct pair *pair)
{
    eb_grpc_client_destroy(pair->client);
    pair->client = NULL;
    host_deinit(&pair->host);
}

struct client_call *pair_call(struct pair *pair, size_t index, const char *path)
{
    struct client_call *client_call = &pair->client_calls[index];
    *client_call = (struct client_call){0};
    client_call->call = eb_grpc_client_start(pair->client, path, 0, client_call);
    client_call->was_started = client_call->call;
    return client_call;
}

void pair_write(struct client_call *client_call, size_t size, bool last)
{
    if (client_call->call) {
        eb_grpc_client_write(client_call->call, host_outgoing(size), last);
    }
}

static bool move_to_host(struct pair *pair, size_t portion)
{
    struct frames bytes = {0};
    pair->client_over = !eb_grpc_client_send(pair->client) || pair->client_over;
    host_drain_queue(eb_grpc_client_queue(pair->client), &bytes);
    for (size_t at = 0; at < bytes.size && !pair->host.is_over; at += portion) {
        size_t left = bytes.size - at;
        host_receive(&pair->host, bytes.bytes + at, left < portion ? left : portion);
    }
    bool moved = bytes.size > 0;
    frames_deinit(&bytes);
    return moved;
}

static bool move_to_client(struct pair *pair, size_t portion)
{
    struct frames bytes = {0};
    pair->host.is_over = !eb_grpc_server_send(pair->host.server) || pair->host.is_over;
    host_drain_queue(eb_grpc_server_queue(pair->host.server), &bytes);
    for (size_t at = 0; at < bytes.size && !pair->client_over; at += portion) {
        size_t left = bytes.size - at;
        pair->client_over = !eb_grpc_client_receive(
            pair->client, bytes.bytes + at, left < portion ? left : portion);
    }
    bool moved = bytes.size > 0;
    frames_deinit(&bytes);
    return moved;
}

void pair_run(struct pair *pair, size_t portion)
{
    bool moved = true;
    while (moved) {
        moved = move_to_host(pair, portion);
        moved = move_to_client(pair, portion) || moved;
    }
}
