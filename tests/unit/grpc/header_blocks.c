#include "tests/unit/grpc/header_blocks.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_field(struct reply *reply, const nghttp2_nv *field)
{
    char name[64];
    char value[sizeof reply->message];
    snprintf(name, sizeof name, "%.*s", (int)field->namelen, (const char *)field->name);
    snprintf(value, sizeof value, "%.*s", (int)field->valuelen, (const char *)field->value);
    if (strcmp(name, ":status") == 0) {
        reply->http_status = atoi(value);
    } else if (strcmp(name, "grpc-status") == 0) {
        reply->grpc_status = atoi(value);
    } else if (strcmp(name, "grpc-retry-pushback-ms") == 0) {
        reply->pushback_ms = atoi(value);
    } else if (strcmp(name, "grpc-message") == 0) {
        memcpy(reply->message, value, sizeof value);
    }
}

static void add_block(struct reply *reply, nghttp2_hd_inflater *inflater, const struct frame *frame)
{
    const uint8_t *at = frame->payload;
    size_t left = frame->length;
    int flags = 0;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv field;
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
        if (used < 0) {
            abort();
        }
        at += used;
        left -= (size_t)used;
        if (reply && flags & NGHTTP2_HD_INFLATE_EMIT) {
            add_field(reply, &field);
        }
    }
    nghttp2_hd_inflate_end_headers(inflater);
}

struct reply header_blocks_read(const struct frames *sent, uint32_t stream_id)
{
    struct reply reply = {.http_status = -1, .grpc_status = -1, .pushback_ms = -1};
    nghttp2_hd_inflater *inflater;
    if (nghttp2_hd_inflate_new(&inflater) != 0) {
        abort();
    }
    struct frame frame;
    size_t at = 0;
    while (frames_next(sent, &at, &frame)) {
        if (frame.type == FRAME_HEADERS) {
            add_block(frame.stream_id == stream_id ? &reply : NULL, inflater, &frame);
        }
    }
    nghttp2_hd_inflate_del(inflater);
    return reply;
}
