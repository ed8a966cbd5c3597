#include "proto/codec_common.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct eb_guard_limits eb_codec_answer_limits = {
    .fields_max = UINT32_MAX,
    .name_bytes_max = 65536, /* error texts are strings too */
    .submessages_max = UINT32_MAX,
};

void eb_codec_refuse_for_memory(const struct eb_arena *arena, struct eb_error *error)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "decoding needs more memory than this message is allowed (%zu bytes used, at most %zu)",
        arena->used_bytes, arena->cap_bytes);
}

void *eb_codec_unpack(
    struct eb_arena *arena, const struct eb_codec_input *input, struct eb_error *error)
{
    if (!eb_guard_check(input->descriptor, input->bytes, input->size, &input->limits, error)) {
        return NULL;
    }
    ProtobufCMessage *message =
        protobuf_c_message_unpack(input->descriptor, &arena->allocator, input->size, input->bytes);
    if (message) {
        return message;
    }
    /* protobuf-c reports only that it failed. */
    if (arena->is_exhausted) {
        eb_codec_refuse_for_memory(arena, error);
    } else {
        eb_error_set(
            error, EB_STATUS_INTERNAL, "%s cannot be decoded", input->descriptor->short_name);
    }
    return NULL;
}

/* ---- fields of hot messages ---- */

bool eb_codec_copy_any(char *out, struct eb_field_reader name)
{
    size_t size = eb_field_reader_bytes(&name);
    memcpy(out, name.at, size);
    return eb_guard_is_text(name.at, size);
}

/* Returns the number of elements in one field of a repeated integer: 1, or the number of elements
 * packed in the field. */
static size_t count_integers(struct eb_field_reader data)
{
    size_t count = 0;
    for (; data.at < data.end; data.at++) {
        count += *data.at < 0x80;
    }
    return count;
}

/* Writes the elements in one field of a repeated integer to `out`. Returns the position after the
 * last element. */
static int64_t *copy_integers(struct eb_field_reader data, int64_t *out)
{
    while (data.at < data.end) {
        struct eb_field_varint varint =
            eb_field_reader_varint(data, EB_FIELD_READER_VARINT_BYTES_MAX);
        assert(varint.end);
        *out++ = (int64_t)varint.value;
        data.at = varint.end;
    }
    return out;
}

const int64_t *eb_codec_read_integers(struct eb_field_reader message, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader rest = message;
    struct eb_field_reader data;
    size_t count = 0;
    while (eb_codec_find_field(&rest, number, &data)) {
        count += count_integers(data);
    }
    int64_t *integers = eb_codec_take_elements(arena, count, sizeof *integers, error);
    int64_t *end = integers;
    *bytes = count * sizeof *integers;
    while (integers && eb_codec_find_field(&message, number, &data)) {
        end = copy_integers(data, end);
    }
    return integers;
}

const void *eb_codec_read_floats(struct eb_field_reader message, uint32_t number, size_t *bytes,
    struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader data;
    uint8_t *floats = eb_codec_take_elements(arena, eb_field_reader_bytes(&message), 1, error);
    *bytes = 0;
    while (floats && eb_codec_find_field(&message, number, &data)) {
        memcpy(floats + *bytes, data.at, eb_field_reader_bytes(&data));
        *bytes += eb_field_reader_bytes(&data);
    }
    return floats;
}

/* ---- elements of a request ---- */

bool eb_codec_refuse(const struct eb_codec_position *position, const char *format, ...)
{
    char what[EB_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    eb_error_set(position->error, EB_STATUS_INVALID_ARGUMENT, "%s[%zu] \"%s\": %s", position->list,
        position->index, position->name, what);
    return false;
}

bool eb_codec_fail(const struct eb_codec_position *position)
{
    eb_error_set(position->error, EB_STATUS_INTERNAL, "%s[%zu] cannot be decoded", position->list,
        position->index);
    return false;
}

bool eb_codec_refuse_enum(const struct eb_codec_position *position, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number)
{
    return eb_codec_refuse(
        position, "%s = %d is not a value of %s", field, (int)number, type->short_name);
}

/* Returns the last occurrence of a field that is present. */
static struct eb_field_reader find_last(struct eb_field_reader message, uint32_t number)
{
    struct eb_field_reader last = {.at = NULL};
    while (eb_codec_find_field(&message, number, &last)) {
    }
    return last;
}

bool eb_codec_choose_array_among(const struct eb_codec_position *position,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array)
{
    *array = (struct eb_wire_array){.data = NULL};
    for (uint32_t left = numbers; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctz(left);
        const struct eb_codec_form *form = &arrays->forms[number];
        struct eb_field_reader data = find_last(arrays->message, number);
        if (form->is_repeated) {
            size_t bytes;
            const void *integers = eb_codec_read_integers(
                arrays->message, number, &bytes, position->arena, position->error);
            if (!integers) {
                return false;
            }
            data = eb_field_reader_of(integers, bytes);
        }
        if (data.at == data.end) {
            continue;
        }
        if (array->width != 0) {
            return eb_codec_refuse(position, "%s and %s are forms of the same array: give only one",
                array->field, form->field);
        }
        *array = (struct eb_wire_array){
            .data = data.at,
            .bytes = eb_field_reader_bytes(&data),
            .width = form->width,
            .field = form->field,
        };
    }
    return true;
}

void eb_codec_put_array(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32)
{
    uint32_t number = array->width == 8 ? number_i64 : number_i32;
    eb_field_put_bytes(writer, number, array->data, array->bytes);
}
