/* What the header blocks of a server's bytes say, read with nghttp2's decoder.
 * Thread: one at a time. Memory: none kept. */
#pragma once

#include "tests/unit/grpc/frames.h"

struct reply {
    int http_status; /* the last said; -1: none, as the others */
    int grpc_status;
    int pushback_ms;
    char message[1200]; /* grpc-message, still encoded */
};

/* Reads all HEADERS frames of one stream; blocks of other streams are decoded and left alone. */
struct reply header_blocks_read(const struct frames *sent, uint32_t stream_id);
