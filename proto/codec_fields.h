/* The fields of one message by number: what was said of each last, and of repeated ones all of it.
 * Bytes that the guard would not let pass are told from others at once, but not why: that is the
 * guard's to say.
 * Thread: pure. Memory: bytes are borrowed from the message; texts, and the elements of repeated
 * numbers, are taken from the arena given. */
#pragma once

#include "proto/arena.h"
#include "proto/field_reader.h"
#include "proto/guard.h"
#include "proto/status.h"

/* Of the numbers that are told apart; larger ones are passed over. */
#define EB_CODEC_FIELDS_END 32

/* What a field is declared as. */
enum eb_codec_kind {
    EB_CODEC_UNKNOWN,
    EB_CODEC_NUMBER,
    EB_CODEC_FIXED64,
    EB_CODEC_BYTES, /* or a repeated message, whose content is another's to judge */
    EB_CODEC_NAME,  /* a string, repeated or not */
    EB_CODEC_INTEGERS,
    EB_CODEC_FLOATS
};

/* The fields of a message type, the limits of the whole message, and what its parts have used of
 * them. */
struct eb_codec_rules {
    const enum eb_codec_kind *kinds; /* [EB_CODEC_FIELDS_END] */
    const struct eb_guard_limits *limits;
    uint32_t *field_count;
};

struct eb_codec_fields {
    struct eb_field_reader message;
    uint32_t seen; /* bit n: field n is there */
    uint32_t counts[EB_CODEC_FIELDS_END];
    struct {
        const uint8_t *bytes;
        uint64_t value;          /* a number, or how many bytes there are */
    } last[EB_CODEC_FIELDS_END]; /* of those that are there */
};

/* Reads all fields once. false: the guard has something to say against them. */
bool eb_codec_fields_init(struct eb_codec_fields *fields, struct eb_field_reader message,
    const struct eb_codec_rules *rules);

static inline bool eb_codec_fields_has(const struct eb_codec_fields *fields, uint32_t number)
{
    return fields->seen >> number & 1;
}

/* The field's number, or how many bytes it has; 0 where it is not there. */
static inline uint64_t eb_codec_fields_value(const struct eb_codec_fields *fields, uint32_t number)
{
    return eb_codec_fields_has(fields, number) ? fields->last[number].value : 0;
}

/* An enum's number, whatever it is. */
static inline int32_t eb_codec_fields_enum(const struct eb_codec_fields *fields, uint32_t number)
{
    return (int32_t)(uint32_t)eb_codec_fields_value(fields, number);
}

/* So many bytes as eb_codec_fields_value says; NULL where it is not there. */
static inline const uint8_t *eb_codec_fields_bytes(
    const struct eb_codec_fields *fields, uint32_t number)
{
    return eb_codec_fields_has(fields, number) ? fields->last[number].bytes : NULL;
}

/* Moves past the next field of that number, of which there must be one. Returns what it holds. */
struct eb_field_reader eb_codec_fields_next(struct eb_field_reader *message, uint32_t number);

/* What follows returns NULL where the arena is exhausted, which *error then says. */

/* The bytes, and a NUL. */
const char *eb_codec_fields_keep(
    struct eb_field_reader text, struct eb_arena *arena, struct eb_error *error);
/* A field's text; empty where it is not there. */
const char *eb_codec_fields_text(const struct eb_codec_fields *fields, uint32_t number,
    struct eb_arena *arena, struct eb_error *error);
/* Elements of a repeated int64, packed or not, and their bytes; not NULL for no elements. */
const int64_t *eb_codec_fields_integers(const struct eb_codec_fields *fields, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error);
/* The same of a repeated float, as they came. */
const void *eb_codec_fields_floats(const struct eb_codec_fields *fields, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error);
