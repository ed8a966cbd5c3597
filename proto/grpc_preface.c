#include "proto/grpc_preface.h"

#include <assert.h>
#include <string.h>

static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static_assert(sizeof magic - 1 == EB_GRPC_PREFACE_BYTES, "the preface as RFC 9113 has it");

bool eb_grpc_preface_check(struct eb_grpc_preface *preface, const uint8_t *bytes, size_t count)
{
    const size_t left = EB_GRPC_PREFACE_BYTES - preface->count;
    const size_t step = left < count ? left : count;
    if (step > 0 && memcmp(magic + preface->count, bytes, step) != 0) {
        return false;
    }
    preface->count += step;
    return true;
}

bool eb_grpc_preface_is_whole(const struct eb_grpc_preface *preface)
{
    return preface->count == EB_GRPC_PREFACE_BYTES;
}

const char *eb_grpc_preface_answer(uint8_t first)
{
    /* The first letters of HTTP/1's methods: CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, TRACE. */
    return memchr("CDGHOPT", first, strlen("CDGHOPT")) ? "HTTP/1.1 400 Bad Request\r\n"
                                                         "content-type: text/plain\r\n"
                                                         "content-length: 34\r\n"
                                                         "connection: close\r\n\r\n"
                                                         "this port speaks gRPC over HTTP/2\n"
                                                       : "";
}
