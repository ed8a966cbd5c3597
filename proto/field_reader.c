#include "proto/field_reader.h"

struct eb_field_varint eb_field_reader_long_varint(
    const uint8_t *at, const uint8_t *end, size_t bytes_max)
{
    struct eb_field_varint varint = {.value = 0};
    for (size_t i = 0; i < bytes_max && at < end; i++) {
        uint8_t byte = *at++;
        varint.value |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            varint.end = at;
            break;
        }
    }
    return varint;
}

size_t eb_field_reader_count(struct eb_field_reader reader, uint32_t number)
{
    struct eb_field field;
    size_t count = 0;
    while (eb_field_reader_next(&reader, &field)) {
        count += field.number == number;
    }
    return count;
}

const uint8_t *eb_field_reader_find_endless(struct eb_field_reader packed)
{
    while (packed.at < packed.end) {
        struct eb_field_varint varint =
            eb_field_reader_varint(packed, EB_FIELD_READER_VARINT_BYTES_MAX);
        if (!varint.end) {
            return packed.at;
        }
        packed.at = varint.end;
    }
    return NULL;
}
