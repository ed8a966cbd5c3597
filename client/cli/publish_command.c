#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/cli/publish_plan.h"
#include "client/embag_admin.h"
#include "server/base/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_S_DEFAULT 600
#define TIMEOUT_S_MAX UINT64_C(604800) /* a week; keeps times far from overflow */
/* Pause between two rounds of questions. A version is found ready this much too late. */
#define ROUND_PAUSE_MS 200
/* Most time for one connection, for one list of versions, and for a command to serve a version that
 * is in memory: a server that does not respond delays the others no longer. */
#define CONNECT_MS_MAX 5000
#define LIST_MS_MAX 2000
#define SERVE_MS_MAX 10000
/* A command to load only starts the load, and the server completes it. The list of versions then
 * tells when it is done. */
#define LOAD_MS_MAX 200
/* Without a terminal, a line tells this often that publish still waits. */
#define LINE_PAUSE_MS 60000
#define US_PER_MS 1000
#define NS_PER_MS 1000000

static const char usage[] =
    "Usage: embag publish --servers ADDRESS[,ADDRESS]... --model NAME --version N [--timeout S]\n"
    "Serves version N of a model on several servers. First waits until every server has the\n"
    "version in memory, and makes the servers load it where necessary. Then serves it on one\n"
    "server after the other, as embag models serve does. If a server fails, those that serve the\n"
    "version already go back to the one that they served before.\n"
    "This is not atomic: while the servers are switched, callers get answers from both versions,\n"
    "and a server that fails at that time may keep the new one. The last lines of the output say\n"
    "which servers could not be switched back.\n"
    "\n"
    "  --servers LIST         the servers' admin_listen, unix:PATH; or, if admin_on_data_port is\n"
    "                         true, addresses of listen; at most 256, with commas between them.\n"
    "                         Each address must belong to one server\n"
    "  --model NAME           the model\n"
    "  --version N            the version, whose files each server has or will have soon\n"
    "  --timeout S            seconds until the version must be served everywhere, 1 to 604800\n"
    "                         (default: 600); undoing: up to 12 s for each server\n" EB_ACCESS_USAGE
    "The options apply to all servers. A version that this command has made a server load stays\n"
    "in memory until embag models unload frees it. SIGINT, SIGTERM and SIGHUP end the command;\n"
    "what it has switched is undone.\n"
    "Exit status: 0 if all servers serve the version; 1 otherwise; 2 for a usage error.\n";

struct publish_options {
    const char *servers;
    const char *model;
    uint64_t version;
    uint64_t timeout_s; /* 0: not given */
    struct embag_access access;
};

#define AT(field) offsetof(struct publish_options, field)
static const struct eb_flag publish_flags[] = {
    {"servers", EB_FLAG_TEXT, AT(servers), 0, 0, NULL},
    {"model", EB_FLAG_TEXT, AT(model), 0, 0, NULL},
    {"version", EB_FLAG_NUMBER, AT(version), 1, UINT64_MAX, NULL},
    {"timeout", EB_FLAG_NUMBER, AT(timeout_s), 1, TIMEOUT_S_MAX, NULL},
    EB_ACCESS_FLAGS(struct publish_options),
};
#undef AT

static const struct eb_command publish_command = {
    "publish", {usage}, publish_flags, sizeof publish_flags / sizeof publish_flags[0]};

/* A publish in progress. */
struct publish {
    const struct publish_options *options;
    struct eb_publish_list list;
    uint64_t timeout_s;
    uint64_t started_ms;
    uint64_t deadline_ms;
    uint64_t next_line_ms; /* when the next line tells that publish still waits */
    sigset_t signals;      /* the signals that end it, which are blocked */
    bool is_interrupted;
    bool is_terminal;
    bool is_status_shown; /* the terminal's last line is the status */
};

/* ---- messages ---- */

/* Removes the status from the terminal, so that a message can take its place. */
static void clear_status(struct publish *publish)
{
    if (publish->is_status_shown) {
        fputs("\r\033[K", stderr);
        publish->is_status_shown = false;
    }
}

