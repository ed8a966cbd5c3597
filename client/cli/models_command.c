#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/cli/progress_bar.h"
#include "client/embag_admin.h"
#include "kernels/bag.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- features and groups, for people and as members of a version's JSON object ---- */

#define X(name, number, text) [number] = (text),
static const char *const reductions[] = {"unspecified", EB_REDUCTION_LIST(X)};
static const char *const policies[] = {"unspecified", EB_MISSING_LIST(X)};
#undef X

static const char *name_reduction(enum embag_reduction reduction)
{
    return (unsigned)reduction < EB_REDUCTION_COUNT ? reductions[reduction] : "unknown";
}

static const char *name_missing(enum embag_missing missing)
{
    return (unsigned)missing < EB_MISSING_COUNT ? policies[missing] : "unknown";
}

static void print_name(const char *before, const char *name)
{
    printf("%s%s", before, eb_output_printable(name).bytes);
}

/* Returns whether the table called `name` has a default vector. */
static bool has_vector(const struct embag_model_version *version, const char *name)
{
    for (size_t i = 0; i < version->table_count; i++) {
        if (strcmp(version->tables[i].name, name) == 0) {
            return version->tables[i].default_vector_bytes > 0;
        }
    }
    return false;
}

static void print_feature(
    const struct embag_model_version *version, const struct embag_feature *feature)
{
    print_name("  feature ", feature->name);
    print_name(": table ", feature->table);
    printf(", reduction %s, missing %s", name_reduction(feature->reduction),
        name_missing(feature->missing));
    if (feature->has_default) {
        printf(", default_index %" PRId64, feature->default_index);
    } else if (has_vector(version, feature->table)) {
        printf(", default_vector");
    }
    print_name(", id_map ", feature->id_map);
    if (feature->seed != 0) {
        printf(" (seed %" PRIu64 ")", feature->seed);
    }
    if (feature->max_ids != 0) {
        printf(", max_ids %" PRIu64, feature->max_ids);
    }
    putchar('\n');
}

static void print_group(const struct embag_feature_list *group)
{
    print_name("  group ", group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        print_name(i == 0 ? ": " : ", ", group->features[i]);
    }
    putchar('\n');
}

static void print_feature_version(
    const struct embag_model *model, const struct embag_model_version *version)
{
    print_name("", model->name);
    printf(" version %" PRIu64 " (%s)\n", version->version, eb_output_state(version->state));
    for (size_t i = 0; i < version->feature_count; i++) {
        print_feature(version, &version->features[i]);
    }
    for (size_t i = 0; i < version->group_count; i++) {
        print_group(&version->groups[i]);
    }
    if (version->feature_count == 0) {
        printf("  no features: requests name its tables\n");
    }
}

static void print_features_text(const struct embag_model_list *list)
{
    for (size_t m = 0; m < list->count; m++) {
        const struct embag_model *model = &list->models[m];
        for (size_t v = 0; v < model->version_count; v++) {
            if (model->versions[v].table_count > 0) {
                print_feature_version(model, &model->versions[v]);
            }
        }
    }
}

static void print_text_json(const char *before, const char *text)
{
    fputs(before, stdout);
    eb_output_json_text(stdout, text);
}

static void print_feature_json(const struct embag_feature *feature)
{
    print_text_json("{\"name\": ", feature->name);
    print_text_json(", \"table\": ", feature->table);
    printf(", \"reduction\": \"%s\", \"missing\": \"%s\"", name_reduction(feature->reduction),
        name_missing(feature->missing));
    if (feature->has_default) {
        printf(", \"default_index\": %" PRId64, feature->default_index);
    }
    print_text_json(", \"id_map\": ", feature->id_map);
    printf(", \"seed\": %" PRIu64 ", \"max_ids\": %" PRIu64 "}", feature->seed, feature->max_ids);
}

