/* What a query and a group have in common: enums, and arrays that come in one of several forms.
 * Thread: pure. Memory: none; an array is borrowed from its message. */
#pragma once

#include "proto/field.h"
#include "proto/message.h"

#include <protobuf-c/protobuf-c.h>

/* Which element of a request a fault is about. */
struct eb_codec_place {
    const char *list; /* "queries" */
    size_t index;     /* in the list */
    const char *name; /* of its table, or of its group */
    struct eb_error *error;
};

/* Sets INVALID_ARGUMENT, its text naming the place. Returns false. */
bool eb_codec_form_refuse(const struct eb_codec_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* true: `number` is a value of one of the messages' enums, which count from 0 without gaps. */
bool eb_codec_form_is_value(const ProtobufCEnumDescriptor *type, int number);

/* An enum field as it came. */
struct eb_codec_enum {
    const char *field;
    int number;
    const ProtobufCEnumDescriptor *type;
};

/* false: the place's error says which of the `count` fields holds no value of its type. */
bool eb_codec_form_check_enums(
    const struct eb_codec_place *place, const struct eb_codec_enum *enums, size_t count);

/* A form as a field of bytes, which hold numbers of `width` bytes. */
struct eb_wire_array eb_codec_form_of_bytes(
    const char *field, ProtobufCBinaryData bytes, uint32_t width);

/* Takes the one form that holds anything into *chosen, which is zeroed. false: there are two, and
 * the place's error says so. */
bool eb_codec_form_choose(const struct eb_codec_place *place, const struct eb_wire_array *forms,
    size_t count, struct eb_wire_array *chosen);

/* Writes an array into the field of its width. */
void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32);
