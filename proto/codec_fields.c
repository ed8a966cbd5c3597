#include "proto/codec_fields.h"

#include "proto/unpack.h"

#include <assert.h>
#include <string.h>

/* By kind: bit w says that a field may be of wire type w. */
static const uint8_t wire_types[] = {
    [EB_CODEC_UNKNOWN] = 0xFF,
    [EB_CODEC_NUMBER] = 1 << PROTOBUF_C_WIRE_TYPE_VARINT,
    [EB_CODEC_FIXED64] = 1 << PROTOBUF_C_WIRE_TYPE_64BIT,
    [EB_CODEC_BYTES] = 1 << PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
    [EB_CODEC_NAME] = 1 << PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
    [EB_CODEC_INTEGERS] =
        1 << PROTOBUF_C_WIRE_TYPE_VARINT | 1 << PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
    [EB_CODEC_FLOATS] = 1 << PROTOBUF_C_WIRE_TYPE_32BIT | 1 << PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
};

/* Whether the guard lets a field pass. */
static inline bool is_as_declared(const struct eb_field *field, const struct eb_codec_rules *rules)
{
    const enum eb_codec_kind kind = rules->kinds[field->number];
    const size_t size = eb_field_reader_bytes(&field->data);
    if (!(wire_types[kind] >> field->wire_type & 1)) {
        return false;
    }
    switch (kind) {
    case EB_CODEC_UNKNOWN:
    case EB_CODEC_NUMBER:
    case EB_CODEC_FIXED64:
    case EB_CODEC_BYTES: break;
    case EB_CODEC_NAME: return eb_guard_is_name(field->data.at, size, rules->limits);
    case EB_CODEC_INTEGERS: return !eb_field_reader_find_endless(field->data);
    case EB_CODEC_FLOATS: return size % sizeof(float) == 0;
    }
    return true;
}

bool eb_codec_fields_init(struct eb_codec_fields *fields, struct eb_field_reader message,
    const struct eb_codec_rules *rules)
{
    uint32_t field_count = 0; /* of a message that is far shorter than this can count */
    fields->message = message;
    fields->seen = 0;
    memset(fields->counts, 0, sizeof fields->counts);
    for (; message.at < message.end; field_count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field)) {
            return false;
        }
        if (field.number >= EB_CODEC_FIELDS_END) {
            continue;
        }
        if (!is_as_declared(&field, rules)) {
            return false;
        }
        const bool is_number = field.wire_type == PROTOBUF_C_WIRE_TYPE_VARINT;
        fields->seen |= UINT32_C(1) << field.number;
        fields->counts[field.number]++;
        fields->last[field.number].bytes = field.data.at;
        fields->last[field.number].value =
            is_number ? field.varint : eb_field_reader_bytes(&field.data);
    }
    const uint32_t left = rules->limits->fields_max - *rules->field_count;
    if (field_count > left) {
        return false;
    }
    *rules->field_count += field_count;
    return true;
}

struct eb_field_reader eb_codec_fields_next(struct eb_field_reader *message, uint32_t number)
{
    struct eb_field field;
    do {
        const bool is_there = eb_field_reader_next(message, &field);
        assert(is_there);
        (void)is_there;
    } while (field.number != number);
    return field.data;
}

const char *eb_codec_fields_keep(
    struct eb_field_reader text, struct eb_arena *arena, struct eb_error *error)
{
    size_t size = eb_field_reader_bytes(&text);
    char *kept = eb_unpack_take(arena, size + 1, sizeof *kept, error);
    if (kept) {
        memcpy(kept, text.at, size);
        kept[size] = '\0';
    }
    return kept;
}

const char *eb_codec_fields_text(const struct eb_codec_fields *fields, uint32_t number,
    struct eb_arena *arena, struct eb_error *error)
{
    size_t size = eb_codec_fields_value(fields, number);
    if (size == 0) {
        return "";
    }
    return eb_codec_fields_keep(eb_field_reader_of(fields->last[number].bytes, size), arena, error);
}

/* How many numbers a field of a repeated integer adds: one, or those that are packed in it. */
static size_t count_integers(struct eb_field_reader data)
{
    size_t count = 0;
    for (; data.at < data.end; data.at++) {
        count += *data.at < 0x80;
    }
    return count;
}

/* Writes as many to `out`. Returns where they end. */
static int64_t *copy_integers(struct eb_field_reader data, int64_t *out)
{
    while (data.at < data.end) {
        const struct eb_field_varint varint =
            eb_field_reader_varint(data, EB_FIELD_READER_VARINT_BYTES_MAX);
        assert(varint.end);
        *out++ = (int64_t)varint.value;
        data.at = varint.end;
    }
    return out;
}

const int64_t *eb_codec_fields_integers(const struct eb_codec_fields *fields, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader message = fields->message;
    size_t count = 0;
    for (uint32_t i = 0; i < fields->counts[number]; i++) {
        count += count_integers(eb_codec_fields_next(&message, number));
    }
    int64_t *integers = eb_unpack_take(arena, count, sizeof *integers, error);
    int64_t *end = integers;
    *bytes = count * sizeof *integers;
    message = fields->message;
    for (uint32_t i = 0; integers && i < fields->counts[number]; i++) {
        end = copy_integers(eb_codec_fields_next(&message, number), end);
    }
    return integers;
}

const void *eb_codec_fields_floats(const struct eb_codec_fields *fields, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader message = fields->message;
    uint8_t *floats = eb_unpack_take(arena, eb_field_reader_bytes(&message), 1, error);
    *bytes = 0;
    for (uint32_t i = 0; floats && i < fields->counts[number]; i++) {
        struct eb_field_reader data = eb_codec_fields_next(&message, number);
        memcpy(floats + *bytes, data.at, eb_field_reader_bytes(&data));
        *bytes += eb_field_reader_bytes(&data);
    }
    return floats;
}