/* Prints a line about a server, or about the whole publish if `server` is NULL. */
__attribute__((format(printf, 3, 4))) static void say_publish(
    struct publish *publish, const struct eb_publish_server *server, const char *format, ...)
{
    char text[2 * EB_PUBLISH_REASON_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    clear_status(publish);
    fputs("embag: publish: ", stderr);
    if (server) {
        fprintf(stderr, "%s: ", eb_output_printable(server->address).bytes);
    }
    fprintf(stderr, "%s\n", eb_output_printable(text).bytes);
}

/* Prints why a call to a server has failed. Always returns false. */
static bool say_error(struct publish *publish, const struct eb_publish_server *server,
    const struct embag_error *error)
{
    say_publish(publish, server, "%s: %s", embag_status_name(error->status), error->text);
    return false;
}

/* Prints the new state of a server. */
static void say_state(struct publish *publish, const struct eb_publish_server *server)
{
    uint64_t version = publish->options->version;
    switch (server->state) {
    case EB_PUBLISH_UNKNOWN:
    case EB_PUBLISH_FAILED: return;
    case EB_PUBLISH_SILENT: say_publish(publish, server, "does not answer"); return;
    case EB_PUBLISH_ABSENT:
        say_publish(publish, server, "version %" PRIu64 " is not in memory", version);
        return;
    case EB_PUBLISH_LOADING:
        say_publish(publish, server, "version %" PRIu64 " is being loaded", version);
        return;
    case EB_PUBLISH_READY:
        say_publish(publish, server, "version %" PRIu64 " is %s", version,
            server->may_serve || server->served_before == version ? "served already" : "in memory");
        return;
    }
}

static size_t count_ready(const struct publish *publish)
{
    size_t ready = 0;
    for (size_t i = 0; i < publish->list.count; i++) {
        ready += publish->list.servers[i].state == EB_PUBLISH_READY;
    }
    return ready;
}

/* Tells that publish still waits: on a terminal in its last line, otherwise in a line now and
 * then. */
static void say_progress(struct publish *publish)
{
    uint64_t now_ms = eb_clock_steady_ms();
    if (!publish->is_terminal && now_ms < publish->next_line_ms) {
        return;
    }
    publish->next_line_ms = now_ms + LINE_PAUSE_MS;
    clear_status(publish);
    fprintf(stderr,
        "embag: publish: %zu of %zu servers have version %" PRIu64 " in memory, %" PRIu64
        " of %" PRIu64 " s%s",
        count_ready(publish), publish->list.count, publish->options->version,
        (now_ms - publish->started_ms) / 1000, publish->timeout_s,
        publish->is_terminal ? "" : "\n");
    publish->is_status_shown = publish->is_terminal;
}

/* ---- signals and the deadline ---- */

/* Blocks the signals that end the command, except those that are ignored already. Threads that are
 * started later inherit that. They stay blocked, because the process ends after the command. */
static void block_signals(sigset_t *signals)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action;
        int rc = sigaction(numbers[i], NULL, &action);
        assert(rc == 0);
        if (action.sa_handler != SIG_IGN) {
            sigaddset(signals, numbers[i]);
        }
    }
    int rc = sigprocmask(SIG_BLOCK, signals, NULL);
    assert(rc == 0);
}

/* Waits that long for a signal. Returns false, after a message, if one came now or earlier. */
static bool pause_publish(struct publish *publish, uint64_t pause_ms)
{
    struct timespec pause = {.tv_nsec = (long)pause_ms * NS_PER_MS};
    if (!publish->is_interrupted && sigtimedwait(&publish->signals, NULL, &pause) > 0) {
        publish->is_interrupted = true;
        say_publish(publish, NULL, "interrupted");
    }
    return !publish->is_interrupted;
}

/* Returns the time that is left, at most max_ms; 0 if none is. */
static uint64_t find_left_ms(const struct publish *publish, uint64_t max_ms)
{
    uint64_t now_ms = eb_clock_steady_ms();
    uint64_t left_ms = now_ms < publish->deadline_ms ? publish->deadline_ms - now_ms : 0;
    return left_ms < max_ms ? left_ms : max_ms;
}

/* Returns whether the publish may go on. If not, says why. */
static bool may_go_on(struct publish *publish)
{
    if (!pause_publish(publish, 0)) {
        return false;
    }
    if (find_left_ms(publish, 1) > 0) {
        return true;
    }
    for (size_t i = 0; i < publish->list.count; i++) {
        const struct eb_publish_server *server = &publish->list.servers[i];
        if (server->state != EB_PUBLISH_READY) {
            say_publish(publish, server, "does not have version %" PRIu64 " in memory%s%s",
                publish->options->version, server->reason[0] != '\0' ? ": " : "", server->reason);
        }
    }
    say_publish(publish, NULL, "the timeout of %" PRIu64 " s is over", publish->timeout_s);
    return false;
}

/* ---- waiting until all servers have the version ---- */

static bool open_servers(struct publish *publish)
{
    for (size_t i = 0; i < publish->list.count; i++) {
        struct eb_publish_server *server = &publish->list.servers[i];
        struct embag_error error;
        if (!may_go_on(publish)) {
            return false;
        }
        struct embag_options settings = {
            .connect_timeout_us = find_left_ms(publish, CONNECT_MS_MAX) * US_PER_MS,
            .timeout_us = find_left_ms(publish, LIST_MS_MAX) * US_PER_MS,
            .access = publish->options->access,
        };
        if (embag_open(server->address, &settings, &server->client, &error) != EMBAG_OK) {
            return say_error(publish, server, &error);
        }
    }
    return true;
}

