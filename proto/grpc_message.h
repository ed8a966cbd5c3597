/* Reads length-prefixed messages from a stream's bytes, which may be cut anywhere.
 * Thread: one at a time. Memory: a message's buffer comes from an eb_memory and grows with the
 * bytes that arrive, so a prefix alone cannot claim the announced size. */
#pragma once

#include "proto/grpc_text.h"
#include "proto/gzip.h"
#include "proto/status.h"

/* A message of the peer. Its bytes come from the session's eb_memory and belong to the receiver,
 * which gives them back (eb_grpc_message_give), even after the call or the connection is gone. */
struct eb_grpc_message {
    uint8_t *bytes; /* never NULL */
    size_t size;
    size_t taken_bytes; /* size of the buffer that was taken from the eb_memory */
    size_t wire_bytes;  /* size on the wire, without the prefix; less than size if compressed */
    /* Time when the message's last byte came, on the clock of the session that delivers it. If the
     * session held the message back, this is the time when the last byte came of those kept
     * together with the message. Not set by the reader. */
    uint64_t arrived_ms;
};

/* Gives a message's memory back to `memory`. Accepts a zeroed message. */
void eb_grpc_message_give(const struct eb_memory *memory, struct eb_grpc_message *message);

/* One stream's incoming side. Ready for use if zeroed, once `memory` and `bytes_max` are set. */
struct eb_grpc_reader {
    const struct eb_memory *memory;
    uint32_t bytes_max;          /* largest message, both compressed and decompressed */
    eb_gzip_inflate_fn *inflate; /* for compressed messages; NULL if none may come */
    uint32_t prefix_count;
    uint8_t prefix[EB_GRPC_PREFIX_BYTES];
    struct eb_grpc_message message; /* its bytes are NULL while the prefix is incomplete */
    size_t filled;
};

enum eb_grpc_read {
    EB_GRPC_READ_MORE,       /* all bytes were used; no message is complete */
    EB_GRPC_READ_MESSAGE,    /* *message is complete and belongs to the caller */
    EB_GRPC_READ_COMPRESSED, /* compressed, but not allowed. This and all below are failures, which
                                end the stream */
    EB_GRPC_READ_BROKEN,     /* compressed, but cannot be decompressed */
    EB_GRPC_READ_BAD_FLAG,
    EB_GRPC_READ_TOO_LARGE,
    EB_GRPC_READ_TOO_DENSE, /* see EB_GZIP_TOO_DENSE */
    EB_GRPC_READ_NO_MEMORY
};

/* Reads until a message is complete, at most *count bytes. Sets *count to the bytes used. */
enum eb_grpc_read eb_grpc_message_read(struct eb_grpc_reader *reader, const uint8_t *bytes,
    size_t *count, struct eb_grpc_message *message);
/* Sets *error for a failure to read. For COMPRESSED, assumes that the peer named no encoding. */
void eb_grpc_message_explain(
    const struct eb_grpc_reader *reader, enum eb_grpc_read why, struct eb_error *error);
/* Returns the size of one whole message with its prefix at the start of `bytes`, if the reader is
 * between two messages. Such a message can be read in place, and the reader need not see it.
 * Returns 0 if there is no such message; eb_grpc_message_read then reads the bytes. */
size_t eb_grpc_message_peek(
    const struct eb_grpc_reader *reader, const uint8_t *bytes, size_t count);
/* Returns whether a message has begun and not ended. */
bool eb_grpc_message_is_partial(const struct eb_grpc_reader *reader);
/* Gives back the memory of a partial message. The reader is ready for a new stream. */
void eb_grpc_message_discard(struct eb_grpc_reader *reader);
