#include "proto/grpc_text.h"

#include <assert.h>
#include <stdio.h>

#define TIMEOUT_DIGITS_MAX 8
#define TIMEOUT_VALUE_MAX 99999999u

/* Units of time from the microsecond up, finest first. */
static const struct {
    char name;
    uint64_t us;
} timeout_units[] = {
    {'u', 1},
    {'m', 1000},
    {'S', 1000000},
    {'M', UINT64_C(60) * 1000000},
    {'H', UINT64_C(3600) * 1000000},
};

#define TIMEOUT_UNIT_COUNT (sizeof timeout_units / sizeof timeout_units[0])

bool eb_grpc_timeout_parse(const char *text, size_t size, uint64_t *timeout_us)
{
    if (size < 2 || size > TIMEOUT_DIGITS_MAX + 1) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (text[size - 1] == 'n') {
        *timeout_us = (value + 999) / 1000;
        return true;
    }
    for (size_t i = 0; i < TIMEOUT_UNIT_COUNT; i++) {
        if (text[size - 1] == timeout_units[i].name) {
            *timeout_us = value * timeout_units[i].us;
            return true;
        }
    }
    return false;
}

void eb_grpc_timeout_format(uint64_t timeout_us, char out[16])
{
    size_t unit = 0;
    uint64_t value = timeout_us;
    while (value > TIMEOUT_VALUE_MAX && unit + 1 < TIMEOUT_UNIT_COUNT) {
        unit++;
        uint64_t us = timeout_units[unit].us;
        value = timeout_us / us + (timeout_us % us != 0);
    }
    if (value > TIMEOUT_VALUE_MAX) {
        value = TIMEOUT_VALUE_MAX;
    }
    snprintf(out, 16, "%u%c", (unsigned)value, timeout_units[unit].name);
}

/* Returns the size of the character at `text`, which must not be the end of the text. Returns 1 for
 * a byte that begins no character. */
static size_t character_bytes(const char *text)
{
    unsigned char lead = (unsigned char)text[0];
    size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80) {
            return 1;
        }
    }
    return bytes;
}

static bool is_text_plain(char c)
{
    return c >= 0x20 && c <= 0x7E && c != '%';
}

size_t eb_grpc_message_encode(const char *text, char out[EB_GRPC_MESSAGE_BYTES_MAX])
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;
    while (*text) {
        size_t bytes = character_bytes(text);
        if (used + (is_text_plain(*text) ? 1 : 3 * bytes) > EB_GRPC_MESSAGE_BYTES_MAX) {
            break;
        }
        for (size_t i = 0; i < bytes; i++) {
            unsigned char c = (unsigned char)text[i];
            if (is_text_plain(text[i])) {
                out[used++] = text[i];
                continue;
            }
            out[used++] = '%';
            out[used++] = digits[c >> 4];
            out[used++] = digits[c & 15];
        }
        text += bytes;
    }
    return used;
}

/* Returns the value of a hexadecimal digit, or -1 for anything else. */
static int value_of_hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void eb_grpc_message_decode(const char *text, size_t size, char *out, size_t out_bytes)
{
    assert(out_bytes > 0);
    size_t used = 0;
    for (size_t i = 0; i < size && used + 1 < out_bytes; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < size) {
            int high = value_of_hex_digit(text[i + 1]);
            int low = value_of_hex_digit(text[i + 2]);
            if (high >= 0 && low >= 0) {
                c = (char)(high * 16 + low);
                i += 2;
            }
        }
        out[used++] = c;
    }
    out[used] = '\0';
}

void eb_grpc_prefix_write(uint8_t out[EB_GRPC_PREFIX_BYTES], uint32_t size)
{
    out[0] = 0;
    out[1] = (uint8_t)(size >> 24);
    out[2] = (uint8_t)(size >> 16);
    out[3] = (uint8_t)(size >> 8);
    out[4] = (uint8_t)size;
}
