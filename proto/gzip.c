#include "proto/gzip.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

/* zlib's window bits (15), plus the number (16) that makes zlib expect gzip's header and
 * trailer. */
#define WINDOW_BITS (15 + 16)
/* Memory for inflating besides its output: a state of some 7 KiB and a window of 32 KiB. */
#define STATE_BYTES (64u * 1024)
#define STATE_ALIGNMENT 64u
#define MEMBER_BYTES_MIN 18u /* header, trailer, and the shortest data between them */
/* Deflate cannot make data smaller than 1 / RATIO_MAX of its size. Input is damaged if its trailer
 * claims a larger content. */
#define RATIO_MAX 1032u

/* The memory of one inflation, handed out piece by piece and given back as a whole. */
struct room {
    uint8_t *bytes;
    size_t used;
};

static void *take_room(void *opaque, unsigned count, unsigned bytes)
{
    struct room *room = opaque;
    uint64_t size = (uint64_t)count * bytes;
    uint64_t rounded = (size + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    if (rounded > STATE_BYTES - room->used) {
        return NULL;
    }
    uint8_t *piece = room->bytes + room->used;
    room->used += (size_t)rounded;
    return piece;
}

static void give_room(void *opaque, void *piece)
{
    (void)opaque;
    (void)piece;
}

/* Returns the size, modulo 2^32, that the member's trailer claims for its content. */
static uint32_t read_claim(const uint8_t *bytes, size_t size)
{
    uint32_t claim;
    memcpy(&claim, bytes + size - sizeof claim, sizeof claim);
    return claim;
}

/* Decompresses all of the input into `out`, which has the claimed size. */
static enum eb_gzip inflate_all(
    struct room *room, const uint8_t *bytes, size_t size, const struct eb_gzip_bytes *out)
{
    z_stream stream = {
        .next_in = (z_const Bytef *)bytes,
        .avail_in = (uInt)size,
        .next_out = out->bytes,
        .avail_out = (uInt)out->size,
        .zalloc = take_room,
        .zfree = give_room,
        .opaque = room,
    };
    if (inflateInit2(&stream, WINDOW_BITS) != Z_OK) {
        return EB_GZIP_NO_MEMORY;
    }
    int outcome = inflate(&stream, Z_FINISH);
    bool is_whole = outcome == Z_STREAM_END && stream.avail_in == 0 && stream.avail_out == 0;
    inflateEnd(&stream);
    if (outcome == Z_MEM_ERROR) {
        return EB_GZIP_NO_MEMORY;
    }
    return is_whole ? EB_GZIP_DONE : EB_GZIP_BROKEN;
}

/* Takes the memory for the output and for zlib, and inflates. */
static enum eb_gzip inflate_into_memory(
    const struct eb_memory *memory, const uint8_t *bytes, size_t size, struct eb_gzip_bytes *out)
{
    struct room room = {.bytes = memory->take(memory->context, STATE_BYTES)};
    if (!room.bytes) {
        return EB_GZIP_NO_MEMORY;
    }
    enum eb_gzip outcome = EB_GZIP_NO_MEMORY;
    out->taken_bytes = out->size > 0 ? out->size : 1;
    out->bytes = memory->take(memory->context, out->taken_bytes);
    if (out->bytes) {
        outcome = inflate_all(&room, bytes, size, out);
    }
    if (out->bytes && outcome != EB_GZIP_DONE) {
        memory->give(memory->context, out->bytes, out->taken_bytes);
    }
    memory->give(memory->context, room.bytes, STATE_BYTES);
    return outcome;
}

enum eb_gzip eb_gzip_inflate(const struct eb_memory *memory, const uint8_t *bytes, size_t size,
    uint32_t bytes_max, struct eb_gzip_bytes *out)
{
    if (size < MEMBER_BYTES_MIN || size > UINT32_MAX) {
        return EB_GZIP_BROKEN;
    }
    *out = (struct eb_gzip_bytes){.size = read_claim(bytes, size)};
    if (out->size / RATIO_MAX > size) {
        return EB_GZIP_BROKEN;
    }
    if (out->size > bytes_max) {
        return EB_GZIP_TOO_LARGE;
    }
    return out->size > EB_GZIP_FREE_BYTES && out->size / EB_GZIP_RATIO_MAX > size
               ? EB_GZIP_TOO_DENSE
               : inflate_into_memory(memory, bytes, size, out);
}
