/* Reads a request's header block field by field as it is decoded, and bounds the size of blocks.
 * Thread: pure. Memory: none. */
#pragma once

#include "proto/status.h"
#include "proto/trace_parent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GRPC_PATH_BYTES 256 /* with its NUL; a longer :path is no method of ours */

/* Room for the longest bearer token after its scheme, and a NUL. */
#define EB_GRPC_BEARER "Bearer "
#define EB_GRPC_TOKEN_BYTES_MAX 256
#define EB_GRPC_AUTHORIZATION_BYTES (sizeof EB_GRPC_BEARER + EB_GRPC_TOKEN_BYTES_MAX)

/* Caps on one block. Fields beyond a cap are counted but not read. */
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
/* A block of more than this many times the limit on bytes is an attack, compressed or not. */
#define EB_GRPC_BLOCK_LIMITS_MAX 4u
/* This many bytes on the wire pay for a field beyond the limit: sending them keeps a peer as busy
 * as the field keeps us. */
#define EB_GRPC_FIELD_WIRE_BYTES 32u

/* The size so far of a header block, which belongs to a request or to trailers. Zeroed at the start
 * of a block. */
struct eb_grpc_block {
    size_t wire_bytes; /* total length of the block's frames that have begun */
    size_t bytes;      /* names and values */
    size_t field_count;
};

/* Returns the number of bytes to which a block of `wire_bytes` may expand without any excess. */
size_t eb_grpc_block_bytes_max(size_t wire_bytes, const struct eb_grpc_headers_limits *limits);
/* Returns the part of the block's cost that we bear and its sender does not, in bytes. Counts the
 * expansion beyond eb_grpc_block_bytes_max, and fields beyond the limit that the bytes on the wire
 * do not pay for. Each such field counts as many bytes as a field may have on average. Returns
 * SIZE_MAX if the block is an attack. Bytes beyond the limit that were on the wire do not count:
 * proxies forward blocks of clients that know no limit. */
size_t eb_grpc_block_excess(
    const struct eb_grpc_block *block, const struct eb_grpc_headers_limits *limits);

/* The value of grpc-encoding: the compression of messages that are compressed. */
enum eb_grpc_encoding { EB_GRPC_IDENTITY, EB_GRPC_GZIP, EB_GRPC_UNKNOWN_ENCODING };

/* Zeroed is an empty block. */
struct eb_grpc_headers {
    uint64_t timeout_us;  /* at least 1 if a timeout was given, 0 otherwise */
    uint32_t field_count; /* includes fields beyond the limits, as `bytes` does */
    uint32_t bytes;
    bool is_over_limit;
    bool is_post;
    bool is_grpc; /* content-type */
    bool is_path_long;
    bool is_timeout_bad;
    bool is_repeated; /* grpc-previous-rpc-attempts says that the call was made before */
    bool has_authorization;
    bool has_trace;
    enum eb_grpc_encoding encoding;
    struct eb_trace_parent trace; /* zeroed if traceparent was invalid or came twice */
    char path[EB_GRPC_PATH_BYTES];
    /* "" if the field was too long or came twice: no server can know such a credential. */
    char authorization[EB_GRPC_AUTHORIZATION_BYTES];
};

/* The name or value of a field, or a part of it. Not NUL-terminated. */
struct eb_grpc_text {
    const char *bytes;
    size_t size;
};

void eb_grpc_headers_add(struct eb_grpc_headers *headers, struct eb_grpc_text name,
    struct eb_grpc_text value, const struct eb_grpc_headers_limits *limits);

/* Checks a complete block. Returns the HTTP status of the answer. If that is 200, *error is set:
 * the call may begin if error->status is OK; otherwise *error is the gRPC answer. */
int eb_grpc_headers_check(const struct eb_grpc_headers *headers,
    const struct eb_grpc_headers_limits *limits, struct eb_error *error);
