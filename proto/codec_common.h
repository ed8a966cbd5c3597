/* Functions that the codecs of all messages share. Messages are decoded in one of two ways.
 *
 * The hot ones (LookupRequest, LookupResponse and ModelInferRequest, with their parts) are read by
 * hand: one pass, with a switch over the fields' tags, straight into plain structs that borrow the
 * arrays from the message's bytes. Decoding a request took 11.8 us by hand, and 17.2 us with
 * protobuf-c. The pass by hand finds that a message cannot be read, but not why. The guard
 * (guard.h) then walks the message too and reports the reason, in the same words for all messages.
 *
 * All other messages go through eb_codec_unpack: the guard checks them, protobuf-c unpacks them,
 * and the codec copies protobuf-c's structs into plain ones. That is slower but takes less code.
 *
 * All messages are encoded with field.h.
 * Thread: pure; an arena is used by one thread at a time. Memory: bytes are borrowed from the
 * message; texts, and the elements of repeated numbers, are taken from the given arena. */
#pragma once

#include "proto/arena.h"
#include "proto/field.h"
#include "proto/field_reader.h"
#include "proto/guard.h"
#include "proto/message.h"
#include "proto/status.h"

#include <assert.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>

/* ---- memory, and messages that protobuf-c unpacks ---- */

struct eb_codec_input {
    const ProtobufCMessageDescriptor *descriptor;
    const uint8_t *bytes;
    size_t size;
    struct eb_guard_limits limits;
};

/* The limits for the answers of a server. Answers are capped in size only. */
extern const struct eb_guard_limits eb_codec_answer_limits;

/* Decodes a message with protobuf-c. The result lives as long as the arena's content. Returns NULL
 * with *error set by eb_guard_check, or to RESOURCE_EXHAUSTED if the arena is exhausted. */
void *eb_codec_unpack(
    struct eb_arena *arena, const struct eb_codec_input *input, struct eb_error *error);

/* Sets *error to RESOURCE_EXHAUSTED, with a text that says that the arena is exhausted. */
void eb_codec_refuse_for_memory(const struct eb_arena *arena, struct eb_error *error);

/* Takes `count` elements of `bytes` bytes each from the arena, uninitialised. The result is not
 * NULL if `count` is 0. Returns NULL with *error set if the arena is exhausted. */
static inline void *eb_codec_take_elements(
    struct eb_arena *arena, size_t count, size_t bytes, struct eb_error *error)
{
    size_t total = 0;
    bool overflows = __builtin_mul_overflow(count, bytes, &total);
    assert(!overflows);
    void *elements = eb_arena_take(arena, total);
    if (!elements) {
        eb_codec_refuse_for_memory(arena, error);
    }
    return elements;
}

/* ---- fields of hot messages ---- */

/* Returns whether the guard accepts the string. */
static inline bool eb_codec_is_name(
    struct eb_field_reader name, const struct eb_guard_limits *limits)
{
    return eb_guard_is_name(name.at, eb_field_reader_bytes(&name), limits);
}

/* Sets *name to a field's string. Returns false if the guard does not accept the string. */
static inline bool eb_codec_take_name(const struct eb_field *field,
    const struct eb_guard_limits *limits, struct eb_field_reader *name)
{
    *name = field->data;
    return eb_codec_is_name(*name, limits);
}

/* Returns the number of an enum field, which may be any number. */
static inline int32_t eb_codec_enum_of(const struct eb_field *field)
{
    return (int32_t)(uint32_t)field->varint;
}

/* Adds the number of a part's fields to the message's. Returns false if the sum exceeds the guard's
 * limit. */
static inline bool eb_codec_count_fields(
    const struct eb_guard_limits *limits, uint32_t part_count, uint32_t *field_count)
{
    if (part_count > limits->fields_max - *field_count) {
        return false;
    }
    *field_count += part_count;
    return true;
}

/* The following functions are for messages whose fields have all been read. */

/* Finds the next field with that number and moves past it. Returns false if there is none; *data is
 * then unchanged. */
