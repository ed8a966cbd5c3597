/* A test's host and a client of it, connected in memory. */
#pragma once

#include "proto/grpc_client.h"
#include "tests/unit/grpc/host.h"

#define PAIR_CALLS_MAX 8

/* One call as its client sees it. */
struct client_call {
    struct eb_grpc_client_call *call; /* NULL once finished */
    size_t message_count;
    size_t message_bytes;
    bool is_wrong; /* some byte i of a message was not (uint8_t)i */
    bool was_started;
    bool finished;
    uint32_t pushback_ms;
    struct eb_error error;
};

struct pair {
    struct host host;
    struct lender lender;
    struct eb_grpc_client *client;
    bool client_over;
    struct client_call client_calls[PAIR_CALLS_MAX];
};

/* Does not start the host yet, so that the test can change its limits. */
void pair_init(struct pair *pair);
/* Starts both sides. `response_bytes_max` is the client's limit. Returns false if out of memory. */
bool pair_start(struct pair *pair, uint32_t response_bytes_max);
void pair_deinit(struct pair *pair);

/* Begins client call `index` to a path. */
struct client_call *pair_call(struct pair *pair, size_t index, const char *path);
/* Sends a message of `size` bytes whose byte i is (uint8_t)i. */
void pair_write(struct client_call *client_call, size_t size, bool last);
/* Moves bytes between the two sides, at most `portion` at a time, until neither side has any. */
void pair_run(struct pair *pair, size_t portion);
/* The client's handler, for tests without a host. `user` is a struct client_call. */
extern const struct eb_grpc_client_handler pair_handler;
