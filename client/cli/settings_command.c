#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "client/embag_admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 40 /* most characters of a column */

#define SERVER_USAGE                                                                               \
    "  --server ADDRESS       the server's admin_listen, unix:PATH; or, if admin_on_data_port\n"   \
    "                         is true, an address of listen\n"
#define EXIT_USAGE                                                                                 \
    "Exit status: 0; 1 if the server or the network causes an error; 2 for a usage error.\n"

struct settings_options {
    const char *server;
    bool pending;
    bool json;
    struct embag_access access;
};

/* ---- settings list ---- */

static const char *name_origin(enum embag_setting_origin origin)
{
    switch (origin) {
    case EMBAG_ORIGIN_DEFAULT: return "default";
    case EMBAG_ORIGIN_FILE: return "file";
    case EMBAG_ORIGIN_ENVIRONMENT: return "environment";
    case EMBAG_ORIGIN_FLAG: return "flag";
    }
    return "unknown";
}

static const char *name_kind(const struct embag_setting *setting)
{
    return setting->live ? "live" : "start";
}

static const char *show_value(const char *value)
{
    return value[0] != '\0' ? value : "-";
}

/* Widens a column for a text, unless it is so long that it had better stick out. */
static void widen_settings(int *width, const char *text)
{
    int length = (int)strlen(eb_output_printable(text).bytes);
    *width = length > *width && length <= WIDTH_MAX ? length : *width;
}

static void print_settings_text(const struct embag_setting_list *list, bool only_pending)
{
    int name_width = (int)strlen("NAME");
    int value_width = (int)strlen("VALUE");
    for (size_t i = 0; i < list->count; i++) {
        widen_settings(&name_width, list->settings[i].name);
        widen_settings(&value_width, list->settings[i].value);
    }
    printf("%-*s  %-*s  %-11s  %-5s  PENDING\n", name_width, "NAME", value_width, "VALUE", "ORIGIN",
        "KIND");
    for (size_t i = 0; i < list->count; i++) {
        const struct embag_setting *setting = &list->settings[i];
        if (only_pending && !setting->pending) {
            continue;
        }
        printf("%-*s  %-*s  %-11s  %s%s%s\n", name_width, eb_output_printable(setting->name).bytes,
            value_width, eb_output_printable(show_value(setting->value)).bytes,
            name_origin(setting->origin), name_kind(setting), setting->pending ? "  " : "",
            setting->pending ? eb_output_printable(show_value(setting->pending_value)).bytes : "");
    }
}

/* Prints a value, which is null if the setting is not set. */
static void print_value_json(const char *value)
{
    if (value[0] != '\0') {
        eb_output_json_text(stdout, value);
    } else {
        fputs("null", stdout);
    }
}

static void print_setting_json(const struct embag_setting *setting)
{
    fputs("{\"name\": ", stdout);
    eb_output_json_text(stdout, setting->name);
    fputs(", \"value\": ", stdout);
    print_value_json(setting->value);
    printf(", \"origin\": \"%s\", \"kind\": \"%s\", \"pending\": %s", name_origin(setting->origin),
        name_kind(setting), setting->pending ? "true" : "false");
    if (setting->pending) {
        fputs(", \"pending_value\": ", stdout);
        print_value_json(setting->pending_value);
    }
    putchar('}');
}

static void print_settings_json(const struct embag_setting_list *list, bool only_pending)
{
    const char *between = "";
    printf("{\"settings\": [");
    for (size_t i = 0; i < list->count; i++) {
        if (!only_pending || list->settings[i].pending) {
            fputs(between, stdout);
            print_setting_json(&list->settings[i]);
            between = ", ";
        }
    }
    printf("]}\n");
}

static enum embag_status list_settings(
    const struct settings_options *options, struct embag_client *client, struct embag_error *error)
{
    struct embag_setting_list *list;
    enum embag_status status = embag_list_settings(client, &list, error);
    if (status == EMBAG_OK && options->json) {
        print_settings_json(list, options->pending);
    } else if (status == EMBAG_OK) {
        print_settings_text(list, options->pending);
    }
    embag_setting_list_free(list);
    return status;
}

