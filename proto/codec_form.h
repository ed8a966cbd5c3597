/* What a query and a group have in common: enums, and arrays that come in one of several forms.
 * Thread: pure. Memory: an array of bytes is borrowed from its message, one of repeated numbers
 * taken from the place's arena. */
#pragma once

#include "proto/codec_fields.h"
#include "proto/field.h"
#include "proto/message.h"

#include <protobuf-c/protobuf-c.h>

/* The element of a request that is read: what a fault is about. Its own faults are
 * INVALID_ARGUMENT; INTERNAL says that the guard has the word, RESOURCE_EXHAUSTED that the arena
 * is. */
struct eb_codec_place {
    const char *list; /* "queries" */
    size_t index;     /* in the list */
    const char *name; /* of its table, or of its group */
    struct eb_arena *arena;
    struct eb_error *error;
    const struct eb_guard_limits *limits; /* of the request, */
    uint32_t *field_count;                /* and how many of its fields are read */
};

/* Sets INVALID_ARGUMENT, its text naming the place. Returns false. */
bool eb_codec_form_refuse(const struct eb_codec_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads all fields of the element. false: the place's error says so. */
bool eb_codec_form_read(const struct eb_codec_place *place, struct eb_codec_fields *fields,
    struct eb_field_reader message, const enum eb_codec_kind *kinds);

/* true: `number` is a value of one of the messages' enums, which count from 0 without gaps. */
bool eb_codec_form_is_value(const ProtobufCEnumDescriptor *type, int number);

/* An enum field. */
struct eb_codec_enum {
    const char *field;
    uint32_t number;
    const ProtobufCEnumDescriptor *type;
};

/* false: the place's error says which of the `count` fields holds no value of its type. */
bool eb_codec_form_check_enums(const struct eb_codec_place *place,
    const struct eb_codec_fields *fields, const struct eb_codec_enum *enums, size_t count);

/* A field that an array may come in. */
struct eb_codec_form {
    const char *field;
    uint32_t width;   /* of its integers */
    bool is_repeated; /* int64, not bytes that hold integers */
};

/* Takes the one of the array's forms that holds anything into *chosen, which is zeroed: bit n of
 * `numbers` says that field n is one, forms[n] which. false: there are two, or the arena is
 * exhausted, as the place's error says. */
bool eb_codec_form_choose(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    const struct eb_codec_form *forms, uint32_t numbers, struct eb_wire_array *chosen);

/* Writes an array into the field of its width. */
void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32);
