#include "server/models/yaml_load.h"

#include <stdio.h>
#include <string.h>

/* What libcyaml has reported. */
struct report {
    char text[EB_FILE_FAULT_BYTES];
    size_t used;
};

/* Joins libcyaml's lines to one: it reports what is wrong first, then where, from the inside out.
 */
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

/* Whether an escape may stand for a NUL, at which libcyaml would end the text. Raw ones libyaml
 * refuses. */
static bool has_escaped_nul(const uint8_t *yaml, size_t yaml_bytes)
{
    static const char *const escapes[] = {"\\0", "\\x00", "\\u0000", "\\U00000000"};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        if (memmem(yaml, yaml_bytes, escapes[i], strlen(escapes[i]))) {
            return true;
        }
    }
    return false;
}

bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_file_fault *fault)
{
    *values = NULL;
    if (has_escaped_nul(yaml, yaml_bytes)) {
        return eb_file_fault_set(fault, "it holds an escaped NUL; no text of ours has one");
    }
    struct report report = {.used = 0};
    cyaml_config_t parser = make_parser(&report);
    cyaml_err_t error = cyaml_load_data(yaml, yaml_bytes, &parser, schema, values, NULL);
    if (error != CYAML_OK) {
        return eb_file_fault_set(fault, "%s%s", cyaml_strerror(error), report.text);
    }
    if (report.used > 0) {
        /* A second document is only warned of. */
        eb_yaml_free(schema, *values);
        *values = NULL;
        return eb_file_fault_set(fault, "%s", report.text + strlen(": "));
    }
    return true;
}

void eb_yaml_free(const cyaml_schema_value_t *schema, void *values)
{
    struct report report = {.used = 0};
    cyaml_config_t parser = make_parser(&report);
    cyaml_free(&parser, schema, values, 0);
}
