#include "proto/guard.h"

#include "proto/field_reader.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 512

/* A message that is being read. */
struct frame {
    const ProtobufCMessageDescriptor *descriptor;
    const ProtobufCFieldDescriptor *field; /* field of the parent that holds this message; NULL at
                                              the top */
    const uint8_t *first;
    struct eb_field_reader rest;
    uint64_t seen; /* bit i: singular sub-message descriptor->fields[i] has occurred */
};

struct walk {
    const struct eb_guard_limits *limits;
    struct eb_error *error;
    uint32_t field_count;
    uint32_t submessage_count;
    size_t depth; /* frames in use */
    struct frame frames[EB_GUARD_DEPTH_MAX];
};

/* Returns the descriptor of field `number`, or NULL. */
static const ProtobufCFieldDescriptor *find_guarded_field(
    const ProtobufCMessageDescriptor *descriptor, uint32_t number)
{
    /* A descriptor's fields are sorted by number and the numbers are distinct, so the index of
     * field `number` is at most number - 1. */
    size_t i = number < descriptor->n_fields ? number : descriptor->n_fields;
    while (i > 0 && descriptor->fields[i - 1].id > number) {
        i--;
    }
    return i > 0 && descriptor->fields[i - 1].id == number ? &descriptor->fields[i - 1] : NULL;
}

/* A text that is cut when its buffer is full. */
struct path {
    size_t used;
    char text[PATH_BYTES];
};

__attribute__((format(printf, 2, 3))) static void append_reason(
    struct path *path, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof path->text - path->used;
    int length = vsnprintf(path->text + path->used, room, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    path->used += (size_t)length < room ? (size_t)length : room - 1;
}

/* Writes a path such as "LookupRequest.queries[3].table". Leaves out the last field if its number
 * is 0. */
static void write_path(const struct walk *walk, uint32_t number, struct path *path)
{
    const struct frame *frame = &walk->frames[0];
    append_reason(path, "%s", frame->descriptor->short_name);
    for (size_t i = 1; i < walk->depth; i++) {
        const struct frame *parent = frame;
        frame = &walk->frames[i];
        append_reason(path, ".%s", frame->field->name);
        if (frame->field->label == PROTOBUF_C_LABEL_REPEATED) {
            /* The parent has been read up to this frame's end, so the count includes this frame. */
            struct eb_field_reader read = {parent->first, parent->rest.at};
            append_reason(path, "[%zu]", eb_field_reader_count(read, frame->field->id) - 1);
        }
    }
    const ProtobufCFieldDescriptor *field = find_guarded_field(frame->descriptor, number);
    if (field) {
        append_reason(path, ".%s", field->name);
    } else if (number != 0) {
        append_reason(path, ".%u", number);
    }
}

/* Refuses the message. `what` says what is wrong with field `number` (or with the innermost message
 * if that is 0), and `at` points to the wrong byte. Always returns false. */
static bool refuse_guarded(const struct walk *walk, enum eb_status status, uint32_t number,
    const uint8_t *at, const char *what)
{
    struct path path = {.used = 0};
    write_path(walk, number, &path);
    size_t offset = (size_t)(at - walk->frames[0].first);
    eb_error_set(walk->error, status, "%s %s (byte %zu)", path.text, what, offset);
    return false;
}

static ProtobufCWireType wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM: return PROTOBUF_C_WIRE_TYPE_VARINT;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return PROTOBUF_C_WIRE_TYPE_64BIT;
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT: return PROTOBUF_C_WIRE_TYPE_32BIT;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: break;
    }
    return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
}

/* Moves past one character of UTF-8. Returns false if the next bytes are not a character. */
static bool read_character(struct eb_field_reader *reader)
{
    uint8_t lead = *reader->at++;
    if (lead < 0x80) {
        return true;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return false;
    }
    size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    /* The second byte's range excludes overlong forms, surrogates and values above U+10FFFF. */
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (eb_field_reader_bytes(reader) < more) {
        return false;
    }
    for (size_t i = 0; i < more; i++) {
        uint8_t byte = *reader->at++;
        if (byte < low || byte > high) {
            return false;
        }
        low = 0x80;
        high = 0xBF;
    }
    return true;
}

static bool check_guarded_text(const struct walk *walk, const struct eb_field *field)
{
    struct eb_field_reader reader = field->data;
    if (eb_field_reader_bytes(&reader) > walk->limits->name_bytes_max) {
        return refuse_guarded(walk, EB_STATUS_RESOURCE_EXHAUSTED, field->number, reader.at,
            "is longer than a name may be");
    }
    while (reader.at < reader.end) {
        const uint8_t *at = reader.at;
        if (*at == 0) {
            return refuse_guarded(
                walk, EB_STATUS_INVALID_ARGUMENT, field->number, at, "contains a NUL");
        }
        if (!read_character(&reader)) {
            return refuse_guarded(
                walk, EB_STATUS_INVALID_ARGUMENT, field->number, at, "is not UTF-8");
        }
    }
    return true;
}