static void print_features_json(const struct embag_model_version *version)
{
    printf(", \"features\": [");
    for (size_t i = 0; i < version->feature_count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_feature_json(&version->features[i]);
    }
    printf("], \"groups\": [");
    for (size_t i = 0; i < version->group_count; i++) {
        const struct embag_feature_list *group = &version->groups[i];
        print_text_json(i > 0 ? ", {\"name\": " : "{\"name\": ", group->name);
        for (size_t k = 0; k < group->feature_count; k++) {
            print_text_json(k > 0 ? ", " : ", \"features\": [", group->features[k]);
        }
        fputs(group->feature_count > 0 ? "]}" : ", \"features\": []}", stdout);
    }
    putchar(']');
}

/* ---- models list ---- */

static const char list_usage[] =
    "Usage: embag models [list] --server ADDRESS [--features] [--json]\n"
    "       embag models status|load|unload|serve --help\n"
    "Lists the models of a server, their versions and their tables. The other commands show\n"
    "details of versions, and load, unload and serve them.\n"
    "\n"
    "  --server ADDRESS       one server: HOST:PORT, [V6]:PORT or unix:PATH\n"
    "  --features             list features and groups instead of tables, for the versions that\n"
    "                         answer requests\n"
    "  --json                 print everything as one JSON object\n" EB_ACCESS_USAGE
    "Exit status: 0; 1 if the server or the network causes an error; 2 for a usage error.\n";

struct list_options {
    const char *server;
    bool features;
    bool json;
    struct embag_access access;
};

static const struct eb_flag list_flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct list_options, server), 0, 0, NULL},
    {"features", EB_FLAG_SWITCH, offsetof(struct list_options, features), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct list_options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct list_options),
};

static const struct eb_command list_command = {
    "models", {list_usage}, list_flags, sizeof list_flags / sizeof list_flags[0]};

/* One row of the printed table: a table, or a version without tables. */
#define COLUMN_COUNT 7
#define CELL_BYTES EB_OUTPUT_TEXT_BYTES

struct line {
    char cells[COLUMN_COUNT][CELL_BYTES]; /* model, version, state, table, type, shape, size */
};

static const char *const headings[COLUMN_COUNT] = {
    "MODEL", "VERSION", "STATE", "TABLE", "TYPE", "SHAPE", "SIZE"};

/* Writes "serving, 3/4 parts (canary, stable)", cut off if it is too long. */
static void format_state(const struct embag_model_version *version, char out[CELL_BYTES])
{
    size_t used = (size_t)snprintf(out, CELL_BYTES, "%s", eb_output_state(version->state));
    if (version->parts > 0) {
        used += (size_t)snprintf(out + used, CELL_BYTES - used, ", %zu/%" PRIu32 " parts",
            version->ready_part_count, version->parts);
    }
    for (size_t i = 0; i < version->label_count && used < CELL_BYTES; i++) {
        used += (size_t)snprintf(out + used, CELL_BYTES - used, "%s%s", i == 0 ? " (" : ", ",
            eb_output_printable(version->labels[i]).bytes);
    }
    if (version->label_count > 0 && used < CELL_BYTES) {
        snprintf(out + used, CELL_BYTES - used, ")");
    }
}

/* Writes a table's shape: "[rows, trailing dims...]". */
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
    /* If there is no table, its column holds a sentence, which need not line up with anything. */
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

/* Prints the default vector and, if unknown ids get it, says so. */
static void print_vector_json(const struct embag_table *table)
{
    size_t value_bytes = embag_type_bytes(table->type);
    size_t count = value_bytes > 0 ? table->default_vector_bytes / value_bytes : 0;
    if (count == 0) {
        return;
    }
    struct embag_result values = {.type = table->type, .values = table->default_vector};
    printf(", \"default_vector\": [");
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        eb_output_value(stdout, &values, i, true);
    }
    printf("], \"unknown_vector\": %s", table->unknown_vector ? "true" : "false");
}

