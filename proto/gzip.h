/* Decompresses a whole message that a peer has compressed with gzip.
 * Thread: pure. Memory: the message and zlib's state come from an eb_memory. The state is given
 * back before the function returns. */
#pragma once

#include "proto/memory.h"

#include <stdint.h>

#define EB_GZIP_FREE_BYTES 1048576u
#define EB_GZIP_RATIO_MAX 200u

enum eb_gzip {
    EB_GZIP_DONE,
    EB_GZIP_BROKEN,    /* no gzip member, more than one, or a damaged one */
    EB_GZIP_TOO_LARGE, /* content of more than bytes_max bytes; no memory was taken */
    /* Content of more than EB_GZIP_FREE_BYTES, and of more than EB_GZIP_RATIO_MAX times its
     * compressed size: meant to cost the receiver much more than the sender. No memory was
     * taken. */
    EB_GZIP_TOO_DENSE,
    EB_GZIP_NO_MEMORY
};

/* Bytes taken from an eb_memory. */
struct eb_gzip_bytes {
    uint8_t *bytes; /* never NULL */
    size_t size;
    size_t taken_bytes; /* size of the buffer that was taken from the eb_memory */
};

/* Decompresses `bytes`. Returns EB_GZIP_DONE with *out set; the bytes in *out then belong to the
 * caller. Takes at most 64 KiB for zlib and, for the output, at most bytes_max and at most about a
 * thousand times `size`. */
typedef enum eb_gzip eb_gzip_inflate_fn(const struct eb_memory *memory, const uint8_t *bytes,
    size_t size, uint32_t bytes_max, struct eb_gzip_bytes *out);
eb_gzip_inflate_fn eb_gzip_inflate;
