#include "tests/unit/grpc/frames.h"

#include <stdlib.h>
#include <string.h>

void frames_deinit(struct frames *frames)
{
    free(frames->bytes);
    *frames = (struct frames){0};
}

void frames_put(struct frames *frames, const void *bytes, size_t count)
{
    if (frames->capacity - frames->size < count) {
        frames->capacity = 2 * (frames->size + count);
        frames->bytes = realloc(frames->bytes, frames->capacity);
        if (!frames->bytes) {
            abort();
        }
    }
    if (count > 0) {
        memcpy(frames->bytes + frames->size, bytes, count);
    }
    frames->size += count;
}

void frames_put32(struct frames *frames, uint32_t value)
{
    const uint8_t bytes[4] = {
        (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    frames_put(frames, bytes, sizeof bytes);
}

void frames_head(
    struct frames *frames, size_t length, uint8_t type, uint8_t flags, uint32_t stream_id)
{
    const uint8_t head[5] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags};
    frames_put(frames, head, sizeof head);
    frames_put32(frames, stream_id);
}

void frames_open(struct frames *frames)
{
    frames_put(frames, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    frames_head(frames, 0, FRAME_SETTINGS, 0, 0);
}

void frames_field(struct frames *frames, const char *name, const char *value)
{
    const uint8_t name_head[2] = {0, (uint8_t)strlen(name)};
    uint8_t value_head = (uint8_t)strlen(value);
    frames_put(frames, name_head, sizeof name_head);
    frames_put(frames, name, strlen(name));
    frames_put(frames, &value_head, 1);
    frames_put(frames, value, strlen(value));
}

/* Adds the HPACK length of a string that is not Huffman-coded. */
static void put_length(struct frames *frames, size_t length)
{
    uint8_t byte = (uint8_t)(length < 127 ? length : 127);
    frames_put(frames, &byte, 1);
    if (length < 127) {
        return;
    }
    for (length -= 127; length >= 128; length /= 128) {
        byte = (uint8_t)(length | 128);
        frames_put(frames, &byte, 1);
    }
    byte = (uint8_t)length;
    frames_put(frames, &byte, 1);
}

void frames_repeat(struct frames *frames, uint8_t byte, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        frames_put(frames, &byte, 1);
    }
}

void frames_large_field(
    struct frames *frames, uint8_t way, const char *name, size_t size, char last)
{
    frames_put(frames, &way, 1);
    put_length(frames, strlen(name));
    frames_put(frames, name, strlen(name));
    put_length(frames, size);
    frames_repeat(frames, 'a', size - 1);
    frames_put(frames, &last, 1);
}

void frames_request(
    struct frames *frames, uint32_t stream_id, bool ends, const char *const extra[2])
{
    static const char *const usual[][2] = {{":method", "POST"}, {":scheme", "http"},
        {":path", "/t/Echo"}, {":authority", "t"}, {"content-type", "application/grpc"}};
    struct frames block = {0};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        if (!extra || strcmp(extra[0], usual[i][0]) != 0) {
            frames_field(&block, usual[i][0], usual[i][1]);
        } else {
            frames_field(&block, extra[0], extra[1]);
            extra = NULL;
        }
    }
    if (extra) {
        frames_field(&block, extra[0], extra[1]);
    }
    uint8_t flags = (uint8_t)(FLAG_END_HEADERS | (ends ? FLAG_END_STREAM : 0));
    frames_head(frames, block.size, FRAME_HEADERS, flags, stream_id);
    frames_put(frames, block.bytes, block.size);
    frames_deinit(&block);
}

void frames_data(
    struct frames *frames, uint32_t stream_id, bool ends, const void *bytes, size_t count)
{
    frames_head(frames, count, FRAME_DATA, ends ? FLAG_END_STREAM : 0, stream_id);
    frames_put(frames, bytes, count);
}

bool frames_next(const struct frames *frames, size_t *at, struct frame *frame)
{
    if (frames->size - *at < 9) {
        return false;
    }
    const uint8_t *head = frames->bytes + *at;
    frame->length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    frame->type = head[3];
    frame->flags = head[4];
    frame->stream_id = (uint32_t)(head[5] & 127) << 24 | (uint32_t)head[6] << 16 |
                       (uint32_t)head[7] << 8 | head[8];
    frame->payload = head + 9;
    if (frames->size - *at - 9 < frame->length) {
        return false;
    }
    *at += 9 + frame->length;
    return true;
}

size_t frames_count(const struct frames *frames, uint8_t type, struct frame *last)
{
    size_t count = 0;
    size_t at = 0;
    struct frame frame;
    while (frames_next(frames, &at, &frame)) {
        if (frame.type == type) {
            count++;
            if (last) {
                *last = frame;
            }
        }
    }
    return count;
}
