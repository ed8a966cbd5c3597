/* Reads a request's header block field by field as it is decoded, and says how large blocks may be.
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

/* Caps on one block. Fields beyond one of them are counted but not read. */
struct eb_grpc_headers_limits {
    uint32_t fields_max;
    uint32_t bytes_max; /* names and values together */
};

/* A block that references no entry of HPACK's tables twice expands to at most the bytes of both
 * tables (4 096 in the dynamic one) plus twice its bytes on the wire (Huffman codes have 5 bits or
 * more). Expansion beyond that costs the server but not the sender, so each such byte counts
 * EB_GRPC_EXPANSION_WEIGHT times. */
#define EB_GRPC_TABLES_BYTES 5120u
#define EB_GRPC_EXPANSION_MAX 2u
#define EB_GRPC_EXPANSION_WEIGHT 4u
/* A block of more than so many limits is an attack, compressed or not. */
#define EB_GRPC_BLOCK_LIMITS_MAX 4u
/* So many bytes on the wire pay for a field beyond the limit: they keep a peer as busy as us. */
#define EB_GRPC_FIELD_WIRE_BYTES 32u

/* Size so far of a header block, a request's or trailers. Zeroed: a block that begins. */
struct eb_grpc_block {
    size_t wire_bytes; /* lengths of its frames that have begun */
    size_t bytes;      /* names and values */
    size_t field_count;
};

/* Returns up to how many bytes a block of `wire_bytes` may expand without any excess. */
size_t eb_grpc_block_bytes_max(size_t wire_bytes, const struct eb_grpc_headers_limits *limits);
/* Returns what the block costs us and not its sender, in bytes: what it expands to beyond good
 * faith, and fields beyond the limit that its bytes on the wire do not pay for, each as many bytes
 * as a field may have on average. SIZE_MAX: the block is an attack. Bytes beyond the limit that
 * were on the wire do not count: proxies forward blocks of clients that know no limit. */
size_t eb_grpc_block_excess(
    const struct eb_grpc_block *block, const struct eb_grpc_headers_limits *limits);

/* What grpc-encoding names: how messages are compressed that are. */
enum eb_grpc_encoding { EB_GRPC_IDENTITY, EB_GRPC_GZIP, EB_GRPC_UNKNOWN_ENCODING };

/* Zeroed is an empty block. */
struct eb_grpc_headers {
    uint64_t timeout_us;  /* at least 1 where a timeout was given, 0 otherwise */
    uint32_t field_count; /* includes those beyond the limits, as `bytes` does */
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

/* Checks a complete block. Returns the HTTP status to answer with. On 200 *error is set: the call
 * may begin if its status is OK; otherwise it is the gRPC answer. */
int eb_grpc_headers_check(const struct eb_grpc_headers *headers,
    const struct eb_grpc_headers_limits *limits, struct eb_error *error);
