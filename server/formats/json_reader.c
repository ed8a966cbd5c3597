#include "server/formats/json_reader.h"

#include <assert.h>
#include <string.h>

static bool fail_json(struct eb_json_reader *reader, const char *why)
{
    why = reader->at < reader->size ? why : "it ends too early";
    reader->error = reader->error ? reader->error : why;
    return false;
}

static bool is_json_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Returns the next byte; 0 at the end of the text and after an error. */
static uint8_t next_byte(const struct eb_json_reader *reader)
{
    return reader->at < reader->size && !reader->error ? reader->bytes[reader->at] : 0;
}

uint8_t eb_json_peek(struct eb_json_reader *reader)
{
    uint8_t byte = next_byte(reader);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r') {
        reader->at++;
        byte = next_byte(reader);
    }
    return byte;
}

/* Reads one byte past white space. */
static bool take_byte(struct eb_json_reader *reader, uint8_t byte, const char *why)
{
    if (eb_json_peek(reader) != byte) {
        return fail_json(reader, why);
    }
    reader->at++;
    return true;
}

bool eb_json_enter(struct eb_json_reader *reader, char open)
{
    return take_byte(reader, (uint8_t)open, open == '{' ? "expected '{'" : "expected '['");
}

bool eb_json_next(struct eb_json_reader *reader, char close, bool *is_first)
{
    bool was_first = *is_first;
    *is_first = false;
    if (eb_json_peek(reader) == (uint8_t)close) {
        reader->at++;
        return false;
    }
    return was_first ? !reader->error
                     : take_byte(reader, ',',
                           close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
}

/* ---- strings ---- */

/* Returns the value of the next four hexadecimal digits, or UINT32_MAX if they are not digits. */
static uint32_t read_hex(const uint8_t *digits, size_t left)
{
    static const char all[] = "0123456789abcdefABCDEF";
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        const char *found = i < left && digits[i] != 0 ? strchr(all, digits[i]) : NULL;
        if (!found) {
            return UINT32_MAX;
        }
        uint32_t digit = (uint32_t)(found - all);
        value = value << 4 | (digit < 16 ? digit : digit - 6);
    }
    return value;
}

/* Reads the escape that begins the last `left` bytes of a text. Returns its length and sets *code
 * to its character, or returns 0 if it is invalid. Above U+FFFF, two escapes make one character. */
static size_t read_escape(const uint8_t *escape, size_t left, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    const char *name = left >= 2 && escape[1] != 0 ? strchr(names, escape[1]) : NULL;
    if (name) {
        *code = (uint8_t)values[name - names];
        return 2;
    }
    if (left < 6 || escape[1] != 'u') {
        return 0;
    }
    *code = read_hex(escape + 2, left - 2);
    if (*code >> 10 != 0xd800 >> 10) {
        return *code > 0xffff || *code == 0 || *code >> 10 == 0xdc00 >> 10 ? 0 : 6;
    }
    bool has_pair = left >= 12 && escape[6] == '\\' && escape[7] == 'u';
    uint32_t second = has_pair ? read_hex(escape + 8, left - 8) : 0;
    *code = 0x10000 + ((*code & 0x3ff) << 10) + (second & 0x3ff);
    return second >> 10 == 0xdc00 >> 10 ? 12 : 0;
}

/* Returns the bytes of a valid UTF-8 character that is not ASCII, or 0. */
static size_t count_utf8(const uint8_t *bytes, size_t left)
{
    uint8_t first = bytes[0];
    size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    /* The least and the greatest second byte, which exclude overlong forms, surrogates and
     * characters above U+10FFFF. */
    uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0xc2 || first > 0xf4 || left < count || bytes[1] < least || bytes[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return count;
}

bool eb_json_string(struct eb_json_reader *reader, struct eb_json_text *text)
{
    if (!take_byte(reader, '"', "expected a string")) {
        return false;
    }
    text->at = reader->at;
    while (reader->at < reader->size && reader->bytes[reader->at] != '"') {
        const uint8_t *byte = reader->bytes + reader->at;
        size_t left = reader->size - reader->at;
        uint32_t code;
        size_t count = 1;
        if (*byte < 0x20) {
            return fail_json(reader, "a control character in a string");
        }
        if (*byte == '\\') {
            count = read_escape(byte, left, &code);
        } else if (*byte >= 0x80) {
            count = count_utf8(byte, left);
        }
        if (count == 0) {
            return fail_json(
                reader, *byte == '\\' ? "an invalid escape or NUL" : "an invalid UTF-8 character");
        }
        reader->at += count;
    }
    text->bytes = reader->at - text->at;
    return take_byte(reader, '"', "expected '\"'");
}

bool eb_json_name(struct eb_json_reader *reader, struct eb_json_text *name)
{
    return eb_json_string(reader, name) && take_byte(reader, ':', "expected ':'");
}

static char *write_utf8(char *out, uint32_t code)
{
    static const uint8_t marks[] = {0, 0xc0, 0xe0, 0xf0};
    unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)(marks[more] | code >> 6 * more);
    while (more-- > 0) {
        *out++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    }
    return out;
}

