/* Reads the header blocks in a server's output with nghttp2's decoder.
 * Thread: one at a time. Memory: none kept. */
#pragma once

#include "tests/unit/grpc/frames.h"

struct reply {
    int http_status; /* the last one sent; this field and the next two are -1 if none was sent */
    int grpc_status;
    int pushback_ms;
    char message[1200]; /* grpc-message, still encoded */
};

/* Reads all HEADERS frames of one stream. Decodes the blocks of other streams, but ignores their
 * fields. */
struct reply header_blocks_read(const struct frames *sent, uint32_t stream_id);
