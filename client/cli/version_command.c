#include "client/cli/version_command.h"

#include "client/cli/access_flags.h"
#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/cli/progress_bar.h"
#include "client/embag_admin.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_END                                                                                  \
    "\n"                                                                                           \
    "  --server ADDRESS       unix:PATH of the server's admin_listen\n" EB_ACCESS_USAGE            \
    "The server goes on where this is interrupted.\n"                                              \
    "Exit status: 0, 1 where the server or the network says no, 2 for a usage error.\n"

struct options {
    const char *model;
    const char *version;
    const char *server;
    struct embag_access access;
};

static const struct eb_flag flags[] = {
    {"MODEL", EB_FLAG_POSITIONAL, offsetof(struct options, model), 0, 0, NULL},
    {"VERSION", EB_FLAG_POSITIONAL, offsetof(struct options, version), 0, 0, NULL},
    {"server", EB_FLAG_TEXT, offsetof(struct options, server), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct options),
};

#define FLAG_COUNT (sizeof flags / sizeof flags[0])

/* In the order of enum embag_version_verb. */
static const struct eb_command commands[] = {
    {"models load",
        "Usage: embag models load MODEL VERSION --server unix:PATH\n"
        "Loads a version, which then stays until it is unloaded; 0: looks at the disk, and loads\n"
        "what model.yaml says.\n" USAGE_END,
        flags, FLAG_COUNT},
    {"models unload",
        "Usage: embag models unload MODEL VERSION --server unix:PATH\n"
        "Drops a version that is not served and has no label, however long it was to be "
        "kept.\n" USAGE_END,
        flags, FLAG_COUNT},
    {"models serve",
        "Usage: embag models serve MODEL VERSION --server unix:PATH\n"
        "Serves a version, whatever model.yaml says; it is loaded first where it must be. 0: the\n"
        "one that model.yaml says, again.\n" USAGE_END,
        flags, FLAG_COUNT},
};

static const char *const verbs[] = {"load", "unload", "serve"};

/* Of the version that is being loaded: where that changes, a new one. */
static void on_version_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_progress_bar *bar = context;
    if (total_bytes != bar->total_bytes || done_bytes < bar->done_bytes) {
        eb_progress_bar_end(bar);
        eb_progress_bar_init(bar, bar->name, total_bytes);
    }
    eb_progress_bar_advance(bar, done_bytes - bar->done_bytes);
}

static int send(const struct options *options, struct embag_version_command *command)
{
    const struct embag_options settings = {.access = options->access};
    struct eb_progress_bar bar;
    struct embag_client *client = NULL;
    struct embag_error error;
    eb_progress_bar_init(&bar, options->model, 0);
    command->on_progress = on_version_progress;
    command->context = &bar;
    enum embag_status status = embag_open(options->server, &settings, &client, &error);
    if (status == EMBAG_OK) {
        status = embag_command_version(client, command, &error);
    }
    embag_close(client);
    eb_progress_bar_end(&bar);
    if (status != EMBAG_OK) {
        return eb_output_error(&error);
    }
    printf("%s: %s\n", eb_output_printable(options->model).bytes,
        eb_output_printable(error.text).bytes);
    return 0;
}

static int run_version_command(const struct options *options, enum embag_version_verb verb)
{
    char *end = NULL;
    errno = 0;
    struct embag_version_command command = {.verb = verb, .model = options->model};
    command.version = strtoull(options->version, &end, 10);
    if (!isdigit((unsigned char)options->version[0]) || *end != '\0' || errno != 0) {
        fprintf(stderr, "embag: %s: VERSION \"%s\" is no version's number\n", commands[verb].name,
            options->version);
        return 2;
    }
    if (!options->server) {
        fprintf(stderr, "embag: %s: --server is missing\n", commands[verb].name);
        return 2;
    }
    return send(options, &command);
}

int eb_version_command_main(int argument_count, char **arguments)
{
    struct options options = {0};
    enum embag_version_verb verb = EMBAG_VERSION_LOAD;
    while (strcmp(arguments[0], verbs[verb]) != 0) {
        verb++;
    }
    switch (eb_arguments_read(&commands[verb], argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_version_command(&options, verb);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
