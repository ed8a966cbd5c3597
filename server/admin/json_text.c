#include "server/admin/json_text.h"

#include "server/base/name.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 4096
#define UTF8_BYTES_MAX 4 /* longest character */
#define NUMBER_BYTES 32  /* longest number, with its quotes and the NUL */

/* Makes room for `size` bytes and a NUL. Returns false if out of memory. */
static bool reserve(struct eb_json_text *text, size_t size)
{
    if (text->is_failed || text->capacity - text->size > size) {
        return !text->is_failed;
    }
    size_t capacity = text->capacity ? text->capacity : CAPACITY_MIN;
    while (capacity - text->size <= size) {
        capacity *= 2;
    }
    char *bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->is_failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

static void append(struct eb_json_text *text, const char *bytes, size_t size)
{
    if (reserve(text, size)) {
        memcpy(text->bytes + text->size, bytes, size);
        text->size += size;
    }
}

static void append_text(struct eb_json_text *text, const char *string)
{
    append(text, string, strlen(string));
}

/* Appends the text before a value: a comma unless the value is the first, and the member's name if
 * it has one. */
static void append_key(struct eb_json_text *text, const char *key)
{
    if (text->size > 0 && !strchr("{[", text->bytes[text->size - 1])) {
        append(text, ",", 1);
    }
    if (key) {
        append(text, "\"", 1);
        append_text(text, key);
        append(text, "\":", 2);
    }
}

void eb_json_text_begin(struct eb_json_text *text, const char *key, char bracket)
{
    append_key(text, key);
    append(text, &bracket, 1);
}

void eb_json_text_end(struct eb_json_text *text, char bracket)
{
    append(text, &bracket, 1);
}

void eb_json_text_count(struct eb_json_text *text, const char *key, uint64_t count)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%" PRIu64, count);
    append_key(text, key);
    append_text(text, number);
}

void eb_json_text_id(struct eb_json_text *text, const char *key, int64_t id)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "\"%" PRId64 "\"", id);
    append_key(text, key);
    append_text(text, number);
}

void eb_json_text_unsigned_id(struct eb_json_text *text, const char *key, uint64_t id)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "\"%" PRIu64 "\"", id);
    append_key(text, key);
    append_text(text, number);
}

void eb_json_text_flag(struct eb_json_text *text, const char *key, bool flag)
{
    append_key(text, key);
    append_text(text, flag ? "true" : "false");
}

void eb_json_text_share(struct eb_json_text *text, const char *key, double share)
{
    /* Formats with integer arithmetic: printf's decimal point depends on the locale. JSON has no
     * infinity. */
    double bounded = isfinite(share) && share > 0 ? fmin(share, 1) : 0;
    unsigned places = (unsigned)lround(bounded * 10000);
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%u.%04u", places / 10000, places % 10000);
    append_key(text, key);
    append_text(text, number);
}

/* Returns the bytes of the character that starts here. Returns 0 at the end, or if the character
 * must be escaped. */
static size_t plain_bytes(const char *string)
{
    if (*string == '"' || *string == '\\' || *string == '<' || !*string) {
        return 0;
    }
    return eb_name_char_bytes((const uint8_t *)string, strnlen(string, UTF8_BYTES_MAX));
}

static void append_escaped(struct eb_json_text *text, char byte)
{
    unsigned code = (unsigned char)byte < 0x80 ? (unsigned char)byte : 0xfffd;
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", code);
    append_text(text, escape);
}

void eb_json_text_string(struct eb_json_text *text, const char *key, const char *string)
{
    append_key(text, key);
    if (!string) {
        append_text(text, "null");
        return;
    }
    append(text, "\"", 1);
    while (*string) {
        size_t run = 0;
        for (size_t bytes; (bytes = plain_bytes(string + run)) > 0;) {
            run += bytes;
        }
        append(text, string, run);
        string += run;
        if (*string) {
            append_escaped(text, *string++);
        }
    }
    append(text, "\"", 1);
}

char *eb_json_text_take(struct eb_json_text *text, size_t *size)
{
    char *bytes = NULL;
    *size = 0;
    if (reserve(text, 0)) {
        bytes = text->bytes;
        bytes[text->size] = 0;
        *size = text->size;
    } else {
        free(text->bytes);
    }
    *text = (struct eb_json_text){0};
    return bytes;
}
