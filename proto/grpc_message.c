#include "proto/grpc_message.h"

#include <assert.h>
#include <string.h>

/* Size of a message's first buffer, which is taken when only the prefix has come: 1 /
 * FIRST_BYTES_PART of the largest message, at least FIRST_BYTES_MIN and at most FIRST_BYTES_MAX.
 * Each time the buffer is full, a buffer GROWTH times as large replaces it. So all copies together
 * are a third of the message. */
#define FIRST_BYTES_MAX (256u * 1024)
#define FIRST_BYTES_PART 64u
#define FIRST_BYTES_MIN 256u
#define GROWTH 4

void eb_grpc_message_give(const struct eb_memory *memory, struct eb_grpc_message *message)
{
    if (message->bytes) {
        memory->give(memory->context, message->bytes, message->taken_bytes);
    }
    *message = (struct eb_grpc_message){0};
}

/* Replaces the partial message's buffer by one of `bytes`. Returns false if out of memory. */
static bool grow_message(struct eb_grpc_reader *reader, size_t bytes)
{
    const struct eb_memory *memory = reader->memory;
    uint8_t *larger = memory->take(memory->context, bytes);
    if (!larger) {
        return false;
    }
    if (reader->message.bytes) {
        memcpy(larger, reader->message.bytes, reader->filled);
        memory->give(memory->context, reader->message.bytes, reader->message.taken_bytes);
    }
    reader->message.bytes = larger;
    reader->message.taken_bytes = bytes;
    return true;
}

