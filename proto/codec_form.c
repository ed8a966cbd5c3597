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

bool eb_codec_form_is_value(const ProtobufCEnumDescriptor *type, int number)
{
    return number >= 0 && (unsigned)number < type->n_values;
}

bool eb_codec_form_check_enums(
    const struct eb_codec_place *place, const struct eb_codec_enum *enums, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!eb_codec_form_is_value(enums[i].type, enums[i].number)) {
            return eb_codec_form_refuse(place, "%s = %d is no value of %s", enums[i].field,
                enums[i].number, enums[i].type->short_name);
        }
    }
    return true;
}

struct eb_wire_array eb_codec_form_of_bytes(
    const char *field, ProtobufCBinaryData bytes, uint32_t width)
{
    return (struct eb_wire_array){bytes.data, bytes.len, width, field};
}

bool eb_codec_form_choose(const struct eb_codec_place *place, const struct eb_wire_array *forms,
    size_t count, struct eb_wire_array *chosen)
{
    for (size_t i = 0; i < count; i++) {
        if (forms[i].bytes == 0) {
            continue;
        }
        if (chosen->width != 0) {
            return eb_codec_form_refuse(
                place, "%s and %s are two forms of one array", chosen->field, forms[i].field);
        }
        *chosen = forms[i];
    }
    return true;
}

void eb_codec_form_put(struct eb_field_writer *writer, const struct eb_wire_array *array,
    uint32_t number_i64, uint32_t number_i32)
{
    uint32_t number = array->width == 8 ? number_i64 : number_i32;
    eb_field_put_bytes(writer, number, array->data, array->bytes);
}
