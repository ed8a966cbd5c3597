#include "client/cli/models_command.h"

#include "client/cli/access_flags.h"
#include "client/cli/arguments.h"
#include "client/cli/feature_output.h"
#include "client/cli/output.h"
#include "client/cli/status_command.h"
#include "client/cli/version_command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: embag models [list] --server ADDRESS [--features] [--json]\n"
    "       embag models status|load|unload|serve --help\n"
    "Lists the models of a server, their versions and their tables. The other commands say more "
    "of\n"
    "versions, and load, unload and serve them.\n"
    "\n"
    "  --server ADDRESS       HOST:PORT, [V6]:PORT or unix:PATH\n"
    "  --features             features and groups of the versions that answer, instead of "
    "tables\n"
    "  --json                 one JSON object, of all\n" EB_ACCESS_USAGE
    "Exit status: 0, 1 where the server or the network says no, 2 for a usage error.\n";

struct options {
    const char *server;
    bool features;
    bool json;
    struct embag_access access;
};

static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct options, server), 0, 0, NULL},
    {"features", EB_FLAG_SWITCH, offsetof(struct options, features), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct options),
};

static const struct eb_command command = {"models", usage, flags, sizeof flags / sizeof flags[0]};

/* One table as a line of words, or a version without tables. */
#define COLUMN_COUNT 7
#define CELL_BYTES EB_OUTPUT_TEXT_BYTES

struct line {
    char cells[COLUMN_COUNT][CELL_BYTES]; /* model, version, state, table, type, shape, size */
};

static const char *const headings[COLUMN_COUNT] = {
    "MODEL", "VERSION", "STATE", "TABLE", "TYPE", "SHAPE", "SIZE"};

/* "serving (canary, stable)", as far as there is room. */
static void format_state(const struct embag_model_version *version, char out[CELL_BYTES])
{
    size_t used = (size_t)snprintf(out, CELL_BYTES, "%s", eb_output_state(version->state));
    for (size_t i = 0; i < version->label_count && used < CELL_BYTES; i++) {
        used += (size_t)snprintf(out + used, CELL_BYTES - used, "%s%s", i == 0 ? " (" : ", ",
            eb_output_printable(version->labels[i]).bytes);
    }
    if (version->label_count > 0 && used < CELL_BYTES) {
        snprintf(out + used, CELL_BYTES - used, ")");
    }
}

/* [rows, trailing dims...] */
static void format_shape(const struct embag_table *table, char out[CELL_BYTES])
{
    int used = snprintf(out, CELL_BYTES, "[%" PRIu64, table->rows);
    for (uint32_t i = 0; i < table->rank; i++) {
        used += snprintf(out + used, CELL_BYTES - (size_t)used, ", %" PRIu64, table->shape[i]);
    }
    snprintf(out + used, CELL_BYTES - (size_t)used, "]");
}

static void fill_line(struct line *line, const struct embag_model *model,
    const struct embag_model_version *version, const struct embag_table *table)
{
    memset(line, 0, sizeof *line);
    snprintf(line->cells[0], CELL_BYTES, "%s", eb_output_printable(model->name).bytes);
    snprintf(line->cells[1], CELL_BYTES, "%" PRIu64, version->version);
    format_state(version, line->cells[2]);
    if (!table) {
        snprintf(line->cells[3], CELL_BYTES, "%s", eb_output_printable(version->error).bytes);
        return;
    }
    snprintf(line->cells[3], CELL_BYTES, "%s", eb_output_printable(table->name).bytes);
    snprintf(line->cells[4], CELL_BYTES, "%s", eb_output_type(table->type));
    format_shape(table, line->cells[5]);
    snprintf(line->cells[6], CELL_BYTES, "%s", eb_output_size(table->resident_bytes).bytes);
}

/* Calls `visit` for every line of the list, in order. */
static void visit_lines(const struct embag_model_list *list,
    void (*visit)(const struct line *line, int *widths), int *widths)
{
    struct line line;
    for (size_t m = 0; m < list->count; m++) {
        const struct embag_model *model = &list->models[m];
        for (size_t v = 0; v < model->version_count; v++) {
            const struct embag_model_version *version = &model->versions[v];
            size_t count = version->table_count > 0 ? version->table_count : 1;
            for (size_t t = 0; t < count; t++) {
                fill_line(
                    &line, model, version, version->table_count > 0 ? &version->tables[t] : NULL);
                visit(&line, widths);
            }
        }
    }
}

