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

bool eb_codec_form_read(const struct eb_codec_place *place, struct eb_codec_fields *fields,
    struct eb_field_reader message, const enum eb_codec_kind *kinds)
{
    const struct eb_codec_rules rules = {kinds, place->limits, place->field_count};
    if (eb_codec_fields_init(fields, message, &rules)) {
        return true;
    }
    eb_error_set(
        place->error, EB_STATUS_INTERNAL, "%s[%zu] cannot be read", place->list, place->index);
    return false;
}

bool eb_codec_form_is_value(const ProtobufCEnumDescriptor *type, int number)
{
    return number >= 0 && (unsigned)number < type->n_values;
}

bool eb_codec_form_check_enums(const struct eb_codec_place *place,
    const struct eb_codec_fields *fields, const struct eb_codec_enum *enums, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int number = eb_codec_fields_enum(fields, enums[i].number);
        if (number != 0 && !eb_codec_form_is_value(enums[i].type, number)) {
            return eb_codec_form_refuse(place, "%s = %d is no value of %s", enums[i].field, number,
                enums[i].type->short_name);
        }
    }
    return true;
}

bool eb_codec_form_choose(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    const struct eb_codec_form *forms, uint32_t numbers, struct eb_wire_array *chosen)
{
    for (uint32_t left = fields->seen & numbers; left != 0; left &= left - 1) {
        const uint32_t number = (uint32_t)__builtin_ctz(left);
        const struct eb_codec_form *form = &forms[number];
        const void *data = fields->last[number].bytes;
        size_t bytes = fields->last[number].value;
        if (form->is_repeated) {
            data = eb_codec_fields_integers(fields, number, &bytes, place->arena, place->error);
        }
        if (!data) {
            return false;
        }
        if (bytes == 0) {
            continue;
        }
        if (chosen->width != 0) {
            return eb_codec_form_refuse(
                place, "%s and %s are two forms of one array", chosen->field, form->field);
        }
        /* One by one: a copy of what has just been put together waits for its parts. */
        chosen->data = data;
        chosen->bytes = bytes;
        chosen->width = form->width;
        chosen->field = form->field;
    }
    return true;
}

void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32)
{
    uint32_t number = array->width == 8 ? number_i64 : number_i32;
    eb_field_put_bytes(writer, number, array->data, array->bytes);
}
