/* Writes and reads HTTP/2 frames by hand, including frames that a peer may send but nghttp2 never
 * sends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_DATA 0
#define FRAME_HEADERS 1
#define FRAME_PRIORITY 2
#define FRAME_RST_STREAM 3
#define FRAME_SETTINGS 4
#define FRAME_PING 6
#define FRAME_GOAWAY 7
#define FRAME_WINDOW_UPDATE 8
#define FRAME_CONTINUATION 9

#define FLAG_ACK 1
#define FLAG_END_STREAM 1
#define FLAG_END_HEADERS 4

/* Bytes of a header block that refer to a whole field of HPACK's tables. */
#define HPACK_NEWEST 0xbe /* the newest field of the dynamic table */
#define HPACK_METHOD_POST 0x83
#define HPACK_ACCEPT_ENCODING 0x90 /* gzip, deflate */

/* A growing string of bytes. A zeroed one is empty. */
struct frames {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
};

void frames_deinit(struct frames *frames);
void frames_put(struct frames *frames, const void *bytes, size_t count);
/* Begins a frame. The caller adds the `length` bytes of its payload next. */
void frames_head(
    struct frames *frames, size_t length, uint8_t type, uint8_t flags, uint32_t stream_id);
void frames_put32(struct frames *frames, uint32_t value);
/* Adds the client's preface and an empty SETTINGS. */
void frames_open(struct frames *frames);
/* Adds one field as an HPACK literal without indexing. Both texts are shorter than 127 bytes. */
void frames_field(struct frames *frames, const char *name, const char *value);
/* Adds a field whose value has `size` bytes: all are 'a' except the last one, which is `last`.
 * `way` 0x40 puts the field into HPACK's dynamic table, 0 does not. */
void frames_large_field(
    struct frames *frames, uint8_t way, const char *name, size_t size, char last);
void frames_repeat(struct frames *frames, uint8_t byte, size_t count);
/* Adds the HEADERS of a gRPC request. `extra`, which may be NULL, is the name and the value of one
 * more field. */
void frames_request(
    struct frames *frames, uint32_t stream_id, bool ends, const char *const extra[2]);
/* Adds a DATA frame with these bytes. */
void frames_data(
    struct frames *frames, uint32_t stream_id, bool ends, const void *bytes, size_t count);

struct frame {
    size_t length;
    uint8_t type;
    uint8_t flags;
    uint32_t stream_id;
    const uint8_t *payload;
};

/* Reads the frame at *at and moves *at past the frame. Returns false if no whole frame is left. */
bool frames_next(const struct frames *frames, size_t *at, struct frame *frame);
/* Returns how many whole frames of a type there are. *last, if not NULL, becomes the last of
 * them. */
size_t frames_count(const struct frames *frames, uint8_t type, struct frame *last);
