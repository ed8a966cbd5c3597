/* Builds HTTP/2 frames with correct lengths from the input of a fuzz target. Mutated raw frames
 * hardly ever get past their first wrong length.
 * Thread: any. Memory: none of its own. */
#pragma once

#include "tests/unit/grpc/frames.h"

/* Header fields that a script refers to by number. */
struct frame_script_fields {
    const char *const (*fields)[2];
    size_t count;
};

/* Adds the frames that a script describes. Each step has a kind, flags, a stream, and the count of
 * the bytes that follow. The high half of the kind byte says how often the frame is repeated, as a
 * power of two. If bit 6 of the stream byte is set, each repetition uses the next stream. Kinds
 * below 10 are HTTP/2 frame types and have these bytes as their payload. The other kinds are built
 * from the bytes:
 *   10, 11  HEADERS, CONTINUATION with the fields that the bytes number
 *   12      DATA with one message, whose compressed flag is the stream byte's highest bit
 *   13      DATA with as many KiB of zeros as the first byte says, at most 15
 *   14      DATA with one compressed message of 5 bytes, or of 50 000 if the first byte is odd
 *   15      a frame type that HTTP/2 does not define */
void frame_script_run(struct frames *out, const struct frame_script_fields *fields,
    const uint8_t *script, size_t size);
