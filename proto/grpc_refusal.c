#include "proto/grpc_refusal.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

#define FIELD_COUNT 2

static const char *find_text(const struct eb_grpc_refusal *refusal)
{
    return refusal->http_status == 405 ? "this port speaks gRPC: the method is POST\n"
                                       : "this port speaks gRPC: the content-type is "
                                         "application/grpc\n";
}

static ssize_t on_refusal_read(nghttp2_session *session, int32_t stream_id, uint8_t *room,
    size_t room_bytes, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session;
    (void)stream_id;
    (void)context;
    struct eb_grpc_refusal *refusal = source->ptr;
    const char *text = find_text(refusal);
    const size_t left = strlen(text) - refusal->sent;
    const size_t count = left < room_bytes ? left : room_bytes;
    memcpy(room, text + refusal->sent, count);
    refusal->sent += count;
    if (count == left) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)count;
}

int eb_grpc_refusal_submit(
    struct nghttp2_session *session, int32_t stream_id, struct eb_grpc_refusal *refusal)
{
    char digits[12];
    snprintf(digits, sizeof digits, "%d", refusal->http_status);
    const nghttp2_nv fields[FIELD_COUNT] = {
        {.name = (uint8_t *)":status",
            .namelen = strlen(":status"),
            .value = (uint8_t *)digits,
            .valuelen = strlen(digits)},
        {.name = (uint8_t *)"content-type",
            .namelen = strlen("content-type"),
            .value = (uint8_t *)"text/plain",
            .valuelen = strlen("text/plain")},
    };
    nghttp2_data_provider provider = {.source = {.ptr = refusal}, .read_callback = on_refusal_read};
    return nghttp2_submit_response(session, stream_id, fields, FIELD_COUNT, &provider);
}
