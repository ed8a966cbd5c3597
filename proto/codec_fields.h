/* What the codecs of all messages have in common: how fields of a type are checked, and what is
 * made of repeated ones. A message is read once, by a switch over its fields' tags; whatever the
 * guard would not let pass is told from the rest at once, but not why: that is the guard's to say.
 * Thread: pure. Memory: bytes are borrowed from the message; texts, and the elements of repeated
 * numbers, are taken from the arena given. */
#pragma once

#include "proto/arena.h"
#include "proto/field_reader.h"
#include "proto/guard.h"
#include "proto/status.h"
#include "proto/unpack.h"

#include <string.h>

/* Whether the guard lets a string pass. */
static inline bool eb_codec_fields_is_name(
    struct eb_field_reader name, const struct eb_guard_limits *limits)
{
    return eb_guard_is_name(name.at, eb_field_reader_bytes(&name), limits);
}

/* Takes a string. false: the guard does not let it pass. */
static inline bool eb_codec_fields_take_name(const struct eb_field *field,
    const struct eb_guard_limits *limits, struct eb_field_reader *name)
{
    *name = field->data;
    return eb_codec_fields_is_name(*name, limits);
}

/* An enum's number, whatever it is. */
static inline int32_t eb_codec_fields_enum(const struct eb_field *field)
{
    return (int32_t)(uint32_t)field->varint;
}

/* Adds the fields of a part to the message's. false: they are more than the guard lets pass. */
static inline bool eb_codec_fields_count(
    const struct eb_guard_limits *limits, uint32_t part_count, uint32_t *field_count)
{
    if (part_count > limits->fields_max - *field_count) {
        return false;
    }
    *field_count += part_count;
    return true;
}

/* What follows is for messages of which all fields have been read. */

/* Moves past the next field of that number. false: there is none, and *data is as it was. */
static inline bool eb_codec_fields_find(
    struct eb_field_reader *message, uint32_t number, struct eb_field_reader *data)
{
    /* Fields of one number mostly follow each other. */
    if (number < 16 && eb_field_reader_take_next(message, number, data)) {
        return true;
    }
    struct eb_field field;
    while (eb_field_reader_next(message, &field)) {
        if (field.number == number) {
            *data = field.data;
            return true;
        }
    }
    return false;
}

/* Whether the guard lets a string of so many bytes pass: to be asked before it is given memory. */
static inline bool eb_codec_fields_is_short(
    struct eb_field_reader name, const struct eb_guard_limits *limits)
{
    return eb_field_reader_bytes(&name) <= limits->name_bytes_max;
}

/* Copies a string, which may be of any bytes, without a NUL. false: the guard does not let these
 * bytes pass. */
bool eb_codec_fields_copy_any(char *out, struct eb_field_reader name);

/* The same, with a NUL after it in either case: most names are ASCII, and so short that a call
 * would take longer. */
static inline bool eb_codec_fields_copy_name(char *out, struct eb_field_reader name)
{
    const size_t size = eb_field_reader_bytes(&name);
    size_t copied = 0;
    if (size >= sizeof(uint64_t) && size <= 2 * sizeof(uint64_t)) {
        uint64_t first;
        uint64_t last;
        memcpy(&first, name.at, sizeof first);
        memcpy(&last, name.end - sizeof last, sizeof last);
        memcpy(out, &first, sizeof first);
        memcpy(out + size - sizeof last, &last, sizeof last);
        copied = eb_guard_is_plain(first) && eb_guard_is_plain(last) ? size : 0;
    } else {
        for (; copied < size && size < sizeof(uint64_t) && name.at[copied] - 1u < 0x7F; copied++) {
            out[copied] = (char)name.at[copied];
        }
    }
    out[size] = '\0';
    return copied == size || eb_codec_fields_copy_any(out, name);
}

/* These return NULL where the arena is exhausted, which *error then says. */

/* The bytes, and a NUL. */
static inline const char *eb_codec_fields_keep(
    struct eb_field_reader text, struct eb_arena *arena, struct eb_error *error)
{
    if (text.at == text.end) {
        return "";
    }
    char *kept = (char *)eb_unpack_take(arena, eb_field_reader_bytes(&text) + 1, 1, error);
    char *end = kept;
    if (kept) {
        /* Names are so short that a call would take longer. */
        while (text.at < text.end) {
            *end++ = (char)*text.at++;
        }
        *end = '\0';
    }
    return kept;
}
/* Elements of a repeated int64, packed or not, and their bytes; not NULL for no elements. */
const int64_t *eb_codec_fields_integers(struct eb_field_reader message, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error);
/* The same of a repeated float, as they came. */
const void *eb_codec_fields_floats(struct eb_field_reader message, uint32_t number, size_t *bytes,
    struct eb_arena *arena, struct eb_error *error);
