/* What a query and a group have in common: enums, and arrays that come in one of several forms.
 * Thread: pure. Memory: an array of bytes is borrowed from its message, one of repeated numbers
 * taken from the place's arena. */
#pragma once

#include "proto/codec_fields.h"
#include "proto/field.h"
#include "proto/message.h"

#include <protobuf-c/protobuf-c.h>
#include <string.h>

/* The element of a request that is read: what a error is about. Its own errors are
 * INVALID_ARGUMENT; INTERNAL says that the guard has the word, RESOURCE_EXHAUSTED that the arena
 * is. */
struct eb_codec_place {
    const char *list; /* "queries" */
    size_t index;     /* in the list */
    const char *name; /* of its table, or of its group; set once it is kept: refusals come after */
    struct eb_arena *arena;
    struct eb_error *error;
    const struct eb_guard_limits *limits;  /* of the request, */
    uint32_t *field_count;                 /* and how many of its fields are read */
    const struct eb_known_features *known; /* [known_count]; of groups */
    size_t known_count;
};

/* Sets INVALID_ARGUMENT, its text naming the place. Returns false. */
bool eb_codec_form_refuse(const struct eb_codec_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The guard has the word. Returns false. */
bool eb_codec_form_fail(const struct eb_codec_place *place);

/* true: `number` is a value of one of the messages' enums, which count from 0 without gaps. */
static inline bool eb_codec_form_is_value(const ProtobufCEnumDescriptor *type, int32_t number)
{
    return (uint32_t)number < type->n_values;
}

/* Says that the field holds no value of its type. Returns false. */
bool eb_codec_form_refuse_enum(const struct eb_codec_place *place, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number);

static inline bool eb_codec_form_check_enum(const struct eb_codec_place *place, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number)
{
    return eb_codec_form_is_value(type, number) ||
           eb_codec_form_refuse_enum(place, field, type, number);
}

/* Zeroes an element, in pieces that are so small that a compiler makes straight stores of them: of
 * a larger one it makes a loop or a call. */
static inline __attribute__((always_inline)) void eb_codec_form_clear(void *element, size_t bytes)
{
    enum { PIECE_BYTES = 80 };
    uint8_t *at = element;
    for (; bytes > PIECE_BYTES; bytes -= PIECE_BYTES, at += PIECE_BYTES) {
        memset(at, 0, PIECE_BYTES);
    }
    memset(at, 0, bytes);
}

/* A field that an array may come in. */
struct eb_codec_form {
    const char *field;
    uint32_t width;   /* of its integers */
    bool is_repeated; /* int64, not bytes that hold integers */
};

/* The fields of an element that arrays come in. */
struct eb_codec_arrays {
    const struct eb_codec_form *forms; /* forms[n]: field n */
    struct eb_field_reader message;
    uint32_t seen;     /* bit n: field n is there */
    bool is_unsettled; /* what was taken last may not be what an array is */
};

/* Notes a field whose repeated elements are an array's, or a part of it. */
static inline void eb_codec_form_see(struct eb_codec_arrays *arrays, uint32_t number)
{
    arrays->seen |= UINT32_C(1) << number;
    arrays->is_unsettled = true;
}

/* Takes a field's bytes for the array, which was zeroed, whatever has come to be there. */
static inline __attribute__((always_inline)) void eb_codec_form_take(struct eb_codec_arrays *arrays,
    uint32_t number, struct eb_field_reader data, struct eb_wire_array *array)
{
    const struct eb_codec_form *form = &arrays->forms[number];
    if (array->field || data.at == data.end) {
        arrays->is_unsettled = true;
    }
    arrays->seen |= UINT32_C(1) << number;
    array->data = data.at;
    array->bytes = eb_field_reader_bytes(&data);
    array->width = form->width;
    array->field = form->field;
}

/* As eb_codec_form_choose, which does this where several fields must be looked at. */
bool eb_codec_form_choose_among(const struct eb_codec_place *place,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array);

/* Makes of what was taken last the one of the array's forms that holds anything: bit n of `numbers`
 * says that field n is one. Zeroed where none does. false: there are two, or the arena is
 * exhausted, as the place's error says. */
static inline bool eb_codec_form_choose(const struct eb_codec_place *place,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array)
{
    const uint32_t seen = arrays->seen & numbers;
    return !arrays->is_unsettled || seen == 0 ||
           eb_codec_form_choose_among(place, arrays, seen, array);
}

/* Writes an array into the field of its width. */
void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32);
