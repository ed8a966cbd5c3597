#include "proto/trace_parent.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Offsets of the parts of VERSION-TRACE-PARENT-FLAGS, and its size. Each part but the first follows
 * a dash. */
#define VERSION_DIGITS 2
#define TRACE_OFFSET 3
#define PARENT_OFFSET 36
#define FLAGS_OFFSET 53
#define TEXT_BYTES 55

/* Returns a digit's value, or -1 for anything else. The recommendation excludes capital letters. */
static int read_digit(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool is_hex(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (read_digit(text[i]) < 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether the text is digits that are not all zero. All zero means that there is no id. */
static bool is_id(const char *text, size_t count)
{
    return is_hex(text, count) && strspn(text, "0") < count;
}

static bool is_well_formed(const char *text, size_t size)
{
    if (size < TEXT_BYTES || !is_hex(text, VERSION_DIGITS) || memcmp(text, "ff", 2) == 0) {
        return false;
    }
    /* Only later versions may have further parts, after another dash. */
    if (size > TEXT_BYTES && (memcmp(text, "00", 2) == 0 || text[TEXT_BYTES] != '-')) {
        return false;
    }
    return text[TRACE_OFFSET - 1] == '-' && text[PARENT_OFFSET - 1] == '-' &&
           text[FLAGS_OFFSET - 1] == '-' && is_id(text + TRACE_OFFSET, EB_TRACE_ID_BYTES - 1) &&
           is_id(text + PARENT_OFFSET, EB_TRACE_SPAN_BYTES - 1) && is_hex(text + FLAGS_OFFSET, 2);
}

bool eb_trace_parent_parse(const char *text, size_t size, struct eb_trace_parent *out)
{
    *out = (struct eb_trace_parent){0};
    if (!is_well_formed(text, size)) {
        return false;
    }
    memcpy(out->trace_id, text + TRACE_OFFSET, sizeof out->trace_id - 1);
    memcpy(out->parent_id, text + PARENT_OFFSET, sizeof out->parent_id - 1);
    out->is_sampled = read_digit(text[FLAGS_OFFSET + 1]) & 1;
    return true;
}

size_t eb_trace_parent_format(const struct eb_trace_parent *trace, char out[EB_TRACE_PARENT_BYTES])
{
    out[0] = '\0';
    if (trace->trace_id[0] == '\0') {
        return 0;
    }
    int size = snprintf(out, EB_TRACE_PARENT_BYTES, "00-%s-%s-0%d", trace->trace_id,
        trace->parent_id, trace->is_sampled);
    assert(size == TEXT_BYTES);
    return (size_t)size;
}
