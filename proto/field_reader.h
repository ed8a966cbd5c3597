/* Reads the fields of a serialised protobuf message, one after the other, as they lie there: what
 * they mean is the caller's.
 * Thread: pure. Memory: none; what is read is borrowed from the message's bytes. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_FIELD_READER_TAG_BYTES_MAX 5
#define EB_FIELD_READER_LENGTH_BYTES_MAX 5 /* protobuf-c takes no longer ones */
#define EB_FIELD_READER_VARINT_BYTES_MAX 10

/* Tags, for a switch over what a message's fields may be. */
#define EB_TAG_NUMBER(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_VARINT)
#define EB_TAG_FIXED64(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_64BIT)
#define EB_TAG_BYTES(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
#define EB_TAG_FIXED32(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_32BIT)

/* Bytes that are still to be looked at. */
struct eb_field_reader {
    const uint8_t *at;
    const uint8_t *end;
};

/* One field. */
struct eb_field {
    uint32_t tag; /* number and wire type, as EB_TAG_... say */
    uint32_t number;
    ProtobufCWireType wire_type;
    uint64_t varint;             /* of wire type VARINT */
    struct eb_field_reader data; /* without tag and length; a varint's own bytes too */
};

static inline struct eb_field_reader eb_field_reader_of(const uint8_t *bytes, size_t size)
{
    return (struct eb_field_reader){bytes, size > 0 ? bytes + size : bytes};
}

static inline size_t eb_field_reader_bytes(const struct eb_field_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* A number, and where it ends. */
struct eb_field_varint {
    uint64_t value;
    const uint8_t *end; /* NULL: it does not end within so many bytes, or not within the reader's */
};

/* As eb_field_reader_varint of [at, end), of any length. */
struct eb_field_varint eb_field_reader_long_varint(
    const uint8_t *at, const uint8_t *end, size_t bytes_max);

/* By value, so that a compiler can keep all of it in registers. */
static inline struct eb_field_varint eb_field_reader_varint(
    struct eb_field_reader reader, size_t bytes_max)
{
    if (reader.at < reader.end && *reader.at < 0x80) {
        return (struct eb_field_varint){*reader.at, reader.at + 1};
    }
    /* Most lengths are no longer than this. */
    if (reader.end - reader.at >= 2 && reader.at[1] < 0x80) {
        const uint64_t value = (reader.at[0] & 0x7Fu) | (uint64_t)reader.at[1] << 7;
        return (struct eb_field_varint){value, reader.at + 2};
    }
    return eb_field_reader_long_varint(reader.at, reader.end, bytes_max);
}

/* Sets what follows the tag and moves past it. Returns what is wrong, or NULL. */
static inline const char *eb_field_reader_data(
    struct eb_field_reader *reader, struct eb_field *field)
{
    struct eb_field_varint varint = {.value = 0};
    field->data.at = reader->at;
    switch (field->wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        varint = eb_field_reader_varint(*reader, EB_FIELD_READER_VARINT_BYTES_MAX);
        if (!varint.end) {
            return "is a varint that does not end";
        }
        field->varint = varint.value;
        field->data.end = varint.end;
        reader->at = varint.end;
        return NULL;
    case PROTOBUF_C_WIRE_TYPE_64BIT: varint.value = 8; break;
    case PROTOBUF_C_WIRE_TYPE_32BIT: varint.value = 4; break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        varint = eb_field_reader_varint(*reader, EB_FIELD_READER_LENGTH_BYTES_MAX);
        if (!varint.end) {
            return "has a length that does not end";
        }
        reader->at = varint.end;
        break;
    default: return "has a wire type that is not taken";
    }
    if (varint.value > eb_field_reader_bytes(reader)) {
        return "ends past its message";
    }
    field->data.at = reader->at;
    reader->at += varint.value;
    field->data.end = reader->at;
    return NULL;
}

/* Moves past one field, of which there must be a byte. Returns what is wrong, or NULL;
 * field->number is 0 where it cannot be told. */
static inline const char *eb_field_reader_read(
    struct eb_field_reader *reader, struct eb_field *field)
{
    const struct eb_field_varint tag =
        eb_field_reader_varint(*reader, EB_FIELD_READER_TAG_BYTES_MAX);
    field->tag = 0;
    field->number = 0;
    field->varint = 0;
    if (!tag.end || tag.value > UINT32_MAX) {
        return "holds a tag that is none";
    }
    reader->at = tag.end;
    field->tag = (uint32_t)tag.value;
    field->number = field->tag >> 3;
    field->wire_type = (ProtobufCWireType)(tag.value & 7);
    if (field->number == 0) {
        return "holds a field of number 0";
    }
    return eb_field_reader_data(reader, field);
}

/* Where what is wrong is of no interest, or nothing can be. false: there is no further field. */
static inline bool eb_field_reader_next(struct eb_field_reader *reader, struct eb_field *field)
{
    return reader->at < reader->end && !eb_field_reader_read(reader, field);
}

/* How many fields of that number there are, up to the first that cannot be read. */
size_t eb_field_reader_count(struct eb_field_reader reader, uint32_t number);
/* Of packed varints, where the first begins that does not end; NULL: all of them do. */
const uint8_t *eb_field_reader_find_endless(struct eb_field_reader packed);
