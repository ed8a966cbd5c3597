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
    if (__builtin_expect(reader.at < reader.end && *reader.at < 0x80, 1)) {
        return (struct eb_field_varint){*reader.at, reader.at + 1};
    }
    /* Most lengths are no longer than this. */
    if (reader.end - reader.at >= 2 && reader.at[1] < 0x80) {
        uint64_t value = (reader.at[0] & 0x7Fu) | (uint64_t)reader.at[1] << 7;
        return (struct eb_field_varint){value, reader.at + 2};
    }
    return eb_field_reader_long_varint(reader.at, reader.end, bytes_max);
}

/* These move past a part of a field. They return what is wrong, or NULL. */

/* A tag. *tag is 0 where it cannot be told. */
static inline const char *eb_field_reader_tag(struct eb_field_reader *reader, uint32_t *tag)
{
    struct eb_field_varint varint = eb_field_reader_varint(*reader, EB_FIELD_READER_TAG_BYTES_MAX);
    *tag = 0;
    if (!varint.end || varint.value > UINT32_MAX) {
        return "holds a tag that is none";
    }
    reader->at = varint.end;
    *tag = (uint32_t)varint.value;
    return NULL;
}

/* What follows a tag of wire type VARINT. */
static inline const char *eb_field_reader_number(struct eb_field_reader *reader, uint64_t *value)
{
    struct eb_field_varint varint =
        eb_field_reader_varint(*reader, EB_FIELD_READER_VARINT_BYTES_MAX);
    if (!varint.end) {
        return "is a varint that does not end";
    }
    reader->at = varint.end;
    *value = varint.value;
    return NULL;
}

/* So many bytes. */
static inline const char *eb_field_reader_pass(
    struct eb_field_reader *reader, uint64_t bytes, struct eb_field_reader *data)
{
    if (bytes > eb_field_reader_bytes(reader)) {
        return "ends past its message";
    }
    *data = (struct eb_field_reader){reader->at, reader->at + bytes};
    reader->at += bytes;
    return NULL;
}

/* What follows a tag of wire type LENGTH_PREFIXED: the length, and the bytes. */
static inline const char *eb_field_reader_content(
    struct eb_field_reader *reader, struct eb_field_reader *data)
{
    struct eb_field_varint length =
        eb_field_reader_varint(*reader, EB_FIELD_READER_LENGTH_BYTES_MAX);
    if (!length.end) {
        return "has a length that does not end";
    }
    reader->at = length.end;
    return eb_field_reader_pass(reader, length.value, data);
}

/* What follows a tag, whichever that is. */
static inline const char *eb_field_reader_data(
    struct eb_field_reader *reader, struct eb_field *field)
{
    field->data = (struct eb_field_reader){reader->at, reader->at};
    switch (field->wire_type) {
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED: return eb_field_reader_content(reader, &field->data);
    case PROTOBUF_C_WIRE_TYPE_VARINT: {
        const char *failure = eb_field_reader_number(reader, &field->varint);
        field->data.end = reader->at;
        return failure;
    }
    case PROTOBUF_C_WIRE_TYPE_64BIT: return eb_field_reader_pass(reader, 8, &field->data);
    case PROTOBUF_C_WIRE_TYPE_32BIT: return eb_field_reader_pass(reader, 4, &field->data);
    default: return "has a wire type that is not taken";
    }
}

/* A field of that tag, of which no more is known. */
static inline struct eb_field eb_field_reader_field_of(uint32_t tag)
{
    return (struct eb_field){
        .tag = tag, .number = tag >> 3, .wire_type = (ProtobufCWireType)(tag & 7)};
}

/* Moves past one field, of which there must be a byte. Returns what is wrong, or NULL;
 * field->number is 0 where it cannot be told. */
static inline const char *eb_field_reader_read(
    struct eb_field_reader *reader, struct eb_field *field)
{
    uint32_t tag;
    const char *failure = eb_field_reader_tag(reader, &tag);
    *field = eb_field_reader_field_of(tag);
    if (!failure && field->number == 0) {
        failure = "holds a field of number 0";
    }
    return failure ? failure : eb_field_reader_data(reader, field);
}

/* Moves past the next field where it is of that number, below 16, and of wire type
 * LENGTH_PREFIXED. false: it is another, or cannot be read, and nothing has moved. */
static inline bool eb_field_reader_take_next(
    struct eb_field_reader *reader, uint32_t number, struct eb_field_reader *data)
{
    if (reader->at >= reader->end || *reader->at != EB_TAG_BYTES(number)) {
        return false;
    }
    struct eb_field_reader rest = {reader->at + 1, reader->end};
    if (eb_field_reader_content(&rest, data)) {
        return false;
    }
    reader->at = rest.at;
    return true;
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
