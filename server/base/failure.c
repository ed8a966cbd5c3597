#include "server/base/failure.h"

#include "server/base/name.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of \xNN and a NUL. */
#define ESCAPE_BYTES 5
/* Room for one of the system's paths and the text about it. */
#define RAW_BYTES_MAX (PATH_MAX + 2 * EB_FAILURE_BYTES)
/* Bytes of the beginning that are kept if the text is too long: enough to recognise a path. */
#define HEAD_BYTES 120
#define GAP "..."

/* Writes the character at `in` to `out`, escaped if needed. Returns the position of the next
 * one. */
static const char *take_unit(const char *in, char out[ESCAPE_BYTES], size_t *out_bytes)
{
    const uint8_t *bytes = (const uint8_t *)in;
    *out_bytes = eb_name_char_bytes(bytes, strnlen(in, ESCAPE_BYTES));
    if (*out_bytes > 0) {
        memcpy(out, in, *out_bytes);
        return in + *out_bytes;
    }
    *out_bytes = (size_t)snprintf(out, ESCAPE_BYTES, "\\x%02x", (unsigned)*bytes);
    return in + 1;
}

static size_t measure_failure(const char *raw)
{
    size_t bytes = 0;
    char unit[ESCAPE_BYTES];
    size_t unit_bytes;
    while (*raw) {
        raw = take_unit(raw, unit, &unit_bytes);
        bytes += unit_bytes;
    }
    return bytes;
}

/* Appends characters of *raw, escaped if needed, to the text, which has `used` bytes. Stops at the
 * first that would not fit into `limit`. Moves *raw past those appended. Returns the new length. */
static size_t append_failure(
    struct eb_failure *failure, size_t used, size_t limit, const char **raw)
{
    char unit[ESCAPE_BYTES];
    size_t unit_bytes;
    while (**raw) {
        const char *next = take_unit(*raw, unit, &unit_bytes);
        if (used + unit_bytes > limit) {
            break;
        }
        memcpy(failure->text + used, unit, unit_bytes);
        used += unit_bytes;
        *raw = next;
    }
    return used;
}

/* Copies `raw` into the text. The text holds only whole characters and whole escapes. */
static void copy_escaped(struct eb_failure *failure, const char *raw)
{
    size_t limit = sizeof failure->text - 1;
    char unit[ESCAPE_BYTES];
    size_t unit_bytes;
    size_t used =
        append_failure(failure, 0, measure_failure(raw) > limit ? HEAD_BYTES : limit, &raw);
    if (*raw) {
        memcpy(failure->text + used, GAP, strlen(GAP));
        used += strlen(GAP);
        for (size_t left = measure_failure(raw); left > limit - used; left -= unit_bytes) {
            raw = take_unit(raw, unit, &unit_bytes);
        }
        used = append_failure(failure, used, limit, &raw);
    }
    failure->text[used] = '\0';
}

bool eb_failure_set(struct eb_failure *failure, const char *format, ...)
{
    char raw[RAW_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(raw, sizeof raw, format, arguments) < 0) {
        raw[0] = '\0';
    }
    va_end(arguments);
    copy_escaped(failure, raw);
    failure->is_transient = false;
    return false;
}

bool eb_failure_blame(struct eb_failure *failure, int error)
{
    switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENOENT:
    case ENOTDIR:
    case ENOTCONN:
    case ELOOP:
    case EACCES:
    case EPERM: failure->is_transient = true; break;
    default: failure->is_transient = false; break;
    }
    return false;
}

bool eb_failure_locate(struct eb_failure *failure, const char *path)
{
    struct eb_failure inner = *failure;
    eb_failure_set(failure, "%s: %s", path, inner.text);
    failure->is_transient = inner.is_transient;
    return false;
}

/* Returns how many bytes at the beginning of a failure's text match the directory. The directory is
 * compared in its escaped form and without its trailing slashes. Sets *is_whole if all of the
 * directory matches. */
static size_t match_directory(const char *text, const char *directory, bool *is_whole)
{
    char unit[ESCAPE_BYTES];
    size_t unit_bytes;
    size_t matched = 0;
    while (directory[strspn(directory, "/")] != '\0') {
        const char *next = take_unit(directory, unit, &unit_bytes);
        if (strncmp(text + matched, unit, unit_bytes) != 0) {
            *is_whole = false;
            return matched;
        }
        matched += unit_bytes;
        directory = next;
    }
    *is_whole = matched > 0;
    return matched;
}

/* Returns how many bytes at the beginning of the text, which follows a gap, are the end of the
 * directory and the slashes after it. */
static size_t match_end(const char *text, const char *directory)
{
    for (; *directory; directory++) {
        bool is_whole;
        size_t matched = match_directory(text, directory, &is_whole);
        if (is_whole && text[matched] == '/') {
            return matched + strspn(text + matched, "/");
        }
    }
    return text[0] == '/' && directory[0] == '\0' ? 1 : 0;
}

/* Returns whether a path may begin at `at`: only at the start, or after a blank or a parenthesis.
 * The name of a table, which may look like a path, comes after a quote. */
static bool may_begin(const char *text, const char *at)
{
    return at == text || at[-1] == ' ' || at[-1] == '(';
}

/* Returns how many bytes at `at` reveal the directory, and sets *replacement to the text that is to
 * replace them. */
static size_t find_hidden(
    const char *text, const char *at, const char *directory, const char **replacement)
{
    bool is_whole;
    size_t matched = match_directory(at, directory, &is_whole);
    *replacement = "";
    if (!may_begin(text, at)) {
        bool is_behind_gap =
            at >= text + strlen(GAP) && strncmp(at - strlen(GAP), GAP, strlen(GAP)) == 0;
        return is_behind_gap ? match_end(at, directory) : 0;
    }
    if (is_whole && at[matched] == '/') {
        return matched + strspn(at + matched, "/");
    }
    if (is_whole && directory[0] == '/' && strchr(" '\"):;,", at[matched])) {
        *replacement = ".";
        return matched;
    }
    return !is_whole && matched > 1 && strncmp(at + matched, GAP, strlen(GAP)) == 0 ? matched : 0;
}

void eb_failure_make_relative(char *text, const char *directory)
{
    /* No replacement is longer than the text that it replaces, so the text is rewritten in place. A
     * copy of it is searched. */
    char whole[EB_FAILURE_BYTES];
    snprintf(whole, sizeof whole, "%s", text);
    char *out = text;
    for (const char *at = whole; *at;) {
        const char *replacement;
        size_t hidden = find_hidden(whole, at, directory, &replacement);
        if (hidden > 0) {
            memcpy(out, replacement, strlen(replacement));
            out += strlen(replacement);
            at += hidden;
        } else {
            *out++ = *at++;
        }
    }
    *out = '\0';
}