static void print_table_json(const struct embag_table *table)
{
    printf("{\"name\": ");
    eb_output_json_text(stdout, table->name);
    printf(", \"rows\": %" PRIu64 ", \"shape\": ", table->rows);
    eb_output_shape(stdout, table->shape, table->rank);
    printf(", \"type\": \"%s\", \"storage\": ", eb_output_type(table->type));
    eb_output_json_text(stdout, table->storage);
    printf(", \"keyed\": %s, \"resident_bytes\": %" PRIu64 ", \"digest\": \"%016" PRIx64 "\"",
        table->keyed ? "true" : "false", table->resident_bytes, table->digest);
    print_vector_json(table);
    if (table->placement[0] != '\0') {
        print_text_json(", \"placement\": ", table->placement);
        fputs(", \"part\": ", stdout);
        if (table->part >= 0) {
            printf("%" PRId64, table->part);
        } else {
            fputs("null", stdout);
        }
    }
    putchar('}');
}

/* Prints nothing if the version is not in parts. */
static void print_parts_json(const struct embag_model_version *version)
{
    if (version->parts == 0) {
        return;
    }
    printf(", \"parts\": %" PRIu32 ", \"ready_parts\": [", version->parts);
    for (size_t i = 0; i < version->ready_part_count; i++) {
        printf("%s%" PRIu32, i > 0 ? ", " : "", version->ready_parts[i]);
    }
    putchar(']');
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
    print_parts_json(version);
    printf(", \"tables\": [");
    for (size_t t = 0; t < version->table_count; t++) {
        fputs(t > 0 ? ", " : "", stdout);
        print_table_json(&version->tables[t]);
    }
    putchar(']');
    print_features_json(version);
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

static int run_list_command(const struct list_options *options)
{
    if (!eb_arguments_check_server(&list_command, options->server)) {
        return 2;
    }
    struct embag_options settings = {.access = options->access};
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
        print_features_text(list);
    } else {
        print_models_text(list);
    }
    embag_model_list_free(list);
    embag_close(client);
    return 0;
}