/* Keeps what the server's answer says. Returns false, after a message, if the publish has
 * failed. */
static bool keep_answer(struct publish *publish, struct eb_publish_server *server,
    const struct embag_model_list *list, const struct embag_error *error)
{
    switch ((int)error->status) {
    case EMBAG_OK:
        eb_publish_observe(
            server, list->count > 0 ? &list->models[0] : NULL, publish->options->version);
        break;
    case EMBAG_NOT_FOUND: eb_publish_observe(server, NULL, publish->options->version); break;
    case EMBAG_DEADLINE_EXCEEDED:
        server->state = EB_PUBLISH_SILENT;
        memcpy(server->reason, error->text, sizeof server->reason);
        break;
    default: return say_error(publish, server, error);
    }
    if (server->state == EB_PUBLISH_FAILED) {
        say_publish(publish, server,
            "version %" PRIu64 " cannot be loaded: %s (embag models load tries it again)",
            publish->options->version, server->reason);
        return false;
    }
    return true;
}

/* Asks one server what it has. */
static bool ask_server(struct publish *publish, struct eb_publish_server *server)
{
    struct embag_error error;
    struct embag_model_list *list = NULL;
    enum eb_publish_state before = server->state;
    (void)embag_list_versions(server->client, publish->options->model, &list, &error);
    bool is_good = keep_answer(publish, server, list, &error);
    embag_model_list_free(list);
    if (is_good && server->state != before) {
        say_state(publish, server);
    }
    return is_good;
}

static bool ask_servers(struct publish *publish)
{
    for (size_t i = 0; i < publish->list.count; i++) {
        if (!may_go_on(publish) || !ask_server(publish, &publish->list.servers[i])) {
            return false;
        }
    }
    return true;
}

static enum embag_status send_to_server(const struct publish *publish,
    const struct eb_publish_server *server, struct embag_version_command command,
    struct embag_error *outcome)
{
    command.model = publish->options->model;
    return embag_command_version(server->client, &command, outcome);
}

/* Starts to load the version. If the server does not have its files yet, tells that once. */
static bool load_on_server(struct publish *publish, struct eb_publish_server *server)
{
    struct embag_error error;
    enum embag_status status = send_to_server(publish, server,
        (struct embag_version_command){.verb = EMBAG_VERSION_LOAD,
            .version = publish->options->version,
            .timeout_us = LOAD_MS_MAX * US_PER_MS},
        &error);
    eb_publish_note_load(server, eb_clock_steady_ms(), status != EMBAG_DEADLINE_EXCEEDED);
    if (status == EMBAG_NOT_FOUND) {
        if (strcmp(server->reason, error.text) != 0) {
            say_publish(publish, server, "waiting: %s", error.text);
        }
        memcpy(server->reason, error.text, sizeof server->reason);
        return true;
    }
    return status == EMBAG_OK || status == EMBAG_DEADLINE_EXCEEDED ||
           say_error(publish, server, &error);
}

static bool load_on_servers(struct publish *publish)
{
    for (size_t i = 0; i < publish->list.count; i++) {
        struct eb_publish_server *server = &publish->list.servers[i];
        if (eb_publish_is_load_due(server, eb_clock_steady_ms()) &&
            !(may_go_on(publish) && load_on_server(publish, server))) {
            return false;
        }
    }
    return true;
}

/* Waits until all servers have the version at the same time. Nothing is loaded before every server
 * has said that it takes commands. */
static bool wait_for_servers(struct publish *publish)
{
    while (ask_servers(publish)) {
        if (count_ready(publish) == publish->list.count) {
            return true;
        }
        if (!load_on_servers(publish)) {
            return false;
        }
        say_progress(publish);
        if (!pause_publish(publish, ROUND_PAUSE_MS)) {
            return false;
        }
    }
    return false;
}

/* ---- switching and undoing ---- */

static bool serve_on_servers(struct publish *publish)
{
    for (size_t i = 0; i < publish->list.count; i++) {
        struct eb_publish_server *server = &publish->list.servers[i];
        struct embag_error error;
        if (!may_go_on(publish)) {
            return false;
        }
        enum embag_status status = send_to_server(publish, server,
            (struct embag_version_command){.verb = EMBAG_VERSION_SERVE,
                .version = publish->options->version,
                .timeout_us = (find_left_ms(publish, SERVE_MS_MAX) + 1) * US_PER_MS},
            &error);
        server->may_serve = server->may_serve || !eb_publish_is_refusal(status);
        if (status != EMBAG_OK) {
            return say_error(publish, server, &error);
        }
        say_publish(publish, server, "%s", error.text);
    }
    return true;
}