/* Returns the size that a prefix announces. */
static uint32_t read_size(const uint8_t *prefix)
{
    return (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 | (uint32_t)prefix[3] << 8 |
           prefix[4];
}

static size_t find_first_bytes(const struct eb_grpc_reader *reader)
{
    size_t part = reader->bytes_max / FIRST_BYTES_PART;
    if (part > FIRST_BYTES_MAX) {
        return FIRST_BYTES_MAX;
    }
    return part < FIRST_BYTES_MIN ? FIRST_BYTES_MIN : part;
}

/* Checks a complete prefix and takes the first buffer. Returns EB_GRPC_READ_MORE if the message can
 * be read. */
static enum eb_grpc_read begin_message(struct eb_grpc_reader *reader)
{
    const uint8_t *prefix = reader->prefix;
    if (prefix[0] > 1) {
        return EB_GRPC_READ_BAD_FLAG;
    }
    if (prefix[0] == 1 && !reader->inflate) {
        return EB_GRPC_READ_COMPRESSED;
    }
    uint32_t size = read_size(prefix);
    if (size > reader->bytes_max) {
        return EB_GRPC_READ_TOO_LARGE;
    }
    reader->message.size = size;
    reader->filled = 0;
    size_t first_bytes = find_first_bytes(reader);
    first_bytes = size < first_bytes ? size : first_bytes;
    return grow_message(reader, first_bytes > 0 ? first_bytes : 1) ? EB_GRPC_READ_MORE
                                                                   : EB_GRPC_READ_NO_MEMORY;
}

/* Adds at most `count` bytes to the message. Returns the number of bytes added: 0 if the message is
 * complete or there is no memory. */
static size_t fill_message(struct eb_grpc_reader *reader, const uint8_t *bytes, size_t count)
{
    struct eb_grpc_message *message = &reader->message;
    if (reader->filled == message->taken_bytes && reader->filled < message->size) {
        size_t larger = message->taken_bytes * GROWTH;
        if (!grow_message(reader, larger < message->size ? larger : message->size)) {
            return 0;
        }
    }
    size_t room = message->taken_bytes < message->size ? message->taken_bytes : message->size;
    size_t step = room - reader->filled < count ? room - reader->filled : count;
    memcpy(message->bytes + reader->filled, bytes, step);
    reader->filled += step;
    return step;
}

/* Replaces the message by its decompressed content. */
static enum eb_grpc_read decompress(struct eb_grpc_reader *reader)
{
    struct eb_grpc_message *message = &reader->message;
    struct eb_gzip_bytes content;
    switch (reader->inflate(
        reader->memory, message->bytes, message->size, reader->bytes_max, &content)) {
    case EB_GZIP_DONE: break;
    case EB_GZIP_BROKEN: return EB_GRPC_READ_BROKEN;
    case EB_GZIP_TOO_LARGE: return EB_GRPC_READ_TOO_LARGE;
    case EB_GZIP_TOO_DENSE: return EB_GRPC_READ_TOO_DENSE;
    case EB_GZIP_NO_MEMORY: return EB_GRPC_READ_NO_MEMORY;
    }
    size_t wire_bytes = message->size;
    eb_grpc_message_give(reader->memory, message);
    *message = (struct eb_grpc_message){.bytes = content.bytes,
        .size = content.size,
        .taken_bytes = content.taken_bytes,
        .wire_bytes = wire_bytes};
    return EB_GRPC_READ_MESSAGE;
}

/* Passes on the message, whose bytes have all come, decompressed if necessary. */
static enum eb_grpc_read end_message(struct eb_grpc_reader *reader, struct eb_grpc_message *message)
{
    enum eb_grpc_read outcome = EB_GRPC_READ_MESSAGE;
    reader->message.wire_bytes = reader->message.size;
    if (reader->prefix[0] == 1) {
        outcome = decompress(reader);
    }
    if (outcome == EB_GRPC_READ_MESSAGE) {
        *message = reader->message;
        reader->message = (struct eb_grpc_message){0};
        reader->prefix_count = 0;
    }
    return outcome;
}

enum eb_grpc_read eb_grpc_message_read(struct eb_grpc_reader *reader, const uint8_t *bytes,
    size_t *count, struct eb_grpc_message *message)
{
    size_t limit = *count;
    size_t used = 0;
    while (reader->prefix_count < EB_GRPC_PREFIX_BYTES && used < limit) {
        reader->prefix[reader->prefix_count++] = bytes[used++];
    }
    *count = used;
    if (reader->prefix_count < EB_GRPC_PREFIX_BYTES) {
        return EB_GRPC_READ_MORE;
    }
    if (!reader->message.bytes) {
        enum eb_grpc_read outcome = begin_message(reader);
        if (outcome != EB_GRPC_READ_MORE) {
            return outcome;
        }
    }
    while (used < limit && reader->filled < reader->message.size) {
        size_t step = fill_message(reader, bytes + used, limit - used);
        if (step == 0) {
            return EB_GRPC_READ_NO_MEMORY;
        }
        used += step;
    }
    *count = used;
    if (reader->filled < reader->message.size) {
        return EB_GRPC_READ_MORE;
    }
    return end_message(reader, message);
}

void eb_grpc_message_explain(
    const struct eb_grpc_reader *reader, enum eb_grpc_read why, struct eb_error *error)
{
    enum eb_status too_much = EB_STATUS_RESOURCE_EXHAUSTED;
    switch (why) {
    case EB_GRPC_READ_COMPRESSED:
        eb_error_set(error, EB_STATUS_INTERNAL,
            "a message is compressed, but grpc-encoding names no encoding");
        return;
    case EB_GRPC_READ_BROKEN:
        eb_error_set(error, EB_STATUS_INTERNAL, "a compressed message cannot be decompressed");
        return;
    case EB_GRPC_READ_BAD_FLAG:
        eb_error_set(error, EB_STATUS_INTERNAL, "a message's compression flag is neither 0 nor 1");
        return;
    case EB_GRPC_READ_TOO_LARGE:
        eb_error_set(
            error, too_much, "the message is larger than the limit of %u bytes", reader->bytes_max);
        return;
    case EB_GRPC_READ_TOO_DENSE:
        eb_error_set(
            error, too_much, "a message's compression ratio is too high: send it uncompressed");
        return;
    case EB_GRPC_READ_NO_MEMORY:
        eb_error_set(error, too_much, "too little memory for the message at the moment");
        return;
    case EB_GRPC_READ_MORE:
    case EB_GRPC_READ_MESSAGE: break;
    }
    assert(false && "a failure");
}

size_t eb_grpc_message_peek(const struct eb_grpc_reader *reader, const uint8_t *bytes, size_t count)
{
    if (reader->prefix_count > 0 || count < EB_GRPC_PREFIX_BYTES || bytes[0] != 0) {
        return 0;
    }
    uint32_t size = read_size(bytes);
    bool is_whole = size <= count - EB_GRPC_PREFIX_BYTES && size <= reader->bytes_max;
    return is_whole ? size + (size_t)EB_GRPC_PREFIX_BYTES : 0;
}

bool eb_grpc_message_is_partial(const struct eb_grpc_reader *reader)
{
    return reader->prefix_count > 0;
}

void eb_grpc_message_discard(struct eb_grpc_reader *reader)
{
    eb_grpc_message_give(reader->memory, &reader->message);
    reader->prefix_count = 0;
    reader->filled = 0;
}
