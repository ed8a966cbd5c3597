#include "server/config.h"

#include "server/base/name.h"

#include <inttypes.h>
#include <string.h>

/* Columns of a line of help, and the indentation of its text. */
#define HELP_COLUMNS 96
#define HELP_INDENT 8

/* ---- --print-config ---- */

/* A setting to print. */
struct printed_line {
    const struct eb_config *config;
    const struct eb_config_setting *setting;
    enum eb_config_source source;
};

static bool check_yaml_text(const char *name, const char *text, struct eb_failure *failure)
{
    const char *why = eb_name_error(text, UINT32_MAX);
    return !why || eb_failure_set(failure,
                       "%s %s, so a file of settings cannot hold it; start without --print-config",
                       name, why);
}

static bool check_yaml_texts(const struct eb_config *config, struct eb_failure *failure)
{
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        struct eb_log_field field = eb_config_setting_field(config, &eb_config_settings[i]);
        if (field.key && field.text && !check_yaml_text(field.key, field.text, failure)) {
            return false;
        }
    }
    for (size_t i = 0; i < config->listen_count; i++) {
        if (!check_yaml_text("listen", config->listen[i], failure)) {
            return false;
        }
    }
    return true;
}

/* Prints a quoted scalar, which no reader takes for a number or a boolean. */
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

/* Prints `name: value`, or a comment with the name alone if the setting is not set. The path of the
 * file is printed as a comment too, because it is not a setting of a file. */
static void print_value(FILE *out, const struct printed_line *line)
{
    const struct eb_config_setting *setting = line->setting;
    struct eb_log_field field = eb_config_setting_field(line->config, setting);
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

/* Prints " (VALUES)" for a setting that accepts only some words or a range of numbers, with what 0
 * means if the description says so. */
static void print_allowed(FILE *out, const struct eb_config_setting *setting)
{
    switch (setting->kind) {
    case EB_CONFIG_TEXT:
    case EB_CONFIG_PORT:
    case EB_CONFIG_LISTEN: return;
    case EB_CONFIG_SOCKET:
    case EB_CONFIG_PREFETCH:
    case EB_CONFIG_PART:
    case EB_CONFIG_ROUTE:
    case EB_CONFIG_LEVEL:
    case EB_CONFIG_CHOICE: fprintf(out, " (%s)", setting->value); return;
    case EB_CONFIG_COUNT:
    case EB_CONFIG_LIMIT: break;
    }
    const char *unit = eb_config_setting_unit(setting);
    const char *zero = strstr(setting->what, "; 0: ");
    int zero_bytes = zero ? (int)strcspn(zero + 1, ";") + 1 : 0;
    fprintf(out, " (%" PRIu64 "..%" PRIu64 "%s%s%.*s)", setting->min, setting->max,
        *unit ? " " : "", unit, zero_bytes, zero ? zero : "");
}

/* Prints the value's source, with the setting's name in that source, and the beginning of the
 * setting's description, with the values that are allowed. */
static void print_comment(FILE *out, const struct printed_line *line)
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
    fprintf(out, " # %s%s: %.*s", words[line->source], name, (int)strcspn(what, ";"), what);
    print_allowed(out, line->setting);
    fputs(line->setting->effect == EB_CONFIG_LIVE ? " [live]\n" : "\n", out);
}

bool eb_config_print(const struct eb_config *config, FILE *out, struct eb_failure *failure)
{
    if (!check_yaml_texts(config, failure)) {
        return false;
    }
    fputs(
        "# Settings of embagd, in the form that --config reads. Each is followed by the source of "
        "its value, its description and the values that it may have. Those marked [live] change "
        "when the settings are read again. embagd --help says more.\n",
        out);
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        struct printed_line line = {
            config, &eb_config_settings[i], (enum eb_config_source)config->sources[i]};
        print_value(out, &line);
        print_comment(out, &line);
    }
    if (fflush(out) != 0 || ferror(out)) {
        return eb_failure_set(failure, "cannot write standard output");
    }
    return true;
}

/* ---- --help and --version ---- */

static const char introduction[] =
    "embagd keeps a recommender's embedding tables in memory and answers lookups over gRPC.\n"
    "\n"
    "Usage: embagd --model-repository DIR [--SETTING VALUE | --SETTING=VALUE]...\n"
    "       embagd --print-config [--SETTING VALUE | --SETTING=VALUE]...\n"
    "       embagd --help | --version\n"
    "\n"
    "Every setting can be given as a flag (--request-bytes-max 32MiB), as an environment variable\n"
    "(EMBAG_REQUEST_BYTES_MAX=32MiB) and as a key of the YAML file that --config names\n"
    "(request_bytes_max: 32MiB; listen is a sequence). A flag overrides the environment, which\n"
    "overrides the file, which overrides the default. Sizes are in bytes, or end in KiB, MiB or\n"
    "GiB. --print-config prints all settings with their sources, in the form of a file for\n"
    "--config, or reports what is wrong with them.\n"
    "Settings marked [live] also change while the server runs, when it reads its settings again:\n"
    "on SIGHUP or `embag settings reload`, or when their file changes (watch_settings).\n"
    "`embag settings` lists those in force.\n"
    "A variable EMBAG_... that is not a setting is an error, to catch typing mistakes. Variables\n"
    "that Kubernetes sets for a service called embag are ignored.\n"
    "\n";

/* Prints `text`, broken between words. */
static void print_wrapped(FILE *out, const char *text)
{
    int column = HELP_COLUMNS;
    while (*text) {
        int word_bytes = (int)strcspn(text, " ");
        if (column + 1 + word_bytes > HELP_COLUMNS) {
            fprintf(out, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        } else {
            column += fprintf(out, " ");
        }
        column += fprintf(out, "%.*s", word_bytes, text);
        text += word_bytes;
        text += strspn(text, " ");
    }
    fprintf(out, "\n");
}

static void print_setting_help(FILE *out, const struct eb_config_setting *setting)
{
    char name[EB_CONFIG_NAME_BYTES];
    eb_config_setting_name(setting, EB_CONFIG_FLAG, name);
    fprintf(out, "  %s %s", name, setting->value);
    const char *unit = eb_config_setting_unit(setting);
    if (setting->kind == EB_CONFIG_COUNT || setting->kind == EB_CONFIG_LIMIT) {
        fprintf(out, "  (%llu..%llu%s%s", (unsigned long long)setting->min,
            (unsigned long long)setting->max, *unit ? " " : "", unit);
        if (setting->kind == EB_CONFIG_LIMIT) {
            fprintf(out, ", default %llu", (unsigned long long)setting->fallback);
        }
        fprintf(out, ")");
    }
    fputs(setting->effect == EB_CONFIG_LIVE ? "  [live]" : "", out);
    print_wrapped(out, setting->what);
}

bool eb_config_print_help(FILE *out)
{
    fprintf(out, "%s", introduction);
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        print_setting_help(out, &eb_config_settings[i]);
    }
    return fflush(out) == 0 && !ferror(out);
}

const char *eb_config_build(void)
{
#ifdef __OPTIMIZE__
#define BUILD_KIND "optimised, "
#else
#define BUILD_KIND "debug, "
#endif
#ifdef __clang__
    return BUILD_KIND __VERSION__;
#else
    return BUILD_KIND "gcc " __VERSION__;
#endif
}

bool eb_config_print_version(FILE *out)
{
    fprintf(out, "embagd %s (%s)\n", EMBAG_VERSION, eb_config_build());
    return fflush(out) == 0 && !ferror(out);
}
