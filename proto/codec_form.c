#include "proto/codec_form.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

bool eb_codec_form_refuse(const struct eb_codec_place *place, const char *format, ...)
{
    char what[EB_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    eb_error_set(place->error, EB_STATUS_INVALID_ARGUMENT, "%s[%zu] \"%s\": %s", place->list,
        place->index, place->name, what);
    return false;
}

bool eb_codec_form_fail(const struct eb_codec_place *place)
{
    eb_error_set(
        place->error, EB_STATUS_INTERNAL, "%s[%zu] cannot be read", place->list, place->index);
    return false;
}

bool eb_codec_form_refuse_enum(const struct eb_codec_place *place, const char *field,
    const ProtobufCEnumDescriptor *type, int32_t number)
{
    return eb_codec_form_refuse(
        place, "%s = %d is no value of %s", field, (int)number, type->short_name);
}

/* Of a field that is there, its last occurrence. */
static struct eb_field_reader find_last(struct eb_field_reader message, uint32_t number)
{
    struct eb_field_reader last = {.at = NULL};
    while (eb_codec_fields_find(&message, number, &last)) {
    }
    return last;
}

bool eb_codec_form_choose_among(const struct eb_codec_place *place,
    const struct eb_codec_arrays *arrays, uint32_t numbers, struct eb_wire_array *array)
{
    *array = (struct eb_wire_array){.data = NULL};
    for (uint32_t left = numbers; left != 0; left &= left - 1) {
        const uint32_t number = (uint32_t)__builtin_ctz(left);
        const struct eb_codec_form *form = &arrays->forms[number];
        struct eb_field_reader data = find_last(arrays->message, number);
        if (form->is_repeated) {
            size_t bytes;
            const void *integers = eb_codec_fields_integers(
                arrays->message, number, &bytes, place->arena, place->error);
            if (!integers) {
                return false;
            }
            data = eb_field_reader_of(integers, bytes);
        }
        if (data.at == data.end) {
            continue;
        }
        if (array->width != 0) {
            return eb_codec_form_refuse(
                place, "%s and %s are two forms of one array", array->field, form->field);
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

void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32)
{
    uint32_t number = array->width == 8 ? number_i64 : number_i32;
    eb_field_put_bytes(writer, number, array->data, array->bytes);
}