static inline bool eb_codec_find_field(
    struct eb_field_reader *message, uint32_t number, struct eb_field_reader *data)
{
    /* Fields of the same number are mostly adjacent. */
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

/* Returns whether the guard accepts a string of this size. To be called before memory is taken for
 * the string. */
static inline bool eb_codec_is_short(
    struct eb_field_reader name, const struct eb_guard_limits *limits)
{
    return eb_field_reader_bytes(&name) <= limits->name_bytes_max;
}

/* Copies a string, which need not be ASCII, without a NUL. Returns false if the guard does not
 * accept the string. */
bool eb_codec_copy_any(char *out, struct eb_field_reader name);

/* Does the same as eb_codec_copy_any and appends a NUL, even if it returns false. Most names are
 * ASCII, and so short that a function call would take longer than the copy. */
static inline bool eb_codec_copy_name(char *out, struct eb_field_reader name)
{
    size_t size = eb_field_reader_bytes(&name);
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
    return copied == size || eb_codec_copy_any(out, name);
}

/* The following functions return NULL with *error set if the arena is exhausted. */

/* Copies the bytes and appends a NUL. */
static inline const char *eb_codec_keep_text(
    struct eb_field_reader text, struct eb_arena *arena, struct eb_error *error)
{
    if (text.at == text.end) {
        return "";
    }
    char *kept = (char *)eb_codec_take_elements(arena, eb_field_reader_bytes(&text) + 1, 1, error);
    char *end = kept;
    if (kept) {
        /* Names are so short that a call of memcpy would take longer than this loop. */
        while (text.at < text.end) {
            *end++ = (char)*text.at++;
        }
        *end = '\0';
    }
    return kept;
}
/* Reads the elements of a repeated int64, packed or not, and sets *bytes to their size. The result
 * is not NULL if there are no elements. */
const int64_t *eb_codec_read_integers(struct eb_field_reader message, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error);
/* Does the same as eb_codec_read_integers for a repeated float. Copies the elements byte for
 * byte. */
const void *eb_codec_read_floats(struct eb_field_reader message, uint32_t number, size_t *bytes,
    struct eb_arena *arena, struct eb_error *error);

/* ---- elements of a request, and arrays that come in one of several forms ---- */

/* The element (query, group or tensor) of a request that is being read, for error texts. *error has
 * the status INVALID_ARGUMENT if the element itself is wrong, INTERNAL if the guard must explain
 * the failure, and RESOURCE_EXHAUSTED if the arena is exhausted. */
struct eb_codec_position {
    const char *list; /* name of the list, such as "queries" */
    size_t index;     /* position in `list` */
    const char *name; /* name of the element's table or group; set before any error that names the
                         element */
    struct eb_arena *arena;
    struct eb_error *error;
    const struct eb_guard_limits *limits;  /* limits of the request */
    uint32_t *field_count;                 /* fields of the request that have been read */
    const struct eb_known_features *known; /* [known_count] lists of features; for groups */
    size_t known_count;
};

/* Sets INVALID_ARGUMENT with a text that names the element. Always returns false. */
bool eb_codec_refuse(const struct eb_codec_position *position, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets INTERNAL, which means that the guard must explain the failure. Always returns false. */
bool eb_codec_fail(const struct eb_codec_position *position);

/* Returns whether `number` is a value of the enum. The messages' enums count from 0 without
 * gaps. */
static inline bool eb_codec_is_value(const ProtobufCEnumDescriptor *type, int32_t number)
{
    return (uint32_t)number < type->n_values;
}

/* Sets an error that says that the field's number is no value of its enum. Always returns false. */
bool eb_codec_refuse_enum(const struct eb_codec_position *position, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number);

static inline bool eb_codec_check_enum(const struct eb_codec_position *position, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number)
{
    return eb_codec_is_value(type, number) || eb_codec_refuse_enum(position, field, type, number);
}

/* A field that may hold an array. */
struct eb_codec_form {
    const char *field;
    uint32_t width;   /* bytes of one integer */
    bool is_repeated; /* true for int64 elements, false for bytes that hold integers */
};

/* The fields of an element that may hold arrays. */
struct eb_codec_arrays {
    const struct eb_codec_form *forms; /* forms[n] describes field n */
    struct eb_field_reader message;
    uint32_t seen;     /* bit n: field n is present */
    bool is_unsettled; /* eb_codec_choose_array must still find the arrays' final values */
};

/* Notes a field whose repeated elements are an array or a part of one. */
static inline void eb_codec_see_array(struct eb_codec_arrays *arrays, uint32_t number)
{
    arrays->seen |= UINT32_C(1) << number;
    arrays->is_unsettled = true;
}

/* Uses a field's bytes as the array, in place of those of an earlier field. The array must have
 * been zeroed before its first field. */
static inline __attribute__((always_inline)) void eb_codec_take_array(
    struct eb_codec_arrays *arrays, uint32_t number, struct eb_field_reader data,
    struct eb_wire_array *array)
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

/* Does the work of eb_codec_choose_array if several fields must be examined. */
bool eb_codec_choose_array_among(const struct eb_codec_position *position,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array);

/* Sets the array to the one form (field) of it that is not empty. Bit n of `numbers` is set if
 * field n is a form of the array. Zeroes the array if all forms are empty. Returns false with the
 * position's error set if two forms are not empty, or if the arena is exhausted. */
static inline bool eb_codec_choose_array(const struct eb_codec_position *position,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array)
{
    uint32_t seen = arrays->seen & numbers;
    return !arrays->is_unsettled || seen == 0 ||
           eb_codec_choose_array_among(position, arrays, seen, array);
}

/* Writes an array into the field of its width. */
void eb_codec_put_array(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32);
