/* A gRPC server for tests whose methods are told by their path:
 *   /t/Echo    answers every message with itself, ends OK with the request
 *   /t/Refuse  ends at once: NOT_FOUND, "no such thing: 100%", pushback 250 ms
 *   /t/First   ends with the first message: FAILED_PRECONDITION
 *   /t/Slow    pauses after every message; the test resumes; otherwise as Echo
 *   /t/Keep    does nothing; the test acts
 *   /t/One     expects one message, answers it with itself, ends OK
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
    size_t call_count; /* on_call so far, and so on */
    size_t message_count;
    size_t message_bytes;
    int32_t order[HOST_ORDER_MAX]; /* of which streams the first messages were */
    size_t end_count;
    size_t request_count;
    size_t inflated_count;
    struct eb_grpc_hold hold; /* of calls that expect one message */
    size_t close_count;
    struct eb_grpc_call *call;  /* the newest; NULL once it is closed */
    struct eb_grpc_call *older; /* the one before */
    char authorization[64];     /* what on_call saw of the newest, cut; "": nothing */
    bool is_over;               /* receive or send has said so */
    struct frames sent;         /* what went out, where host_write was used */
};

/* `fail_at` as for a lender. */
void host_init(struct host *host, size_t fail_at);
/* Also for the limits as the test has changed them. false: no memory. */
bool host_start(struct host *host);
void host_deinit(struct host *host);

void host_receive(struct host *host, const void *bytes, size_t count);
/* Sends all that can be sent and adds it to host->sent. */
void host_write(struct host *host);

/* A message of `size` bytes, each its position's; host_outgoing_live counts those not released. */
struct eb_outgoing *host_outgoing(size_t size);
struct eb_outgoing *host_outgoing_of(const uint8_t *bytes, size_t size);
size_t host_outgoing_live(void);

/* Moves all bytes that wait into `out`. */
void host_drain_queue(struct eb_send_queue *queue, struct frames *out);