static int run_models_list(int argument_count, char **arguments)
{
    struct list_options options = {0};
    switch (eb_arguments_read(&list_command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_list_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

/* ---- models status ---- */

static const char status_usage[] =
    "Usage: embag models status [--model NAME] --server ADDRESS [--json]\n"
    "Prints the state of each version, its memory, the digest of its tables, when it was loaded\n"
    "and how long that took, its labels, and why it could not be loaded.\n"
    "\n"
    "  --model NAME           print this model only\n"
    "  --server ADDRESS       the server's admin_listen, unix:PATH; or, if admin_on_data_port\n"
    "                         is true, an address of listen\n"
    "  --json                 print one JSON object\n" EB_ACCESS_USAGE
    "Exit status: 0; 1 if the server or the network causes an error; 2 for a usage error.\n";

struct status_options {
    const char *model;
    const char *server;
    bool json;
    struct embag_access access;
};

static const struct eb_flag status_flags[] = {
    {"model", EB_FLAG_TEXT, offsetof(struct status_options, model), 0, 0, NULL},
    {"server", EB_FLAG_TEXT, offsetof(struct status_options, server), 0, 0, NULL},
    {"json", EB_FLAG_SWITCH, offsetof(struct status_options, json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct status_options),
};

static const struct eb_command status_command = {
    "models status", {status_usage}, status_flags, sizeof status_flags / sizeof status_flags[0]};

/* Room for a time such as "2026-01-31T12:00:00Z". */
#define TIME_BYTES 32

static void format_time(uint64_t unix_ms, char out[TIME_BYTES])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    out[0] = '\0';
    if (gmtime_r(&seconds, &parts)) {
        (void)strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
}

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
        printf("  served by command");
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
        printf("  error: %s\n", eb_output_printable(model->config_error).bytes);
    }
    for (size_t i = 0; i < model->version_count; i++) {
        print_status_version(model, &model->versions[i]);
    }
}

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

static int run_status_command(const struct status_options *options)
{
    if (!eb_arguments_check_server(&status_command, options->server)) {
        return 2;
    }
    struct embag_options settings = {.access = options->access};
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

static int run_models_status(int argument_count, char **arguments)
{
    struct status_options options = {0};
    switch (eb_arguments_read(&status_command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_status_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

/* ---- models load, unload, serve ---- */

#define VERSION_USAGE_END                                                                          \
    "\n"                                                                                           \
    "  --server ADDRESS       the server's admin_listen, unix:PATH; or, if admin_on_data_port\n"   \
    "                         is true, an address of listen\n" EB_ACCESS_USAGE                     \
    "If this command is interrupted, the server completes it.\n"                                   \
    "Exit status: 0; 1 if the server or the network causes an error; 2 for a usage error.\n"

struct version_options {
    const char *model;
    const char *version;
    const char *server;
    struct embag_access access;
};

static const struct eb_flag version_flags[] = {
    {"MODEL", EB_FLAG_POSITIONAL, offsetof(struct version_options, model), 0, 0, NULL},
    {"VERSION", EB_FLAG_POSITIONAL, offsetof(struct version_options, version), 0, 0, NULL},
    {"server", EB_FLAG_TEXT, offsetof(struct version_options, server), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct version_options),
};

#define VERSION_FLAG_COUNT (sizeof version_flags / sizeof version_flags[0])

/* The commands about versions, in the order of enum embag_version_verb. */
static const struct eb_command version_commands[] = {
    {"models load",
        {"Usage: embag models load MODEL VERSION --server ADDRESS\n"
         "Loads a version and keeps it until it is unloaded. VERSION 0: scans the model's "
         "directory\n"
         "and loads the versions that model.yaml selects.\n" VERSION_USAGE_END},
        version_flags, VERSION_FLAG_COUNT},
    {"models unload",
        {"Usage: embag models unload MODEL VERSION --server ADDRESS\n"
         "Unloads a version that is not served and has no label, even if a command loaded "
         "it.\n" VERSION_USAGE_END},
        version_flags, VERSION_FLAG_COUNT},
    {"models serve",
        {"Usage: embag models serve MODEL VERSION --server ADDRESS\n"
         "Serves a version, whatever model.yaml says, and loads it first if necessary. VERSION 0:\n"
         "model.yaml decides again.\n" VERSION_USAGE_END},
        version_flags, VERSION_FLAG_COUNT},
};

static const char *const version_verbs[] = {"load", "unload", "serve"};

/* Shows the progress of the version being loaded. If the version changes, begins a new bar. */
static void on_version_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_progress_bar *bar = context;
    if (total_bytes != bar->total_bytes || done_bytes < bar->done_bytes) {
        eb_progress_bar_end(bar);
        eb_progress_bar_init(bar, bar->name, total_bytes);
    }
    eb_progress_bar_advance(bar, done_bytes - bar->done_bytes);
}

static int send_version_command(
    const struct version_options *options, struct embag_version_command *command)
{
    struct embag_options settings = {.access = options->access};
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

static int run_version_command(const struct version_options *options, enum embag_version_verb verb)
{
    char *end = NULL;
    errno = 0;
    struct embag_version_command command = {.verb = verb, .model = options->model};
    command.version = strtoull(options->version, &end, 10);
    if (!isdigit((unsigned char)options->version[0]) || *end != '\0' || errno != 0) {
        fprintf(stderr, "embag: %s: invalid VERSION \"%s\": expected a whole number\n",
            version_commands[verb].name, options->version);
        return 2;
    }
    if (!eb_arguments_check_server(&version_commands[verb], options->server)) {
        return 2;
    }
    return send_version_command(options, &command);
}

/* Runs `load`, `unload` or `serve`, which `arguments[0]` names. */
static int run_models_version(int argument_count, char **arguments)
{
    struct version_options options = {0};
    enum embag_version_verb verb = EMBAG_VERSION_LOAD;
    while (strcmp(arguments[0], version_verbs[verb]) != 0) {
        verb++;
    }
    switch (eb_arguments_read(&version_commands[verb], argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_version_command(&options, verb);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    int (*main)(int argument_count, char **arguments);
} parts[] = {
    {"list", run_models_list},
    {"status", run_models_status},
    {"load", run_models_version},
    {"unload", run_models_version},
    {"serve", run_models_version},
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
    fprintf(stderr,
        "embag: models: unknown command \"%s\": expected list, status, load, unload or serve\n",
        arguments[1]);
    return 2;
}