void eb_json_decode(const uint8_t *bytes, const struct eb_json_text *text, char *out)
{
    const uint8_t *from = bytes + text->at;
    const uint8_t *end = from + text->bytes;
    while (from < end) {
        if (*from != '\\') {
            *out++ = (char)*from++;
            continue;
        }
        uint32_t code;
        size_t count = read_escape(from, (size_t)(end - from), &code);
        assert(count > 0);
        from += count;
        out = write_utf8(out, code); /* No character is longer than its escape. */
    }
    *out = '\0';
}

/* ---- other values ---- */

static size_t skip_digits(struct eb_json_reader *reader)
{
    size_t from = reader->at;
    while (is_json_digit(next_byte(reader))) {
        reader->at++;
    }
    return reader->at - from;
}

/* Skips a number. Sets *is_whole to whether it has no sign, fraction or exponent. */
static bool skip_number(struct eb_json_reader *reader, bool *is_whole)
{
    *is_whole = eb_json_peek(reader) != '-';
    size_t from = reader->at;
    reader->at += !*is_whole;
    bool has_zero = next_byte(reader) == '0';
    size_t digits = skip_digits(reader);
    bool is_good = digits == 1 || (digits > 1 && !has_zero);
    if (is_good && next_byte(reader) == '.') {
        reader->at++;
        *is_whole = false;
        is_good = skip_digits(reader) > 0;
    }
    if (is_good && (next_byte(reader) | 0x20) == 'e') {
        reader->at++;
        *is_whole = false;
        reader->at += next_byte(reader) == '+' || next_byte(reader) == '-';
        is_good = skip_digits(reader) > 0;
    }
    reader->at = is_good ? reader->at : from;
    return is_good || fail_json(reader, "an invalid number");
}

bool eb_json_count(struct eb_json_reader *reader, uint64_t *count, bool *is_count)
{
    (void)eb_json_peek(reader);
    size_t from = reader->at;
    if (!skip_number(reader, is_count)) {
        return false;
    }
    *count = 0;
    for (size_t i = from; *is_count && i < reader->at; i++) {
        *is_count = !__builtin_mul_overflow(*count, 10, count) &&
                    !__builtin_add_overflow(*count, reader->bytes[i] - '0', count) &&
                    *count <= INT64_MAX;
    }
    return true;
}

static bool skip_word(struct eb_json_reader *reader, const char *word)
{
    size_t length = strlen(word);
    if (reader->size - reader->at < length ||
        memcmp(reader->bytes + reader->at, word, length) != 0) {
        return fail_json(reader, "expected a value");
    }
    reader->at += length;
    return true;
}

/* Skips a value that is neither an array nor an object. */
static bool skip_simple(struct eb_json_reader *reader)
{
    struct eb_json_text text;
    bool is_whole;
    switch (eb_json_peek(reader)) {
    case '"': return eb_json_string(reader, &text);
    case 't': return skip_word(reader, "true");
    case 'f': return skip_word(reader, "false");
    case 'n': return skip_word(reader, "null");
    default: break;
    }
    uint8_t first = next_byte(reader);
    return first == '-' || is_json_digit(first) ? skip_number(reader, &is_whole)
                                                : fail_json(reader, "expected a value");
}

bool eb_json_skip(struct eb_json_reader *reader)
{
    char closes[EB_JSON_DEPTH_MAX];
    size_t depth = 0;
    bool is_first = false;
    do {
        struct eb_json_text name;
        if (depth > 0 && !eb_json_next(reader, closes[depth - 1], &is_first)) {
            depth--;
            continue;
        }
        if (depth > 0 && closes[depth - 1] == '}' && !eb_json_name(reader, &name)) {
            return false;
        }
        uint8_t open = eb_json_peek(reader);
        if (open != '{' && open != '[') {
            (void)skip_simple(reader);
            continue;
        }
        if (depth == EB_JSON_DEPTH_MAX) {
            return fail_json(reader, "arrays and objects are nested more than 64 deep");
        }
        reader->at++;
        closes[depth++] = open == '{' ? '}' : ']';
        is_first = true;
    } while (depth > 0 && !reader->error);
    return !reader->error;
}

bool eb_json_end(struct eb_json_reader *reader)
{
    (void)eb_json_peek(reader);
    return !reader->error &&
           (reader->at == reader->size || fail_json(reader, "more text after the end"));
}