/* Serves again what the server served before. Returns false, after a message, if that fails. */
static bool undo_on_server(
    struct publish *publish, const struct eb_publish_server *server, uint64_t undo_version)
{
    struct embag_error error;
    enum embag_status status = send_to_server(publish, server,
        (struct embag_version_command){.verb = EMBAG_VERSION_SERVE,
            .version = undo_version,
            .timeout_us = SERVE_MS_MAX * US_PER_MS},
        &error);
    if (status != EMBAG_OK) {
        return say_error(publish, server, &error);
    }
    say_publish(publish, server, "%s again", error.text);
    return true;
}

/* Asks a server that may have loaded the version meanwhile whether it serves it. With `serve:
 * highest` in model.yaml, a load is enough for that. */
static void look_again(const struct publish *publish, struct eb_publish_server *server)
{
    struct embag_model_list *list = NULL;
    bool was_told_to_load = server->load_not_before_ms > 0;
    if (!server->may_serve && was_told_to_load &&
        embag_list_versions(server->client, publish->options->model, &list, NULL) == EMBAG_OK) {
        eb_publish_observe(
            server, list->count > 0 ? &list->models[0] : NULL, publish->options->version);
    }
    embag_model_list_free(list);
}

/* Undoes what was done on the servers, the last one first, and says what cannot be undone. */
static void undo_on_servers(struct publish *publish)
{
    size_t undone = 0;
    size_t left = 0;
    uint64_t version = publish->options->version;
    for (size_t i = publish->list.count; i-- > 0;) {
        struct eb_publish_server *server = &publish->list.servers[i];
        uint64_t undo_version;
        look_again(publish, server);
        enum eb_publish_undo undo = eb_publish_find_undo(server, version, &undo_version);
        if (undo == EB_PUBLISH_UNDO_NOTHING) {
            server->may_serve = false;
        } else if (undo == EB_PUBLISH_UNDO_SERVE && undo_on_server(publish, server, undo_version)) {
            server->may_serve = false;
            undone++;
        }
        left += server->may_serve;
    }
    for (size_t i = 0; i < publish->list.count && left > 0; i++) {
        const struct eb_publish_server *server = &publish->list.servers[i];
        if (server->may_serve && server->served_before == 0) {
            say_publish(publish, server,
                "not undone: it may serve version %" PRIu64 ", and served none before", version);
        } else if (server->may_serve) {
            say_publish(publish, server,
                "not undone: it may serve version %" PRIu64 ", and served version %" PRIu64
                " before",
                version, server->served_before);
        }
    }
    say_publish(publish, NULL,
        "version %" PRIu64 " is not published: %zu servers switched back, %zu not undone", version,
        undone, left);
}

/* ---- the command ---- */

static bool run_publish(struct publish *publish)
{
    if (open_servers(publish) && wait_for_servers(publish) && serve_on_servers(publish)) {
        clear_status(publish);
        printf("%s: version %" PRIu64 " is served by %zu servers\n",
            eb_output_printable(publish->options->model).bytes, publish->options->version,
            publish->list.count);
        return true;
    }
    undo_on_servers(publish);
    return false;
}

static int start_publish(const struct publish_options *options)
{
    struct publish publish = {.options = options,
        .timeout_s = options->timeout_s != 0 ? options->timeout_s : TIMEOUT_S_DEFAULT,
        .started_ms = eb_clock_steady_ms(),
        .is_terminal = isatty(STDERR_FILENO) == 1};
    struct eb_failure failure;
    if (!eb_publish_list_init(&publish.list, options->servers, &failure)) {
        fprintf(stderr, "embag: publish: --servers: %s\n", failure.text);
        return 2;
    }
    publish.deadline_ms = publish.started_ms + publish.timeout_s * 1000;
    publish.next_line_ms = publish.started_ms + LINE_PAUSE_MS;
    block_signals(&publish.signals);
    bool is_good = run_publish(&publish);
    for (size_t i = 0; i < publish.list.count; i++) {
        embag_close(publish.list.servers[i].client);
    }
    eb_publish_list_deinit(&publish.list);
    return is_good ? 0 : 1;
}

/* Returns the name of a required flag that is missing or empty, or NULL if there is none. */
static const char *find_missing_flag(const struct publish_options *options)
{
    if (!options->servers) {
        return "servers";
    }
    if (!options->model || options->model[0] == '\0') {
        return "model";
    }
    return options->version == 0 ? "version" : NULL;
}

static int check_publish(const struct publish_options *options)
{
    const char *missing = find_missing_flag(options);
    if (missing) {
        fprintf(stderr, "embag: publish: --%s is missing\n", missing);
        return 2;
    }
    return start_publish(options);
}

int eb_publish_command_main(int argument_count, char **arguments)
{
    struct publish_options options = {0};
    switch (eb_arguments_read(&publish_command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return check_publish(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
