#include "client/cli/status_command.h"

#include "client/cli/access_flags.h"
#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/embag_admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "Usage: embag models status [--model NAME] --server unix:PATH [--json]\n"
    "Tells of each version its state, memory, the digest of its tables, when it was loaded and "
    "how\n"
    "long that took, its labels, and why it does not load.\n"
    "\n"
    "  --model NAME           of this model alone\n"
    "  --server ADDRESS       unix:PATH of the server's admin_listen\n"
    "  --json                 one JSON object\n" EB_ACCESS_USAGE
    "Exit status: 0, 1 where the server or the network says no, 2 for a usage error.\n";

struct options {
    const char *model;
    const char *server;
    bool json;
    struct embag_access access;
};

static const struct eb_flag flags[] = {
    {"model", EB_FLAG_TEXT, offsetof(struct options, model), 0, 0, NULL},
    {"server", EB_FLAG_TEXT, offsetof(struct options, server), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct options),
};

static const struct eb_command command = {
    "models status", usage, flags, sizeof flags / sizeof flags[0]};

/* "2026-01-31T12:00:00Z" */
#define TIME_BYTES 32

static void format_time(uint64_t unix_ms, char out[TIME_BYTES])
{
    const time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    out[0] = '\0';
    if (gmtime_r(&seconds, &parts)) {
        (void)strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
}

/* ---- for people ---- */

static void print_status_notes(
    const struct embag_model *model, const struct embag_model_version *version)
{
    for (size_t i = 0; i < version->label_count; i++) {
        printf("%s%s", i == 0 ? "  labels " : ", ", eb_output_printable(version->labels[i]).bytes);
    }
    if (version->held) {
        printf("  held by command");
    }
    if (version->version != 0 && version->version == model->commanded_version) {
        printf("  to be served by command");
    }
    if (version->error[0] != '\0') {
        printf("  %s", eb_output_printable(version->error).bytes);
    }
}

static void print_status_version(
    const struct embag_model *model, const struct embag_model_version *version)
{
    printf("  %-12" PRIu64 "  %-8s", version->version, eb_output_state(version->state));
    if (version->loaded_unix_ms != 0) {
        char time[TIME_BYTES];
        format_time(version->loaded_unix_ms, time);
        printf("  %10s  %016" PRIx64 "  loaded %s in %.1f s", eb_output_size(version->bytes).bytes,
            version->digest, time, (double)version->load_ms / 1000);
    }
    print_status_notes(model, version);
    putchar('\n');
}

static void print_model(const struct embag_model *model)
{
    printf("%s\n", eb_output_printable(model->name).bytes);
    if (model->config_error[0] != '\0') {
        printf("  fault: %s\n", eb_output_printable(model->config_error).bytes);
    }
    for (size_t i = 0; i < model->version_count; i++) {
        print_status_version(model, &model->versions[i]);
    }
}

/* ---- as JSON ---- */

static void print_status_version_json(const struct embag_model_version *version)
{
    printf("{\"version\": %" PRIu64 ", \"state\": \"%s\", \"bytes\": %" PRIu64
           ", \"digest\": \"%016" PRIx64 "\", \"loaded_unix_ms\": %" PRIu64
           ", \"load_ms\": %" PRIu64 ", \"held\": %s, \"labels\": [",
        version->version, eb_output_state(version->state), version->bytes, version->digest,
        version->loaded_unix_ms, version->load_ms, version->held ? "true" : "false");
    for (size_t i = 0; i < version->label_count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        eb_output_json_text(stdout, version->labels[i]);
    }
    printf("], \"error\": ");
    eb_output_json_text(stdout, version->error);
    putchar('}');
}

static void print_model_json(const struct embag_model *model)
{
    printf("{\"name\": ");
    eb_output_json_text(stdout, model->name);
    printf(", \"served_version\": %" PRIu64 ", \"commanded_version\": %" PRIu64
           ", \"config_error\": ",
        model->served_version, model->commanded_version);
    eb_output_json_text(stdout, model->config_error);
    printf(", \"versions\": [");
    for (size_t i = 0; i < model->version_count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_status_version_json(&model->versions[i]);
    }
    printf("]}");
}

static void print_status_json(const struct embag_model_list *list)
{
    printf("{\"models\": [");
    for (size_t i = 0; i < list->count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_model_json(&list->models[i]);
    }
    printf("]}\n");
}

static int run_status_command(const struct options *options)
{
    if (!options->server) {
        fprintf(stderr, "embag: models status: --server is missing\n");
        return 2;
    }
    const struct embag_options settings = {.access = options->access};
    struct embag_client *client = NULL;
    struct embag_model_list *list = NULL;
    struct embag_error error;
    if (embag_open(options->server, &settings, &client, &error) != EMBAG_OK ||
        embag_list_versions(client, options->model, &list, &error) != EMBAG_OK) {
        embag_close(client);
        return eb_output_error(&error);
    }
    if (options->json) {
        print_status_json(list);
    }
    for (size_t i = 0; !options->json && i < list->count; i++) {
        print_model(&list->models[i]);
    }
    embag_model_list_free(list);
    embag_close(client);
    return 0;
}

int eb_status_command_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_status_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
