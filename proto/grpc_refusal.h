/* The answer to a request that is none of gRPC's: an HTTP status and a line that says why, for
 * people with a browser or curl.
 * Thread: the connection's. Memory: none. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct nghttp2_session;

/* An answer that is being sent; zeroed: there is none. */
struct eb_grpc_refusal {
    int http_status; /* 0: none */
    size_t sent;     /* bytes of its text */
};

/* Submits the answer, whose http_status is set and which is borrowed until the stream is closed.
 * The result is nghttp2's. */
int eb_grpc_refusal_submit(
    struct nghttp2_session *session, int32_t stream_id, struct eb_grpc_refusal *refusal);
