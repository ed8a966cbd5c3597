/* Reads the fields of a serialised protobuf message one after the other. The caller interprets
 * them.
 * Thread: pure. Memory: none; everything read is borrowed from the message's bytes. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_FIELD_READER_TAG_BYTES_MAX 5
#define EB_FIELD_READER_LENGTH_BYTES_MAX 5 /* longer lengths are refused by protobuf-c */
#define EB_FIELD_READER_VARINT_BYTES_MAX 10

/* Tags, for a switch over a message's possible fields. */
#define EB_TAG_NUMBER(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_VARINT)
#define EB_TAG_FIXED64(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_64BIT)
#define EB_TAG_BYTES(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
#define EB_TAG_FIXED32(number) ((number) << 3 | PROTOBUF_C_WIRE_TYPE_32BIT)

/* The bytes that are not read yet. */
struct eb_field_reader {
    const uint8_t *at;
    const uint8_t *end;
};

/* One field. */
struct eb_field {
    uint32_t tag; /* number and wire type, as in EB_TAG_... */
    uint32_t number;
    ProtobufCWireType wire_type;
    uint64_t varint;             /* value, if of wire type VARINT */
    struct eb_field_reader data; /* content without tag and length; for a varint, the bytes of the
                                    number */
};

static inline struct eb_field_reader eb_field_reader_of(const uint8_t *bytes, size_t size)
{
    return (struct eb_field_reader){bytes, size > 0 ? bytes + size : bytes};
}

static inline size_t eb_field_reader_bytes(const struct eb_field_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* A number, and the position of its end. */
struct eb_field_varint {
    uint64_t value;
    const uint8_t *end; /* NULL if the number does not end within bytes_max bytes or within the
                           reader */
};

/* Does the same as eb_field_reader_varint for [at, end), for varints of any length. */
struct eb_field_varint eb_field_reader_long_varint(
    const uint8_t *at, const uint8_t *end, size_t bytes_max);

/* Reads a varint. Takes the reader by value, so that a compiler can keep all of it in registers. */
static inline struct eb_field_varint eb_field_reader_varint(
    struct eb_field_reader reader, size_t bytes_max)
{
    if (__builtin_expect(reader.at < reader.end && *reader.at < 0x80, 1)) {
        return (struct eb_field_varint){*reader.at, reader.at + 1};
    }
    /* Most lengths have at most two bytes. */
    if (reader.end - reader.at >= 2 && reader.at[1] < 0x80) {
        uint64_t value = (reader.at[0] & 0x7Fu) | (uint64_t)reader.at[1] << 7;
        return (struct eb_field_varint){value, reader.at + 2};
    }
    return eb_field_reader_long_varint(reader.at, reader.end, bytes_max);
}

/* The following functions move past a part of a field. They return NULL, or a text that says what
 * is wrong with that part. */

/* Reads a tag. Sets *tag to 0 if the tag cannot be read. */
static inline const char *eb_field_reader_tag(struct eb_field_reader *reader, uint32_t *tag)
{
    struct eb_field_varint varint = eb_field_reader_varint(*reader, EB_FIELD_READER_TAG_BYTES_MAX);
    *tag = 0;
    if (!varint.end || varint.value > UINT32_MAX) {
        return "contains an invalid tag";
    }
    reader->at = varint.end;
    *tag = (uint32_t)varint.value;
    return NULL;
}

/* Reads the content after a tag of wire type VARINT. */
static inline const char *eb_field_reader_number(struct eb_field_reader *reader, uint64_t *value)
{
    struct eb_field_varint varint =
        eb_field_reader_varint(*reader, EB_FIELD_READER_VARINT_BYTES_MAX);
    if (!varint.end) {
        return "is an unterminated varint";
    }
    reader->at = varint.end;
    *value = varint.value;
    return NULL;
}

/* Moves past `bytes` bytes. */
static inline const char *eb_field_reader_pass(
    struct eb_field_reader *reader, uint64_t bytes, struct eb_field_reader *data)
{
    if (bytes > eb_field_reader_bytes(reader)) {
        return "extends past the end of its message";
    }
    *data = (struct eb_field_reader){reader->at, reader->at + bytes};
    reader->at += bytes;
    return NULL;
}

/* Reads the content after a tag of wire type LENGTH_PREFIXED: the length and the bytes. */
static inline const char *eb_field_reader_content(
    struct eb_field_reader *reader, struct eb_field_reader *data)
{
    struct eb_field_varint length =
        eb_field_reader_varint(*reader, EB_FIELD_READER_LENGTH_BYTES_MAX);
    if (!length.end) {
        return "has an unterminated length";
    }
    reader->at = length.end;
    return eb_field_reader_pass(reader, length.value, data);
}

/* Reads the content after a tag of any wire type. */
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
    default: return "has an unsupported wire type";
    }
}

/* Returns a field with that tag and no content yet. */
static inline struct eb_field eb_field_reader_field_of(uint32_t tag)
{
    return (struct eb_field){
        .tag = tag, .number = tag >> 3, .wire_type = (ProtobufCWireType)(tag & 7)};
}

/* Moves past one field. The reader must have at least one byte. Returns NULL, or a text that says
 * what is wrong with the field; field->number is 0 if the tag cannot be read. */
static inline const char *eb_field_reader_read(
    struct eb_field_reader *reader, struct eb_field *field)
{
    uint32_t tag;
    const char *failure = eb_field_reader_tag(reader, &tag);
    *field = eb_field_reader_field_of(tag);
    if (!failure && field->number == 0) {
        failure = "contains a field with number 0";
    }
    return failure ? failure : eb_field_reader_data(reader, field);
}

/* Moves past the next field if it has that number, which is below 16, and wire type
 * LENGTH_PREFIXED. Otherwise, or if the field cannot be read, returns false and leaves the reader
 * unchanged. */
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

/* Moves past the next field, for callers that need no explanation or know the message to be valid.
 * Returns false if there is no further field. */
static inline bool eb_field_reader_next(struct eb_field_reader *reader, struct eb_field *field)
{
    return reader->at < reader->end && !eb_field_reader_read(reader, field);
}

/* Returns how many fields have that number, up to the first field that cannot be read. */
size_t eb_field_reader_count(struct eb_field_reader reader, uint32_t number);
/* Returns the start of the first packed varint that has no last byte, or NULL if all varints are
 * complete. */
const uint8_t *eb_field_reader_find_endless(struct eb_field_reader packed);
