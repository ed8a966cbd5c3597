#include "server/base/yaml_load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UTF8_MARK "\xef\xbb\xbf"

const cyaml_schema_value_t eb_yaml_text = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED)};

/* The messages of libcyaml. */
struct report {
    char text[EB_FAILURE_BYTES];
    size_t used;
};

/* Joins libcyaml's lines into one. It first reports what is wrong, then where, from the inside
 * out. */
static void on_report(cyaml_log_t level, void *context, const char *format, va_list arguments)
{
    (void)level;
    struct report *report = context;
    char line[256];
    if (vsnprintf(line, sizeof line, format, arguments) < 0 || strstr(line, "Backtrace")) {
        return;
    }
    const char *text = line;
    text += strncmp(text, "Load: ", 6) == 0 ? 6 : 0;
    text += strspn(text, " ");
    int length = (int)strcspn(text, "\n");
    size_t room = sizeof report->text - report->used;
    int written = snprintf(report->text + report->used, room, ": %.*s", length, text);
    report->used += written < (int)room ? (size_t)written : room - 1;
}

static cyaml_config_t make_parser(struct report *report)
{
    return (cyaml_config_t){
        .log_fn = on_report,
        .log_ctx = report,
        .mem_fn = cyaml_mem,
        .log_level = CYAML_LOG_WARNING,
        .flags = CYAML_CFG_NO_ALIAS,
    };
}

static bool begins_with(const uint8_t *yaml, size_t yaml_bytes, const char *text)
{
    return yaml_bytes >= strlen(text) && memcmp(yaml, text, strlen(text)) == 0;
}

/* Returns whether the YAML contains one of `texts`, a list with NULL at the end. */
static bool has_any(const uint8_t *yaml, size_t yaml_bytes, const char *const *texts)
{
    while (*texts && !memmem(yaml, yaml_bytes, *texts, strlen(*texts))) {
        texts++;
    }
    return *texts;
}

/* Returns whether the YAML may contain an escaped NUL, at which libcyaml would cut off the text.
 * libyaml itself refuses raw NULs. */
static bool has_escaped_nul(const uint8_t *yaml, size_t yaml_bytes)
{
    static const char *const escapes[] = {"\\0", "\\x00", "\\u0000", "\\U00000000", NULL};
    return has_any(yaml, yaml_bytes, escapes);
}

/* Returns whether a line begins with a directive: libyaml compares each directive with all before
 * it. Knows all of YAML's line breaks. */
static bool has_directive(const uint8_t *yaml, size_t yaml_bytes)
{
    static const char *const breaks[] = {
        "\n%", "\r%", "\xc2\x85%", "\xe2\x80\xa8%", "\xe2\x80\xa9%", NULL};
    return begins_with(yaml, yaml_bytes, "%") || begins_with(yaml, yaml_bytes, UTF8_MARK "%") ||
           has_any(yaml, yaml_bytes, breaks);
}

/* Refuses input that libyaml would accept but that no valid file of ours contains. */
static bool check_bytes(const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    if (begins_with(yaml, yaml_bytes, "\xff\xfe") || begins_with(yaml, yaml_bytes, "\xfe\xff")) {
        return eb_failure_set(failure, "the file is UTF-16; write it as UTF-8");
    }
    if (has_escaped_nul(yaml, yaml_bytes)) {
        return eb_failure_set(failure, "the file holds an escaped NUL, which no value may contain");
    }
    return !has_directive(yaml, yaml_bytes) ||
           eb_failure_set(failure, "a line begins with '%%'; YAML directives are not supported");
}

/* Returns the first line, counted from 1, that has a tab in its indentation, which YAML forbids.
 * Returns 0 if there is none. libyaml's own message does not mention tabs, and gives the number of
 * another line or none. */
static size_t find_tabbed_line(const char *yaml, size_t yaml_bytes)
{
    const char *end = yaml + yaml_bytes;
    for (size_t line = 1; yaml < end; line++) {
        while (yaml < end && (*yaml == ' ' || *yaml == '-')) {
            yaml++;
        }
        if (yaml < end && *yaml == '\t') {
            return line;
        }
        const char *newline = memchr(yaml, '\n', (size_t)(end - yaml));
        yaml = newline ? newline + 1 : end;
    }
    return 0;
}

/* Sets *failure, which is transient if out of memory. Always returns false. */
static bool refuse_yaml(const uint8_t *yaml, size_t yaml_bytes, cyaml_err_t error,
    const struct report *report, struct eb_failure *failure)
{
    size_t line =
        error == CYAML_ERR_LIBYAML_PARSER ? find_tabbed_line((const char *)yaml, yaml_bytes) : 0;
    if (line > 0) {
        return eb_failure_set(failure,
            "line %zu is indented with a tab; YAML allows only spaces (%s%s)", line,
            cyaml_strerror(error), report->text);
    }
    eb_failure_set(failure, "%s%s", cyaml_strerror(error), report->text);
    return error == CYAML_ERR_OOM && eb_failure_blame(failure, ENOMEM);
}

bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_failure *failure)
{
    *values = NULL;
    if (!check_bytes(yaml, yaml_bytes, failure)) {
        return false;
    }
    struct report report = {.used = 0};
    cyaml_config_t parser = make_parser(&report);
    cyaml_err_t error = cyaml_load_data(yaml, yaml_bytes, &parser, schema, values, NULL);
    if (error != CYAML_OK) {
        return refuse_yaml(yaml, yaml_bytes, error, &report, failure);
    }
    if (report.used > 0) {
        /* libcyaml only warns about a second document. */
        eb_yaml_free(schema, *values);
        *values = NULL;
        return eb_failure_set(failure, "%s", report.text + strlen(": "));
    }
    return true;
}

void eb_yaml_free(const cyaml_schema_value_t *schema, void *values)
{
    struct report report = {.used = 0};
    cyaml_config_t parser = make_parser(&report);
    cyaml_free(&parser, schema, values, 0);
}
