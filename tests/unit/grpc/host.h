/* A gRPC server for tests. The path of a call selects what happens:
 *   /t/Echo    echoes every message; ends with OK when the request ends
 *   /t/Refuse  ends at once: NOT_FOUND, "no such thing: 100%", pushback 250 ms
 *   /t/First   ends at the first message: FAILED_PRECONDITION
 *   /t/Slow    pauses after every message until the test resumes it; otherwise like Echo
 *   /t/Keep    does nothing; the test acts
 *   /t/One     expects one message, echoes it, ends with OK
 *   /t/Later   expects one message, which the test takes */
#pragma once

#include "proto/grpc_server.h"
#include "tests/unit/grpc/frames.h"
#include "tests/unit/proto/lender.h"

#define HOST_REQUEST_BYTES_MAX 100000u
#define HOST_ORDER_MAX 10

struct host {
    struct lender lender;
    struct eb_grpc_server_limits limits;
    struct eb_grpc_server *server;
    uint64_t now_ms;
    size_t call_count; /* number of calls of on_call; the other counts are of the other callbacks */
    size_t message_count;
    size_t message_bytes;
    int32_t order[HOST_ORDER_MAX]; /* the streams of the first messages, in order of arrival */
    size_t end_count;
    size_t request_count;
    size_t inflated_count;
    struct eb_grpc_hold hold; /* bounds the bytes that calls expecting one message hold */
    size_t close_count;
    struct eb_grpc_call *call;  /* the newest; NULL once it is closed */
    struct eb_grpc_call *older; /* the one before the newest */
    char authorization[64]; /* as on_call saw it in the newest call, cut off to fit; "" if none */
    bool is_over;           /* receive or send has reported the end */
    struct frames sent;     /* output that host_write has collected */
};

/* `fail_at` is the number of the memory request that fails, counted from 1; 0: none fails. */
void host_init(struct host *host, size_t fail_at);
/* Creates the server, with the limits as the test has set them. Returns false if out of memory. */
bool host_start(struct host *host);
void host_deinit(struct host *host);

void host_receive(struct host *host, const void *bytes, size_t count);
/* Sends everything that can be sent and adds it to host->sent. */
void host_write(struct host *host);

/* Creates a message of `size` bytes whose byte i is (uint8_t)i. host_outgoing_live returns how many
 * are not released yet. */
struct eb_outgoing *host_outgoing(size_t size);
struct eb_outgoing *host_outgoing_of(const uint8_t *bytes, size_t size);
size_t host_outgoing_live(void);

/* Moves all waiting bytes into `out`. */
void host_drain_queue(struct eb_send_queue *queue, struct frames *out);
