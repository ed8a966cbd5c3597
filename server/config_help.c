#include "server/config_help.h"

#include "server/config_setting.h"

#include <string.h>

/* Columns of a line of help, and where its text begins. */
#define HELP_COLUMNS 96
#define HELP_INDENT 8

static const char introduction[] =
    "embagd keeps a recommender's embedding tables in memory and answers lookups over gRPC.\n"
    "\n"
    "Usage: embagd --model-repository DIR [--SETTING VALUE | --SETTING=VALUE]...\n"
    "       embagd --print-config [--SETTING VALUE | --SETTING=VALUE]...\n"
    "       embagd --help | --version\n"
    "\n"
    "Every setting is a flag (--request-bytes-max 32MiB), an environment variable\n"
    "(EMBAG_REQUEST_BYTES_MAX=32MiB) and a key of the YAML file that --config names\n"
    "(request_bytes_max: 32MiB; listen is a sequence). A flag overrides the environment, which\n"
    "overrides the file, which overrides the default. Sizes are bytes, or end in KiB, MiB or GiB.\n"
    "--print-config says what each setting is and where that came from, as a file for --config, "
    "or\n"
    "what is wrong with them.\n"
    "A variable EMBAG_... that is no setting is an error, so that a slip of the pen is found; "
    "those\n"
    "that Kubernetes sets for a service called embag are passed over.\n"
    "\n";

/* Breaks `text` between words. */
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

static void print_setting(FILE *out, const struct eb_config_setting *setting)
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
    print_wrapped(out, setting->what);
}

bool eb_config_help_print(FILE *out)
{
    fprintf(out, "%s", introduction);
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        print_setting(out, &eb_config_settings[i]);
    }
    return fflush(out) == 0 && !ferror(out);
}

const char *eb_config_help_build(void)
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

bool eb_config_help_print_version(FILE *out)
{
    fprintf(out, "embagd %s (%s)\n", EMBAG_VERSION, eb_config_help_build());
    return fflush(out) == 0 && !ferror(out);
}
