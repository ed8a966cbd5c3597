#include "client/cli/load_clock.h"
#include "client/cli/load_report_keys.h"
#include "client/cli/load_sweep.h"
#include "client/cli/output.h"
#include "server/base/standard_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US 1000

/* Everything that a run needs; made before the run. */
struct session {
    struct eb_load_options *options;
    unsigned connection_count; /* connections that are open */
    struct eb_load_connection *connections;
    struct eb_load_target target;
    struct eb_load_pool pool;
    struct eb_load_verify verify;
};

static bool open_connections(struct session *session)
{
    const struct eb_load_options *options = session->options;
    unsigned count = options->thread_count;
    session->connections = calloc(count, sizeof *session->connections);
    if (!session->connections) {
        fprintf(stderr, "embag-load: out of memory: give fewer --threads\n");
        return false;
    }
    while (session->connection_count < count &&
           eb_load_connection_open(&session->connections[session->connection_count], options,
               session->connection_count, count)) {
        session->connection_count++;
    }
    return session->connection_count == count;
}

/* Waits until each client is connected to all servers. If that takes too long, says so, and the
 * load starts without the others. */
static void await_servers(struct session *session)
{
    uint64_t deadline_ns = eb_load_clock_read_ns() + EB_LOAD_CONNECT_TIMEOUT_US * NS_PER_US;
    struct embag_error error;
    bool is_ready = true;
    for (unsigned i = 0; i < session->connection_count && is_ready; i++) {
        is_ready = eb_load_connection_await_servers(&session->connections[i], deadline_ns, &error);
    }
    if (!is_ready) {
        fprintf(stderr, "embag-load: %s: the load starts with those that are connected\n",
            eb_output_printable(error.text).bytes);
    }
}

/* Asks a server for its tables. Returns false after printing an error to stderr. */
static bool find_load_target(struct session *session)
{
    struct embag_model_list *list;
    struct embag_error error;
    if (embag_list_models(session->connections[0].client, &list, &error) != EMBAG_OK) {
        fputs("embag-load: ", stderr);
        (void)eb_output_error(&error);
        return false;
    }
    bool is_found = eb_load_target_init(&session->target, session->options, list);
    embag_model_list_free(list);
    return is_found;
}

/* Finds out whether the server has streams, so that no report says "stream" for unary calls. */
static void check_mode(struct session *session)
{
    bool has_streams = true;
    for (unsigned i = 0; i < session->connection_count && !session->options->is_unary; i++) {
        has_streams = eb_load_connection_streams(&session->connections[i]) && has_streams;
    }
    if (!has_streams) {
        fprintf(stderr, "embag-load: the server has no LookupStream: using unary calls\n");
        session->options->is_unary = true;
    }
}

/* Computes the expected answers. This takes seconds for millions of rows. */
static bool compute_answers(struct session *session)
{
    fprintf(stderr, "computing %llu expected answers\n",
        (unsigned long long)(session->pool.count * session->pool.kept_versions));
    return eb_load_verify_init(&session->verify, &session->pool);
}

static bool prepare_load(struct session *session)
{
    const struct eb_load_options *options = session->options;
    if (!open_connections(session)) {
        return false;
    }
    await_servers(session);
    if (!find_load_target(session) ||
        !eb_load_pool_init(&session->pool, options, &session->target) ||
        (options->is_verified && !compute_answers(session))) {
        return false;
    }
    for (unsigned i = 0; i < session->connection_count; i++) {
        eb_load_connection_supply(&session->connections[i], &session->pool,
            options->is_verified ? &session->verify : NULL);
    }
    check_mode(session);
    return true;
}

/* Closes the connections first: requests in flight read everything else. */
static void release_load(struct session *session)
{
    for (unsigned i = 0; i < session->connection_count; i++) {
        eb_load_connection_close(&session->connections[i]);
    }
    free(session->connections);
    eb_load_verify_deinit(&session->verify);
    eb_load_pool_deinit(&session->pool);
    eb_load_target_deinit(&session->target);
}

static int report_error(const struct eb_load_subject *subject, const struct eb_load_result *result)
{
    bool is_good = eb_load_stats_has_answers(&result->stats) && result->stats.wrong_count == 0;
    json_t *object = subject->options->is_json ? eb_load_report_json(subject, result) : NULL;
    if (object) {
        is_good = json_dumpf(object, stdout, JSON_REAL_PRECISION(9)) == 0 && is_good;
        printf("\n");
        json_decref(object);
    } else {
        eb_load_report_result(stdout, subject, result);
    }
    return is_good ? 0 : 1;
}

static int run_once(const struct eb_load_run *run, const struct eb_load_subject *subject)
{
    struct eb_load_result *result = calloc(1, sizeof *result);
    if (!result) {
        fprintf(stderr, "embag-load: out of memory for the figures\n");
        return 1;
    }
    eb_load_run(run, result);
    int status = report_error(subject, result);
    free(result);
    return status;
}

static int run_load_command(struct eb_load_options *options)
{
    struct session session = {.options = options};
    int status = 1;
    if (prepare_load(&session)) {
        struct eb_load_subject subject = {options, &session.target, &session.pool};
        struct eb_load_run load = {
            .options = options,
            .rate = options->rate,
            .seed = options->seed,
            .connections = session.connections,
        };
        eb_load_interrupt_init();
        if (!options->is_json) {
            eb_load_report_subject(stdout, &subject);
            fflush(stdout);
        }
        status = options->sweep.step_count > 0 ? eb_load_sweep_run(&load, &subject)
                                               : run_once(&load, &subject);
    }
    release_load(&session);
    return status;
}

/* Returns the exit status: 0; 1 if the server was not reached, no request was answered or an answer
 * was wrong; 2 for a usage error. */
static int read_load_command(int argument_count, char **arguments)
{
    struct eb_load_options options;
    switch (eb_load_options_read(&options, argument_count, arguments)) {
    case EB_ARGUMENTS_READ: return run_load_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}

/* Describes the keys of the JSON report. */
static int print_keys(void)
{
    json_t *keys = eb_load_report_keys_json();
    if (!keys) {
        fprintf(stderr, "embag-load: out of memory for the keys\n");
        return 1;
    }
    int rc = json_dumpf(keys, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(keys);
    return rc == 0 ? 0 : 1;
}

static int dispatch_load(int argument_count, char **arguments)
{
    static char name[] = "embag-load";
    if (argument_count > 1 && strcmp(arguments[1], "--version") == 0) {
        puts("embag-load " EMBAG_VERSION);
        return 0;
    }
    if (argument_count > 1 && strcmp(arguments[1], "--help-json") == 0) {
        return print_keys();
    }
    /* getopt_long begins its messages with this name, which would otherwise be a whole path. */
    arguments[0] = name;
    return read_load_command(argument_count, arguments);
}

int main(int argument_count, char **arguments)
{
    if (!eb_standard_files_open()) {
        perror("embag-load: /dev/null");
        return 1;
    }
    int status = dispatch_load(argument_count, arguments);
    /* A report that cannot be written is a failure, whatever was measured. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        perror("embag-load: standard output");
        return status != 0 ? status : 1;
    }
    return status;
}
