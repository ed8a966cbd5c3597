/* A message that its peer has compressed with gzip, decompressed in one piece.
 * Thread: pure. Memory: the message and zlib's own state come from an eb_memory, the latter only
 * until the function returns. */
#pragma once

#include "proto/memory.h"

#include <stdint.h>

#define EB_GZIP_FREE_BYTES 1048576u
#define EB_GZIP_RATIO_MAX 200u

enum eb_gzip {
    EB_GZIP_DONE,
    EB_GZIP_BROKEN,    /* no gzip member, or more than one, or damaged */
    EB_GZIP_TOO_LARGE, /* it would have more than bytes_max; nothing has been taken */
    /* It would have more than EB_GZIP_FREE_BYTES, and more than EB_GZIP_RATIO_MAX times its size:
     * it is made to cost much more than it costs its sender. Nothing has been taken. */
    EB_GZIP_TOO_DENSE,
    EB_GZIP_NO_MEMORY
};

/* Bytes taken from a memory. */
struct eb_gzip_bytes {
    uint8_t *bytes; /* never NULL */
    size_t size;
    size_t taken_bytes; /* as it was asked of the memory */
};

/* `out` is set where DONE is returned, and the caller's. Never takes more than bytes_max, nor more
 * than a thousand times `size`, and some KiB. */
typedef enum eb_gzip eb_gzip_inflate_fn(const struct eb_memory *memory, const uint8_t *bytes,
    size_t size, uint32_t bytes_max, struct eb_gzip_bytes *out);
eb_gzip_inflate_fn eb_gzip_inflate;
