#include "server/base/name.h"

#include <stdbool.h>
#include <string.h>

static size_t sequence_bytes(uint8_t lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc0 && lead < 0xe0) {
        return 2;
    }
    if (lead >= 0xe0 && lead < 0xf0) {
        return 3;
    }
    return lead >= 0xf0 && lead < 0xf8 ? 4 : 0;
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

size_t eb_name_char_bytes(const uint8_t *at, size_t available)
{
    static const uint32_t code_min[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = sequence_bytes(at[0]);
    if (bytes == 0 || bytes > available) {
        return 0;
    }
    uint32_t code = bytes == 1 ? at[0] : at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < code_min[bytes] || code > 0x10ffff || is_surrogate || is_control(code)) {
        return 0;
    }
    return bytes;
}

const char *eb_name_error(const char *name, uint32_t bytes_max)
{
    size_t left = strlen(name);
    if (left == 0) {
        return "is empty";
    }
    if (left > bytes_max) {
        return "is longer than name_bytes_max allows";
    }
    for (const uint8_t *at = (const uint8_t *)name; left > 0;) {
        size_t bytes = eb_name_char_bytes(at, left);
        if (bytes == 0) {
            return "is not UTF-8 or holds a control character";
        }
        at += bytes;
        left -= bytes;
    }
    return NULL;
}
