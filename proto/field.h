/* Writes the fields of a protobuf message, or counts their bytes. One function per message serves
 * both, so size and content cannot disagree. As proto3 requires, a field with the default value is
 * not written.
 * Thread: pure. Memory: none; a writer's bytes are the caller's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct eb_field_writer {
    uint8_t *out; /* start of the message; NULL: only count */
    size_t bytes; /* bytes written or counted so far */
};

enum { EB_FIELD_WIRE_VARINT = 0, EB_FIELD_WIRE_FIXED64 = 1, EB_FIELD_WIRE_LENGTH = 2 };

static inline size_t eb_field_varint_bytes(uint64_t value)
{
    /* A byte holds seven bits; zero takes one byte too. For all logarithms up to 63 the expression
     * below equals logarithm / 7 + 1, without a division. */
    unsigned logarithm = (unsigned)__builtin_clzll(value | 1) ^ 63;
    return (logarithm * 9 + 73) / 64;
}

static inline void eb_field_put_varint(struct eb_field_writer *writer, uint64_t value)
{
    if (!writer->out) {
        writer->bytes += eb_field_varint_bytes(value);
        return;
    }
    while (value >= 0x80) {
        writer->out[writer->bytes++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    writer->out[writer->bytes++] = (uint8_t)value;
}

/* Writes a field even if it has the default value, as a member of a oneof requires. */
static inline void eb_field_put_present(
    struct eb_field_writer *writer, uint32_t number, uint64_t value)
{
    eb_field_put_varint(writer, (uint64_t)number << 3 | EB_FIELD_WIRE_VARINT);
    eb_field_put_varint(writer, value);
}

/* Bytes of a 32-bit number in its longest form. */
#define EB_FIELD_PADDED_BYTES 5

/* Writes any number in the longest form of a 32-bit varint, so that another number can be written
 * over it. A varint may be longer than necessary: its upper bits are then zeroes. */
static inline void eb_field_set_padded(uint8_t at[EB_FIELD_PADDED_BYTES], uint32_t value)
{
    for (int i = 0; i < EB_FIELD_PADDED_BYTES - 1; i++) {
        at[i] = (uint8_t)(value >> (7 * i) | 0x80);
    }
    at[EB_FIELD_PADDED_BYTES - 1] = (uint8_t)(value >> 28);
}

/* Writes a field whose number has the longest form. */
static inline void eb_field_put_padded(
    struct eb_field_writer *writer, uint32_t number, uint32_t value)
{
    eb_field_put_varint(writer, (uint64_t)number << 3 | EB_FIELD_WIRE_VARINT);
    if (writer->out) {
        eb_field_set_padded(writer->out + writer->bytes, value);
    }
    writer->bytes += EB_FIELD_PADDED_BYTES;
}

/* Writes a uint32, uint64, int64 or bool. */
static inline void eb_field_put_number(
    struct eb_field_writer *writer, uint32_t number, uint64_t value)
{
    if (value != 0) {
        eb_field_put_present(writer, number, value);
    }
}

/* Writes a fixed64. The host's byte order is the wire's. */
static inline void eb_field_put_fixed64(
    struct eb_field_writer *writer, uint32_t number, uint64_t value)
{
    if (value != 0) {
        eb_field_put_varint(writer, (uint64_t)number << 3 | EB_FIELD_WIRE_FIXED64);
        if (writer->out) {
            memcpy(writer->out + writer->bytes, &value, sizeof value);
        }
        writer->bytes += sizeof value;
    }
}

static inline void eb_field_put_double(
    struct eb_field_writer *writer, uint32_t number, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    eb_field_put_fixed64(writer, number, bits);
}

/* Writes an enum's number, which may be any number. protobuf sends negative ones as 64 bits. */
static inline void eb_field_put_enum(struct eb_field_writer *writer, uint32_t number, int32_t value)
{
    eb_field_put_number(writer, number, (uint64_t)(int64_t)value);
}

/* Writes the head of a field of `size` bytes, or of a sub-message, even if `size` is 0. */
static inline void eb_field_put_length(struct eb_field_writer *writer, uint32_t number, size_t size)
{
    eb_field_put_varint(writer, (uint64_t)number << 3 | EB_FIELD_WIRE_LENGTH);
    eb_field_put_varint(writer, size);
}

/* Writes a field's content. If `content` is NULL, leaves room for it. */
static inline void eb_field_put_content(
    struct eb_field_writer *writer, const void *content, size_t size)
{
    if (writer->out && content && size > 0) {
        memcpy(writer->out + writer->bytes, content, size);
    }
    writer->bytes += size;
}

static inline void eb_field_put_bytes(
    struct eb_field_writer *writer, uint32_t number, const void *content, size_t size)
{
    if (size > 0) {
        eb_field_put_length(writer, number, size);
        eb_field_put_content(writer, content, size);
    }
}

static inline void eb_field_put_text(
    struct eb_field_writer *writer, uint32_t number, const char *text)
{
    if (text[0] != '\0') {
        eb_field_put_bytes(writer, number, text, strlen(text));
    }
}

/* Writes a repeated uint64 in packed form, with all elements 0. */
static inline void eb_field_put_zeros(struct eb_field_writer *writer, uint32_t number, size_t count)
{
    if (count == 0) {
        return;
    }
    eb_field_put_length(writer, number, count);
    if (writer->out) {
        memset(writer->out + writer->bytes, 0, count);
    }
    writer->bytes += count;
}

/* Of this many varints, however large they are, the total size is a length that takes one byte. */
#define EB_FIELD_SHORT_COUNT 12

/* Writes a repeated uint64 in packed form. */
static inline void eb_field_put_packed(
    struct eb_field_writer *writer, uint32_t number, const uint64_t *values, size_t count)
{
    if (count == 0) {
        return;
    }
    if (writer->out && count <= EB_FIELD_SHORT_COUNT) {
        eb_field_put_length(writer, number, 0);
        size_t begin = writer->bytes;
        for (size_t i = 0; i < count; i++) {
            eb_field_put_varint(writer, values[i]);
        }
        writer->out[begin - 1] = (uint8_t)(writer->bytes - begin);
        return;
    }
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += eb_field_varint_bytes(values[i]);
    }
    eb_field_put_length(writer, number, size);
    if (!writer->out) {
        writer->bytes += size;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        eb_field_put_varint(writer, values[i]);
    }
}