static void widen_models(const struct line *line, int *widths)
{
    /* Where there is no table, its column holds a sentence that nothing needs to line up with. */
    int count = line->cells[4][0] != '\0' ? COLUMN_COUNT : 3;
    for (int i = 0; i < count; i++) {
        int width = (int)strlen(line->cells[i]);
        widths[i] = width > widths[i] ? width : widths[i];
    }
}

static void print_line(const struct line *line, int *widths)
{
    int count = line->cells[4][0] != '\0' ? COLUMN_COUNT : 4;
    for (int i = 0; i < count; i++) {
        printf("%s%-*s", i > 0 ? "  " : "", i + 1 < count ? widths[i] : 0, line->cells[i]);
    }
    putchar('\n');
}

static void print_models_text(const struct embag_model_list *list)
{
    int widths[COLUMN_COUNT] = {0};
    struct line heading;
    for (int i = 0; i < COLUMN_COUNT; i++) {
        snprintf(heading.cells[i], CELL_BYTES, "%s", headings[i]);
    }
    widen_models(&heading, widths);
    visit_lines(list, widen_models, widths);
    print_line(&heading, widths);
    visit_lines(list, print_line, widths);
}

static void print_table_json(const struct embag_table *table)
{
    printf("{\"name\": ");
    eb_output_json_text(stdout, table->name);
    printf(", \"rows\": %" PRIu64 ", \"shape\": ", table->rows);
    eb_output_shape(stdout, table->shape, table->rank);
    printf(", \"type\": \"%s\", \"storage\": ", eb_output_type(table->type));
    eb_output_json_text(stdout, table->storage);
    printf(", \"keyed\": %s, \"resident_bytes\": %" PRIu64 ", \"digest\": \"%016" PRIx64 "\"}",
        table->keyed ? "true" : "false", table->resident_bytes, table->digest);
}

static void print_models_version_json(const struct embag_model_version *version)
{
    printf("{\"version\": %" PRIu64 ", \"serving\": %s, \"error\": ", version->version,
        version->serving ? "true" : "false");
    eb_output_json_text(stdout, version->error);
    printf(", \"state\": \"%s\", \"labels\": [", eb_output_state(version->state));
    for (size_t i = 0; i < version->label_count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        eb_output_json_text(stdout, version->labels[i]);
    }
    printf("], \"bytes\": %" PRIu64, version->bytes);
    printf(", \"tables\": [");
    for (size_t t = 0; t < version->table_count; t++) {
        fputs(t > 0 ? ", " : "", stdout);
        print_table_json(&version->tables[t]);
    }
    putchar(']');
    eb_feature_output_json(version);
    putchar('}');
}

static void print_models_json(const struct embag_model_list *list)
{
    printf("{\"models\": [");
    for (size_t m = 0; m < list->count; m++) {
        const struct embag_model *model = &list->models[m];
        printf("%s{\"name\": ", m > 0 ? ", " : "");
        eb_output_json_text(stdout, model->name);
        printf(", \"served_version\": %" PRIu64 ", \"versions\": [", model->served_version);
        for (size_t v = 0; v < model->version_count; v++) {
            fputs(v > 0 ? ", " : "", stdout);
            print_models_version_json(&model->versions[v]);
        }
        printf("]}");
    }
    printf("]}\n");
}

static int run_models_command(const struct options *options)
{
    if (!options->server) {
        fprintf(stderr, "embag: models: --server is missing\n");
        return 2;
    }
    const struct embag_options settings = {.access = options->access};
    struct embag_client *client = NULL;
    struct embag_model_list *list = NULL;
    struct embag_error error;
    if (embag_open(options->server, &settings, &client, &error) != EMBAG_OK ||
        embag_list_models(client, &list, &error) != EMBAG_OK) {
        embag_close(client);
        return eb_output_error(&error);
    }
    if (options->json) {
        print_models_json(list);
    } else if (options->features) {
        eb_feature_output_text(list);
    } else {
        print_models_text(list);
    }
    embag_model_list_free(list);
    embag_close(client);
    return 0;
}

static int run_models_list(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_models_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

static const struct {
    const char *name;
    int (*main)(int argument_count, char **arguments);
} parts[] = {
    {"list", run_models_list},
    {"status", eb_status_command_main},
    {"load", eb_version_command_main},
    {"unload", eb_version_command_main},
    {"serve", eb_version_command_main},
};

int eb_models_command_main(int argument_count, char **arguments)
{
    if (argument_count < 2 || arguments[1][0] == '-') {
        return run_models_list(argument_count, arguments);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(arguments[1], parts[i].name) == 0) {
            return parts[i].main(argument_count - 1, arguments + 1);
        }
    }
    fprintf(stderr, "embag: models: \"%s\" is no command: list, status, load, unload or serve\n",
        arguments[1]);
    return 2;
}
