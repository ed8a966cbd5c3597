/* Reads the fields of a protobuf message that the guard has passed (guard.h), where they lie: the
 * counterpart of field.h, for messages whose large fields are not to be copied. Bytes that are no
 * message end it early.
 * Thread: pure. Memory: none; what is read borrows from the bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct eb_field_reader {
    const uint8_t *at;
    const uint8_t *end;
};

enum {
    EB_FIELD_READER_VARINT = 0,
    EB_FIELD_READER_FIXED64 = 1,
    EB_FIELD_READER_LENGTH = 2,
    EB_FIELD_READER_FIXED32 = 5
};

struct eb_field_read {
    uint32_t number;
    uint32_t wire_type;
    uint64_t value;              /* of a varint; else 0 */
    struct eb_field_reader data; /* of the others; else empty */
};

static inline struct eb_field_reader eb_field_reader_of(const uint8_t *bytes, size_t size)
{
    return (struct eb_field_reader){bytes, size > 0 ? bytes + size : bytes};
}

static inline size_t eb_field_reader_bytes(const struct eb_field_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* false: there is no whole varint. */
static inline bool eb_field_reader_varint(struct eb_field_reader *reader, uint64_t *value)
{
    uint64_t sum = 0;
    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = sum;
            return true;
        }
    }
    return false;
}

/* false: there is no further field. */
static inline bool eb_field_reader_next(struct eb_field_reader *reader, struct eb_field_read *field)
{
    uint64_t tag = 0;
    uint64_t size = 0;
    if (!eb_field_reader_varint(reader, &tag)) {
        return false;
    }
    field->number = (uint32_t)(tag >> 3);
    field->wire_type = (uint32_t)(tag & 7);
    field->value = 0;
    field->data = (struct eb_field_reader){reader->at, reader->at};
    switch (field->wire_type) {
    case EB_FIELD_READER_VARINT: return eb_field_reader_varint(reader, &field->value);
    case EB_FIELD_READER_FIXED64: size = 8; break;
    case EB_FIELD_READER_FIXED32: size = 4; break;
    case EB_FIELD_READER_LENGTH:
        if (!eb_field_reader_varint(reader, &size)) {
            return false;
        }
        break;
    default: return false;
    }
    if (size > eb_field_reader_bytes(reader)) {
        return false;
    }
    field->data = eb_field_reader_of(reader->at, (size_t)size);
    reader->at += size;
    return true;
}

/* How many numbers a field of a repeated integer adds: one, or those that are packed in it. */
static inline size_t eb_field_reader_count(const struct eb_field_read *field)
{
    size_t count = 0;
    if (field->wire_type == EB_FIELD_READER_VARINT) {
        return 1;
    }
    for (const uint8_t *at = field->data.at; at < field->data.end; at++) {
        count += *at < 0x80;
    }
    return count;
}

/* Writes as many to `out`. */
static inline void eb_field_reader_numbers(const struct eb_field_read *field, uint64_t *out)
{
    struct eb_field_reader packed = field->data;
    if (field->wire_type == EB_FIELD_READER_VARINT) {
        *out = field->value;
        return;
    }
    while (packed.at < packed.end && eb_field_reader_varint(&packed, out)) {
        out++;
    }
}
