#include "proto/field_reader.h"

struct eb_field_varint eb_field_reader_long_varint(struct eb_field_reader reader, size_t bytes_max)
{
    struct eb_field_varint varint = {.value = 0};
    for (size_t i = 0; i < bytes_max && reader.at < reader.end; i++) {
        uint8_t byte = *reader.at++;
        varint.value |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            varint.end = reader.at;
            break;
        }
    }
    return varint;
}
