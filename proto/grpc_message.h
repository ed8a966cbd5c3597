/* Length-prefixed messages as they come out of a stream's bytes, cut anywhere.
 * Thread: one at a time. Memory: a message's buffer comes from an eb_memory and grows with what
 * has arrived, so that a prefix alone cannot claim the announced size. */
#pragma once

#include "proto/grpc_text.h"
#include "proto/gzip.h"
#include "proto/status.h"

/* A message of the peer's. Its bytes come from the session's eb_memory and are the receiver's to
 * give back (eb_grpc_message_give), also after the call or the connection is gone. */
struct eb_grpc_message {
    uint8_t *bytes; /* never NULL */
    size_t size;
    size_t taken_bytes; /* as it was asked of the memory */
    size_t wire_bytes;  /* as it came, without its prefix: less than size where it was compressed */
    /* When its last byte came, on the clock of the session that delivers it; where that kept it
     * back, when the last of the bytes around it did. Not the reader's. */
    uint64_t arrived_ms;
};

/* Gives a message's memory back to `memory`. Accepts a zeroed message. */
void eb_grpc_message_give(const struct eb_memory *memory, struct eb_grpc_message *message);

/* One stream's incoming side. Zeroed is ready, once `memory` and `bytes_max` are set. */
struct eb_grpc_reader {
    const struct eb_memory *memory;
    uint32_t bytes_max;          /* the largest message, as it comes and decompressed */
    eb_gzip_inflate_fn *inflate; /* of compressed messages; NULL: there may be none */
    uint32_t prefix_count;
    uint8_t prefix[EB_GRPC_PREFIX_BYTES];
    struct eb_grpc_message message; /* bytes NULL while the prefix is incomplete */
    size_t filled;
};

enum eb_grpc_read {
    EB_GRPC_READ_MORE,       /* all bytes were used, no message is complete */
    EB_GRPC_READ_MESSAGE,    /* *message is complete and the caller's */
    EB_GRPC_READ_COMPRESSED, /* the rest are failures: the stream cannot be read further */
    EB_GRPC_READ_BROKEN,     /* it is compressed, but cannot be decompressed */
    EB_GRPC_READ_BAD_FLAG,
    EB_GRPC_READ_TOO_LARGE,
    EB_GRPC_READ_TOO_DENSE, /* see EB_GZIP_TOO_DENSE */
    EB_GRPC_READ_NO_MEMORY
};

/* Reads until a message is complete, at most *count bytes; *count becomes the bytes used. */
enum eb_grpc_read eb_grpc_message_read(struct eb_grpc_reader *reader, const uint8_t *bytes,
    size_t *count, struct eb_grpc_message *message);
/* Sets *error for a failure to read; of COMPRESSED as if no encoding had been named. */
void eb_grpc_message_explain(
    const struct eb_grpc_reader *reader, enum eb_grpc_read why, struct eb_error *error);
/* How many of `bytes` are one whole message and its prefix, where the reader is between two: it can
 * be read where it lies, and the reader need not see it. 0: no such message is there, and
 * eb_grpc_message_read says what is. */
size_t eb_grpc_message_peek(
    const struct eb_grpc_reader *reader, const uint8_t *bytes, size_t count);
/* Whether a message has begun and not ended. */
bool eb_grpc_message_is_partial(const struct eb_grpc_reader *reader);
/* Gives back what a partial message holds; the reader is as new. */
void eb_grpc_message_discard(struct eb_grpc_reader *reader);
