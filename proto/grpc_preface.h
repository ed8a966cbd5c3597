/* The first bytes of a connection: HTTP/2's, or those of somebody who has the wrong port.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GRPC_PREFACE_BYTES 24

/* A preface that is being read. Zeroed is ready. */
struct eb_grpc_preface {
    size_t count; /* of its bytes that have come */
};

/* Looks at bytes as they come, for as long as they belong to it. false: they do not. */
bool eb_grpc_preface_check(struct eb_grpc_preface *preface, const uint8_t *bytes, size_t count);
bool eb_grpc_preface_is_whole(const struct eb_grpc_preface *preface);
/* What to say to a client whose first byte this is and that has sent no preface: tells one of
 * HTTP/1.x, which would show our frames as garbage, what it has reached. "" where it is none. */
const char *eb_grpc_preface_answer(uint8_t first);
