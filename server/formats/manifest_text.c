#include "server/formats/manifest_text.h"

#include "server/base/name.h"
#include "server/base/yaml_load.h"
#include "server/formats/table_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_DIGITS 16

/* ---- reading ---- */

static bool refuse_manifest_size(struct eb_failure *failure)
{
    return eb_failure_set(failure, "larger than %d bytes, the maximum for a %s",
        EB_MANIFEST_BYTES_MAX, EB_MANIFEST_NAME);
}

bool eb_manifest_text_no_memory(struct eb_failure *failure)
{
    eb_failure_set(failure, "out of memory");
    return eb_failure_blame(failure, ENOMEM);
}

bool eb_manifest_text_load(const uint8_t *yaml, size_t yaml_bytes,
    const struct cyaml_schema_value *schema, const char *expected, void **values,
    struct eb_failure *failure)
{
    *values = NULL;
    if (yaml_bytes > EB_MANIFEST_BYTES_MAX) {
        return refuse_manifest_size(failure);
    }
    if (!eb_yaml_load(yaml, yaml_bytes, schema, values, failure)) {
        return false;
    }
    return *values || eb_failure_set(failure, "the file is empty; expected %s", expected);
}

uint8_t *eb_manifest_text_read(struct eb_table_file *file, struct eb_failure *failure)
{
    if (file->bytes > EB_MANIFEST_BYTES_MAX) {
        refuse_manifest_size(failure);
        return NULL;
    }
    uint8_t *yaml = malloc(file->bytes + 1);
    if (!yaml) {
        eb_manifest_text_no_memory(failure);
        return NULL;
    }
    if (!eb_table_file_read(file, 0, yaml, file->bytes, failure)) {
        free(yaml);
        return NULL;
    }
    return yaml;
}

const char *eb_manifest_text_find(
    const uint8_t *yaml, size_t yaml_bytes, const char *key, size_t *rest_bytes)
{
    const char *at = (const char *)yaml;
    size_t key_bytes = strlen(key);
    for (size_t left = yaml_bytes; left >= key_bytes;) {
        if (memcmp(at, key, key_bytes) == 0) {
            *rest_bytes = left - key_bytes;
            return at + key_bytes;
        }
        const char *newline = memchr(at, '\n', left);
        if (!newline) {
            return NULL;
        }
        left -= (size_t)(newline + 1 - at);
        at = newline + 1;
    }
    return NULL;
}

bool eb_manifest_text_number(const char *text, uint64_t max, uint64_t *value)
{
    errno = 0;
    *value = strtoull(text, NULL, 10);
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0' && errno == 0 &&
           *value <= max;
}

bool eb_manifest_text_digest(const char *text, uint64_t *digest)
{
    if (strlen(text) != DIGEST_DIGITS || text[strspn(text, "0123456789abcdef")] != '\0') {
        return false;
    }
    *digest = strtoull(text, NULL, 16);
    return true;
}

bool eb_manifest_text_one(
    const char *field, const char *text, const char *hint, struct eb_failure *failure)
{
    uint64_t number;
    if (!text) {
        return eb_failure_set(failure, "%s: is missing; expected 1", field);
    }
    if (!eb_manifest_text_number(text, UINT64_MAX, &number) || number == 0) {
        return eb_failure_set(failure, "%s: '%.64s' is not a number; expected 1", field, text);
    }
    return number == 1 || eb_failure_set(failure, "%s: '%.64s' %s", field, text, hint);
}

const char *eb_manifest_text_name_error(const char *name, uint32_t bytes_max)
{
    const char *why = eb_name_error(name, bytes_max);
    if (why) {
        return why;
    }
    if (strchr(name, '/')) {
        return "has a slash; expected a file of the same directory";
    }
    return name[0] == '.' ? "begins with a dot; expected a file that the server reads" : NULL;
}

/* ---- writing ---- */

char *eb_manifest_text_print(void (*write)(FILE *out, const void *manifest), const void *manifest,
    size_t *text_bytes, struct eb_failure *failure)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, text_bytes);
    if (!out) {
        eb_manifest_text_no_memory(failure);
        return NULL;
    }
    write(out, manifest);
    bool is_good = !ferror(out);
    is_good = fclose(out) == 0 && is_good;
    if (is_good && *text_bytes <= EB_MANIFEST_BYTES_MAX) {
        return text;
    }
    if (is_good) {
        refuse_manifest_size(failure);
    } else {
        eb_manifest_text_no_memory(failure);
    }
    free(text);
    return NULL;
}

/* The characters of names that cannot stand in double quotes as they are. The backslash is written
 * as its number, because yaml_load.h refuses every backslash before a 0. YAML 1.1 takes U+2028 and
 * U+2029 for line breaks (section 5.4 of its specification), allows a byte order mark at the start
 * only (5.2), and refuses the last two (5.1). */
static const struct {
    const char *character;
    const char *escape;
} escapes[] = {
    {"\"", "\\\""},
    {"\\", "\\x5C"},
    {"\u2028", "\\L"},
    {"\u2029", "\\P"},
    {"\ufeff", "\\uFEFF"},
    {"\xef\xbf\xbe", "\\uFFFE"},
    {"\xef\xbf\xbf", "\\uFFFF"},
};

/* Writes the character at `at`, or its escape. Returns its bytes. */
static size_t write_character(FILE *out, const char *at)
{
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        size_t bytes = strlen(escapes[i].character);
        if (strncmp(at, escapes[i].character, bytes) == 0) {
            fputs(escapes[i].escape, out);
            return bytes;
        }
    }
    fputc(*at, out);
    return 1;
}

void eb_manifest_text_quote(FILE *out, const char *name)
{
    fputc('"', out);
    for (const char *at = name; *at != '\0';) {
        at += write_character(out, at);
    }
    fputc('"', out);
}
