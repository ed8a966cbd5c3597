#include "server/config_print.h"

#include "server/base/name.h"

#include <inttypes.h>
#include <string.h>

/* What one setting is printed from. */
struct line {
    const struct eb_config *config;
    const struct eb_config_setting *setting;
    enum eb_config_source source;
};

static bool check_text(const char *name, const char *text, struct eb_config_error *error)
{
    const char *why = eb_name_error(text, UINT32_MAX);
    if (why) {
        snprintf(error->text, sizeof error->text,
            "%s %s: no file of settings can say it; give it without --print-config", name, why);
    }
    return !why;
}

static bool check_texts(const struct eb_config *config, struct eb_config_error *error)
{
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        struct eb_log_field field = eb_config_setting_field(config, &eb_config_settings[i]);
        if (field.key && field.text && !check_text(field.key, field.text, error)) {
            return false;
        }
    }
    for (size_t i = 0; i < config->listen_count; i++) {
        if (!check_text("listen", config->listen[i], error)) {
            return false;
        }
    }
    return true;
}

/* As a quoted scalar, which nobody takes for a number or a boolean. */
static void print_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', out);
}

static void print_listen(FILE *out, const struct eb_config *config)
{
    for (size_t i = 0; i < config->listen_count; i++) {
        fputs(i ? ", " : "[", out);
        print_text(out, config->listen[i]);
    }
    fputc(']', out);
}

/* `name: value`, or the name alone where nothing is set. The file itself is no setting of a file,
 * and stands there as a comment too. */
static void print_value(FILE *out, const struct line *line)
{
    const struct eb_config_setting *setting = line->setting;
    const struct eb_log_field field = eb_config_setting_field(line->config, setting);
    bool is_list = setting->kind == EB_CONFIG_LISTEN;
    bool is_set = is_list || field.key;
    bool is_file = setting->offset == offsetof(struct eb_config, config_file);
    fprintf(out, "%s%s:%s", is_set && !is_file ? "" : "# ", setting->name, is_set ? " " : "");
    if (is_list) {
        print_listen(out, line->config);
    } else if (field.text) {
        print_text(out, field.text);
    } else if (is_set) {
        fprintf(out, "%" PRId64, field.number);
    }
}

/* Where the value came from, by the name that it has there, and what it is. */
static void print_comment(FILE *out, const struct line *line)
{
    static const char *const words[] = {
        [EB_CONFIG_DEFAULT] = "default",
        [EB_CONFIG_FILE] = "file",
        [EB_CONFIG_ENVIRONMENT] = "environment ",
        [EB_CONFIG_FLAG] = "flag ",
    };
    char name[EB_CONFIG_NAME_BYTES] = "";
    if (line->source >= EB_CONFIG_ENVIRONMENT) {
        eb_config_setting_name(line->setting, line->source, name);
    }
    const char *what = line->setting->what;
    fprintf(out, " # %s%s: %.*s\n", words[line->source], name, (int)strcspn(what, ";"), what);
}

bool eb_config_print(const struct eb_config *config, FILE *out, struct eb_config_error *error)
{
    if (!check_texts(config, error)) {
        return false;
    }
    fputs("# Settings of embagd, as --config takes them. Behind each: where its value came from, "
          "and what it is.\n",
        out);
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        const struct line line = {
            config, &eb_config_settings[i], (enum eb_config_source)config->sources[i]};
        print_value(out, &line);
        print_comment(out, &line);
    }
    if (fflush(out) != 0 || ferror(out)) {
        snprintf(error->text, sizeof error->text, "standard output cannot be written");
        return false;
    }
    return true;
}