static bool check_guarded_packed(
    const struct walk *walk, const struct eb_field *field, ProtobufCWireType element)
{
    size_t size = eb_field_reader_bytes(&field->data);
    size_t width = element == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4;
    if (element != PROTOBUF_C_WIRE_TYPE_VARINT) {
        return size % width == 0 || refuse_guarded(walk, EB_STATUS_INTERNAL, field->number,
                                        field->data.at, "ends inside an element");
    }
    const uint8_t *endless = eb_field_reader_find_endless(field->data);
    return !endless || refuse_guarded(walk, EB_STATUS_INTERNAL, field->number, endless,
                           "contains an unterminated varint");
}

/* Begins to read the sub-message in `bytes`. Returns false if the sub-message is refused. */
static bool enter(
    struct walk *walk, const ProtobufCFieldDescriptor *field, const struct eb_field *bytes)
{
    struct frame *parent = &walk->frames[walk->depth - 1];
    const uint8_t *at = bytes->data.at;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        if (walk->submessage_count++ == walk->limits->submessages_max) {
            return refuse_guarded(walk, EB_STATUS_RESOURCE_EXHAUSTED, field->id, at,
                "has more elements than a message may have");
        }
    } else {
        size_t i = (size_t)(field - parent->descriptor->fields);
        assert(i < 64);
        if (parent->seen >> i & 1) {
            return refuse_guarded(walk, EB_STATUS_INTERNAL, field->id, at, "occurs twice");
        }
        parent->seen |= UINT64_C(1) << i;
    }
    if (walk->depth == EB_GUARD_DEPTH_MAX) {
        return refuse_guarded(
            walk, EB_STATUS_RESOURCE_EXHAUSTED, field->id, at, "is nested too deeply");
    }
    walk->frames[walk->depth++] = (struct frame){
        .descriptor = field->descriptor, .field = field, .first = at, .rest = bytes->data};
    return true;
}

static bool check_field(struct walk *walk, const struct eb_field *bytes)
{
    const struct frame *frame = &walk->frames[walk->depth - 1];
    const ProtobufCFieldDescriptor *field = find_guarded_field(frame->descriptor, bytes->number);
    if (!field) {
        return true;
    }
    ProtobufCWireType declared = wire_type_of(field->type);
    if (bytes->wire_type != declared) {
        if (field->label == PROTOBUF_C_LABEL_REPEATED &&
            bytes->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
            return check_guarded_packed(walk, bytes, declared);
        }
        return refuse_guarded(walk, EB_STATUS_INTERNAL, bytes->number, bytes->data.at,
            "has a wire type that differs from the declared one");
    }
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        return check_guarded_text(walk, bytes);
    }
    return field->type != PROTOBUF_C_TYPE_MESSAGE || enter(walk, field, bytes);
}

bool eb_guard_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size,
    const struct eb_guard_limits *limits, struct eb_error *error)
{
    struct walk walk;
    walk.limits = limits;
    walk.error = error;
    walk.field_count = 0;
    walk.submessage_count = 0;
    walk.depth = 1;
    walk.frames[0] = (struct frame){.descriptor = descriptor, .first = bytes};
    walk.frames[0].rest = eb_field_reader_of(bytes, size);
    while (walk.depth > 0) {
        struct eb_field_reader *rest = &walk.frames[walk.depth - 1].rest;
        if (rest->at == rest->end) {
            walk.depth--;
            continue;
        }
        const uint8_t *at = rest->at;
        struct eb_field field;
        const char *failure = eb_field_reader_read(rest, &field);
        if (failure) {
            return refuse_guarded(&walk, EB_STATUS_INTERNAL, field.number, at, failure);
        }
        if (walk.field_count++ == limits->fields_max) {
            return refuse_guarded(&walk, EB_STATUS_RESOURCE_EXHAUSTED, field.number, at,
                "exceeds the number of fields that a message may have");
        }
        if (!check_field(&walk, &field)) {
            return false;
        }
    }
    return true;
}

uint64_t eb_guard_find_varint(const uint8_t *bytes, size_t size, uint32_t number)
{
    struct eb_field_reader reader = eb_field_reader_of(bytes, size);
    struct eb_field field;
    uint64_t value = 0;
    while (eb_field_reader_next(&reader, &field)) {
        if (field.number == number && field.wire_type == PROTOBUF_C_WIRE_TYPE_VARINT) {
            value = field.varint;
        }
    }
    return value;
}

bool eb_guard_is_text(const uint8_t *bytes, size_t size)
{
    struct eb_field_reader reader = eb_field_reader_of(bytes, size);
    /* Most names are ASCII. */
    uint64_t word;
    while (eb_field_reader_bytes(&reader) >= sizeof word) {
        memcpy(&word, reader.at, sizeof word);
        if (!eb_guard_is_plain(word)) {
            break;
        }
        reader.at += sizeof word;
    }
    while (reader.at < reader.end) {
        if (*reader.at == 0 || !read_character(&reader)) {
            return false;
        }
    }
    return true;
}