/* ---- settings reload ---- */

static enum embag_status reload_settings(
    const struct settings_options *options, struct embag_client *client, struct embag_error *error)
{
    struct embag_reload reload;
    enum embag_status status = embag_reload_settings(client, &reload, error);
    if (status == EMBAG_OK && options->json) {
        printf("{\"changed\": %" PRIu32 ", \"pending\": %" PRIu32 "}\n", reload.changed,
            reload.pending);
    } else if (status == EMBAG_OK) {
        printf("%" PRIu32 " changed, %" PRIu32 " wait for a restart\n", reload.changed,
            reload.pending);
    }
    return status;
}

/* ---- the command ---- */

static const struct eb_flag list_flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct settings_options, server), 0, 0, NULL},
    {"pending", EB_FLAG_SWITCH, offsetof(struct settings_options, pending), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct settings_options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct settings_options),
};

static const struct eb_flag reload_flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct settings_options, server), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct settings_options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct settings_options),
};

static const struct {
    const char *name;
    struct eb_command command;
    enum embag_status (*run)(const struct settings_options *options, struct embag_client *client,
        struct embag_error *error);
} settings_parts[] = {
    {"list",
        {"settings",
            {"Usage: embag settings [list] --server ADDRESS [--pending] [--json]\n"
             "       embag settings reload --server ADDRESS [--json]\n"
             "Lists the settings of a server: value, origin (default, file, environment, flag), "
             "kind,\n"
             "and the value that takes effect at the next start, if there is another one. Settings "
             "of\n"
             "the kind live change when they are reloaded; those of the kind start at the next "
             "start.\n"
             "\n" SERVER_USAGE
             "  --pending              list only the settings that will change at the next start\n"
             "  --json                 print one JSON object\n" EB_ACCESS_USAGE EXIT_USAGE},
            list_flags, sizeof list_flags / sizeof list_flags[0]},
        list_settings},
    {"reload",
        {"settings reload",
            {"Usage: embag settings reload --server ADDRESS [--json]\n"
             "Makes the server read its settings again: flags, environment and file. Those of the "
             "kind\n"
             "live take effect at once. If something is wrong with one of them, nothing changes.\n"
             "\n" SERVER_USAGE
             "  --json                 print one JSON object\n" EB_ACCESS_USAGE EXIT_USAGE},
            reload_flags, sizeof reload_flags / sizeof reload_flags[0]},
        reload_settings},
};

#define PART_COUNT (sizeof settings_parts / sizeof settings_parts[0])

/* Runs part number `part` of the command. */
static int run_settings_part(size_t part, const struct settings_options *options)
{
    if (!eb_arguments_check_server(&settings_parts[part].command, options->server)) {
        return 2;
    }
    struct embag_options settings = {.access = options->access};
    struct embag_client *client = NULL;
    struct embag_error error;
    enum embag_status status = embag_open(options->server, &settings, &client, &error);
    if (status == EMBAG_OK) {
        status = settings_parts[part].run(options, client, &error);
    }
    embag_close(client);
    return status == EMBAG_OK ? 0 : eb_output_error(&error);
}

static int read_settings_part(size_t part, int argument_count, char **arguments)
{
    struct settings_options options = {0};
    switch (eb_arguments_read(&settings_parts[part].command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_settings_part(part, &options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

int eb_settings_command_main(int argument_count, char **arguments)
{
    if (argument_count < 2 || arguments[1][0] == '-') {
        return read_settings_part(0, argument_count, arguments);
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (strcmp(arguments[1], settings_parts[i].name) == 0) {
            return read_settings_part(i, argument_count - 1, arguments + 1);
        }
    }
    fprintf(
        stderr, "embag: settings: unknown command \"%s\": expected list or reload\n", arguments[1]);
    return 2;
}
