/* HTTP/2 frames whose lengths fit, as a fuzz target's input describes them: mutations of raw frames
 * hardly ever get past their first wrong length.
 * Thread: any. Memory: none of its own. */
#pragma once

#include "tests/unit/grpc/frames.h"

/* Header fields that a script may name by their number. */
struct frame_script_fields {
    const char *const (*fields)[2];
    size_t count;
};

/* Adds frames. Each is described by its kind, flags, stream and the count of bytes that follow. The
 * high half of the kind's byte says how often it is repeated, by powers of two, and bit 6 of the
 * stream's that each time is for the next stream. Kinds below 10 are HTTP/2's, with these bytes as
 * payload, others are made of them:
 *   10, 11  HEADERS, CONTINUATION with the fields of these numbers
 *   12      DATA with one message, its flag the stream's highest bit
 *   13      DATA with as many KiB of zeros as the first byte says, at most 15
 *   14      DATA with one compressed message: of 5 bytes, or with an odd first byte of 50 000
 *   15      a type that nobody knows */
void frame_script_run(struct frames *out, const struct frame_script_fields *fields,
    const uint8_t *script, size_t size);
