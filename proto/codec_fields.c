#include "proto/codec_fields.h"

#include "proto/unpack.h"

#include <assert.h>
#include <string.h>

bool eb_codec_fields_copy_any(char *out, struct eb_field_reader name)
{
    const size_t size = eb_field_reader_bytes(&name);
    memcpy(out, name.at, size);
    return eb_guard_is_text(name.at, size);
}

/* How many numbers a field of a repeated integer adds: one, or those that are packed in it. */
static size_t count_integers(struct eb_field_reader data)
{
    size_t count = 0;
    for (; data.at < data.end; data.at++) {
        count += *data.at < 0x80;
    }
    return count;
}

/* Writes as many to `out`. Returns where they end. */
static int64_t *copy_integers(struct eb_field_reader data, int64_t *out)
{
    while (data.at < data.end) {
        const struct eb_field_varint varint =
            eb_field_reader_varint(data, EB_FIELD_READER_VARINT_BYTES_MAX);
        assert(varint.end);
        *out++ = (int64_t)varint.value;
        data.at = varint.end;
    }
    return out;
}

const int64_t *eb_codec_fields_integers(struct eb_field_reader message, uint32_t number,
    size_t *bytes, struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader rest = message;
    struct eb_field_reader data;
    size_t count = 0;
    while (eb_codec_fields_find(&rest, number, &data)) {
        count += count_integers(data);
    }
    int64_t *integers = eb_unpack_take(arena, count, sizeof *integers, error);
    int64_t *end = integers;
    *bytes = count * sizeof *integers;
    while (integers && eb_codec_fields_find(&message, number, &data)) {
        end = copy_integers(data, end);
    }
    return integers;
}

const void *eb_codec_fields_floats(struct eb_field_reader message, uint32_t number, size_t *bytes,
    struct eb_arena *arena, struct eb_error *error)
{
    struct eb_field_reader data;
    uint8_t *floats = eb_unpack_take(arena, eb_field_reader_bytes(&message), 1, error);
    *bytes = 0;
    while (floats && eb_codec_fields_find(&message, number, &data)) {
        memcpy(floats + *bytes, data.at, eb_field_reader_bytes(&data));
        *bytes += eb_field_reader_bytes(&data);
    }
    return floats;
}
