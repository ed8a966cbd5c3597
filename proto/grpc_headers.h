/* What a request's header block says, judged field by field as it is decoded.
 * Thread: pure. Memory: none. */
#pragma once

#include "proto/status.h"
#include "proto/trace_parent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GRPC_PATH_BYTES 256 /* of :path, its NUL included; a longer one is no method of ours */

/* Of authorization there is room for the longest bearer token behind its scheme, and a NUL. */
#define EB_GRPC_BEARER "Bearer "
#define EB_GRPC_TOKEN_BYTES_MAX 256
#define EB_GRPC_AUTHORIZATION_BYTES (sizeof EB_GRPC_BEARER + EB_GRPC_TOKEN_BYTES_MAX)

/* Caps on one block; beyond one of them its remaining fields are not looked at. */
struct eb_grpc_headers_limits {
    uint32_t fields_max;
    uint32_t bytes_max; /* names and values together */
};

/* What grpc-encoding names: how messages are compressed that are. */
enum eb_grpc_encoding { EB_GRPC_IDENTITY, EB_GRPC_GZIP, EB_GRPC_UNKNOWN_ENCODING };

/* Zeroed is an empty block. */
struct eb_grpc_headers {
    uint64_t timeout_us; /* at least 1 where a timeout was given, 0 otherwise */
    uint32_t field_count;
    uint32_t bytes;
    bool is_over_limit;
    bool is_post;
    bool is_grpc; /* content-type */
    bool is_path_long;
    bool is_timeout_bad;
    bool has_authorization;
    bool has_trace;
    enum eb_grpc_encoding encoding;
    struct eb_trace_parent trace; /* none where traceparent was not good, or came twice */
    char path[EB_GRPC_PATH_BYTES];
    /* "" where it was longer, or came twice: no such thing can be known to a server. */
    char authorization[EB_GRPC_AUTHORIZATION_BYTES];
};

/* One field, or a part of one: neither end is a NUL. */
struct eb_grpc_text {
    const char *bytes;
    size_t size;
};

void eb_grpc_headers_add(struct eb_grpc_headers *headers, struct eb_grpc_text name,
    struct eb_grpc_text value, const struct eb_grpc_headers_limits *limits);

/* How to answer a block that is complete. */
struct eb_grpc_headers_verdict {
    int http_status;       /* 200: the answer is gRPC's */
    enum eb_status status; /* OK: the call may begin */
    const char *text;
};

struct eb_grpc_headers_verdict eb_grpc_headers_check(const struct eb_grpc_headers *headers);
