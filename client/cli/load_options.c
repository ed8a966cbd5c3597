#include "client/cli/load_options.h"

#include "client/cli/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BAGS_MAX 1000000
#define INDICES_MAX 1000000
#define RATE_MAX 1e8
#define SECONDS_MAX 86400
#define TIMEOUT_US_MAX UINT64_C(60000000)
#define TIMEOUT_US_DEFAULT 1000000
#define POOL_MAX 1000000
#define IN_FLIGHT_DEFAULT 32
/* Default limit for the requests in flight of an open load. Further requests that are due wait;
 * their latency includes the wait. */
#define OPEN_IN_FLIGHT_DEFAULT 8192
#define SVG_DEFAULT "embag-load.svg"

static const char request_usage[] =
    "Usage: embag-load --server ADDRESS --workload NAME [OPTION]...\n"
    "       embag-load --server ADDRESS --tables A,B --bags N --indices-per-bag L [OPTION]...\n"
    "       embag-load --server ADDRESS --group NAME --bags N --indices-per-bag L [OPTION]...\n"
    "       embag-load --help | --help-json | --version\n"
    "Sends lookups to one or more embag servers and measures the answers.\n"
    "\n"
    "Requests\n" EB_SERVERS_USAGE
    "  --model NAME           model (default: the workload's, or the server's only one)\n"
    "  --workload NAME        dlrm-v2, rm1, rm2, rm3, tbe, rows, wide-26, wide-200 or wide-856;\n"
    "                         every request looks up all of its tables\n"
    "  --samples N            bags for each of the workload's tables (default 1)\n"
    "  --tables A,B,...       instead of --workload: tables or features that every request looks\n"
    "                         up\n"
    "  --group NAME           instead of --workload: a group of the model, requested by its name\n"
    "  --bags N               with --tables or --group: bags for each table (default 1)\n"
    "  --indices-per-bag L    with --tables or --group: indices in each bag (default 1)\n"
    "  --keys-file FILE       TABLE.keys.npy or TABLE.embag of a keyed table, to draw ids from\n"
    "  --groups               send each request's tables as the features of one FeatureGroup,\n"
    "                         which has one result, instead of one query for each table\n"
    "  --priority P           interactive (default), or batch, which gives way to interactive\n"
    "  --distribution D       distribution of the rows: uniform (default), zipf:A or meta2021\n"
    "  --output-type T        f32, f16 or bf16 (default: each table's own)\n"
    "  --requests N           number of different requests, made before the run and sent in turn\n"
    "  --seed N               seed of rows and send times (default 1)\n";

static const char load_usage[] =
    "Load\n"
    "  --mode MODE            stream (default): one LookupStream on each connection;\n"
    "                         unary: one Lookup call for each request\n"
    "  --connections N        number of connections to each server (default 1)\n"
    "  --threads N            threads that send and receive, each for its share of the\n"
    "                         connections (default 1, but at least one per 64 connections)\n"
    "  --in-flight N          closed load: requests in flight, on all connections together\n"
    "                         (default 32). With --rate or --sweep: limit (default 8192)\n"
    "  --rate R               open load: R requests per second at random times (Poisson).\n"
    "                         Latency counts from when a request was due\n"
    "  --sweep FROM:TO:STEPS  open loads at rates from FROM to TO; stops when the server is\n"
    "                         saturated, prints a table and draws a curve\n"
    "  --svg FILE             file for the curve, NAME.svg (default " SVG_DEFAULT ")\n"
    "  --duration S           seconds to measure, for a sweep in each step (default 10)\n"
    "  --warmup S             seconds of load before that, which do not count (default 1)\n"
    "  --unpaced              send every request at once, as clients without pacing do; by\n"
    "                         default, requests that would be answered too late are withheld\n"
    "                         and count as unsent\n"
    "  --timeout-us N         time after which a request has failed (default: --deadline-us, or\n"
    "                         1000000)\n"
    "  --retries N            times that a request may be sent again after a failure, to another\n"
    "                         server if there is one (default 0)\n"
    "  --hedge PERCENT        requests per hundred that may be sent to a second server as well,\n"
    "                         because the first one is late (default 0)\n"
    "  --deadline-us N        an answer within N counts towards goodput (default: every answer)\n"
    "  --tls, --tls-ca, --tls-cert, --tls-key, --tls-server-name, --token-file\n"
    "                         as for embag lookup\n";

static const char report_usage[] =
    "Report\n"
    "  --verify               compare every answer with the published values (embag make-model);\n"
    "                         the expected answers of all different requests may take 256 MiB\n"
    "  --verify-ahead N       also compute the expected answers of the next N versions before the\n"
    "                         run; otherwise they are computed while answers wait, which counts\n"
    "                         as the server's time\n"
    "  --json                 print one JSON object instead of text; --help-json describes its\n"
    "                         keys, as JSON, and so does LOAD.md\n"
    "Percentiles and the maximum cover all requests that were due: one without an answer counts\n"
    "with at least its timeout, or the deadline if that is longer. The mean covers answers only.\n"
    "Progress goes to stderr. Ctrl-C ends the run and reports what was measured.\n"
    "Exit status: 0; 1 if all requests failed, an answer was wrong, the curve could not be "
    "written\n"
    "or the server could not be reached; 2 for a usage error.\n";

enum { MODE_STREAM = 1, MODE_UNARY = 2 };
static const char *const modes[] = {"", "stream", "unary", NULL};
enum { PRIORITY_INTERACTIVE = 1, PRIORITY_BATCH = 2 };
static const char *const priorities[] = {"", "interactive", "batch", NULL};
static const char *const output_types[] = {"", "f32", "f16", "bf16", NULL};
static const enum embag_type output_type_numbers[] = {
    EMBAG_TYPE_UNSPECIFIED, EMBAG_F32, EMBAG_F16, EMBAG_BF16};

/* The command line as given, before it is checked as a whole. */
struct given {
    const char *server, *model, *workload, *tables, *group, *distribution, *keys_file;
    const char *rate, *sweep, *svg, *duration, *warmup;
    uint64_t samples, bags, indices_per_bag, requests, in_flight, connections, threads;
    uint64_t verify_ahead;
    uint64_t timeout_us, deadline_us, retries, hedge;
    struct eb_flag_integer seed;
    int mode, output_type, priority;
    bool is_grouped, is_unpaced, is_verified, is_json;
    struct embag_access access;
};

#define AT(field) offsetof(struct given, field)
static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, AT(server), 0, 0, NULL},
    {"model", EB_FLAG_TEXT, AT(model), 0, 0, NULL},
    {"workload", EB_FLAG_TEXT, AT(workload), 0, 0, NULL},
    {"samples", EB_FLAG_NUMBER, AT(samples), 1, BAGS_MAX, NULL},
    {"tables", EB_FLAG_TEXT, AT(tables), 0, 0, NULL},
    {"group", EB_FLAG_TEXT, AT(group), 0, 0, NULL},
    {"bags", EB_FLAG_NUMBER, AT(bags), 1, BAGS_MAX, NULL},
    {"indices-per-bag", EB_FLAG_NUMBER, AT(indices_per_bag), 1, INDICES_MAX, NULL},
    {"distribution", EB_FLAG_TEXT, AT(distribution), 0, 0, NULL},
    {"keys-file", EB_FLAG_TEXT, AT(keys_file), 0, 0, NULL},
    {"groups", EB_FLAG_SWITCH, AT(is_grouped), 0, 0, NULL},
    {"priority", EB_FLAG_CHOICE, AT(priority), 0, 0, priorities},
    {"unpaced", EB_FLAG_SWITCH, AT(is_unpaced), 0, 0, NULL},
    {"output-type", EB_FLAG_CHOICE, AT(output_type), 0, 0, output_types},
    {"requests", EB_FLAG_NUMBER, AT(requests), 1, POOL_MAX, NULL},
    {"seed", EB_FLAG_INTEGER, AT(seed), 0, 0, NULL},
    {"mode", EB_FLAG_CHOICE, AT(mode), 0, 0, modes},
    {"connections", EB_FLAG_NUMBER, AT(connections), 1, EB_LOAD_CONNECTIONS_MAX, NULL},
    {"threads", EB_FLAG_NUMBER, AT(threads), 1, EB_LOAD_THREADS_MAX, NULL},
    {"in-flight", EB_FLAG_NUMBER, AT(in_flight), 1, EB_LOAD_IN_FLIGHT_MAX, NULL},
    {"rate", EB_FLAG_TEXT, AT(rate), 0, 0, NULL},
    {"sweep", EB_FLAG_TEXT, AT(sweep), 0, 0, NULL},
    {"svg", EB_FLAG_TEXT, AT(svg), 0, 0, NULL},
    {"duration", EB_FLAG_TEXT, AT(duration), 0, 0, NULL},
    {"warmup", EB_FLAG_TEXT, AT(warmup), 0, 0, NULL},
    {"timeout-us", EB_FLAG_NUMBER, AT(timeout_us), 1, TIMEOUT_US_MAX, NULL},
    {"deadline-us", EB_FLAG_NUMBER, AT(deadline_us), 1, TIMEOUT_US_MAX, NULL},
    {"retries", EB_FLAG_NUMBER, AT(retries), 0, EB_LOAD_RETRIES_MAX, NULL},
    {"hedge", EB_FLAG_NUMBER, AT(hedge), 0, 100, NULL},
    {"verify", EB_FLAG_SWITCH, AT(is_verified), 0, 0, NULL},
    {"verify-ahead", EB_FLAG_NUMBER, AT(verify_ahead), 1, EB_LOAD_VERSIONS_AHEAD_MAX, NULL},
    {"json", EB_FLAG_SWITCH, AT(is_json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct given),
};
#undef AT

static const struct eb_command command = {
    "embag-load", {request_usage, load_usage, report_usage}, flags, sizeof flags / sizeof flags[0]};

/* Prints "--FLAG TEXT: WHY", or "--FLAG WHY" if `text` is NULL. Returns false. */
static bool refuse_option(const char *flag, const char *text, const char *why)
{
    fprintf(stderr, "embag-load: --%s %s%s%s\n", flag, text ? text : "", text ? ": " : "", why);
    return false;
}

/* Reads a decimal number at *text and moves *text past it. Returns NAN if there is none. */
static double read_decimal(const char **text)
{
    char *end = NULL;
    if ((**text < '0' || **text > '9') && **text != '.') {
        return NAN;
    }
    double value = strtod(*text, &end);
    if (end == *text) {
        return NAN;
    }
    *text = end;
    return value;
}

/* Returns whether a rate is valid. A NaN is not. */
static bool is_rate(double rate)
{
    return rate > 0 && rate <= RATE_MAX;
}

static bool read_seconds(const char *flag, const char *text, double least, double *out)
{
    const char *end = text;
    if (!text) {
        return true;
    }
    *out = read_decimal(&end);
    char why[64];
    snprintf(why, sizeof why, "not in %g..%d seconds, such as 10 or 0.5", least, SECONDS_MAX);
    return (*end == '\0' && *out >= least && *out <= SECONDS_MAX) || refuse_option(flag, text, why);
}

static bool read_rate(const char *text, struct eb_load_options *out)
{
    const char *end = text;
    if (!text) {
        return true;
    }
    out->is_open = true;
    out->rate = read_decimal(&end);
    return (*end == '\0' && is_rate(out->rate)) ||
           refuse_option("rate", text, "expected requests per second, above 0 and at most 1e8");
}

static bool read_sweep(const char *text, struct eb_load_sweep *out)
{
    const char *at = text;
    char *end = NULL;
    out->from = read_decimal(&at);
    if (!is_rate(out->from) || *at != ':') {
        return refuse_option("sweep", text, "expected FROM:TO:STEPS, such as 1000:50000:10");
    }
    at++;
    out->to = read_decimal(&at);
    if (!is_rate(out->to) || *at != ':' || at[1] < '0' || at[1] > '9') {
        return refuse_option("sweep", text, "expected FROM:TO:STEPS, such as 1000:50000:10");
    }
    unsigned long steps = strtoul(at + 1, &end, 10);
    if (*end != '\0' || steps < 2 || steps > EB_LOAD_STEPS_MAX) {
        return refuse_option("sweep", text, "expected 2 to 100 STEPS");
    }
    out->step_count = (unsigned)steps;
    return out->from < out->to || refuse_option("sweep", text, "FROM must be below TO");
}

/* Reads the numbers of requests in flight, connections and threads. The connections share the
 * requests, and the threads share the connections. */
static bool read_sharing(const struct given *given, struct eb_load_options *out)
{
    unsigned most = EB_LOAD_THREAD_CONNECTIONS_MAX;
    uint64_t fallback = out->is_open ? OPEN_IN_FLIGHT_DEFAULT : IN_FLIGHT_DEFAULT;
    out->in_flight = given->in_flight != 0 ? given->in_flight : fallback;
    out->connection_count = given->connections != 0 ? (unsigned)given->connections : 1;
    unsigned least = (out->connection_count + most - 1) / most;
    out->thread_count = given->threads != 0 ? (unsigned)given->threads : 1;
    out->thread_count = out->thread_count < least ? least : out->thread_count;
    if (out->in_flight < out->connection_count) {
        return refuse_option("connections", NULL,
            "must not exceed the number of requests in flight; give a larger --in-flight");
    }
    return out->connection_count >= out->thread_count ||
           refuse_option(
               "threads", NULL, "must not exceed --connections, as every thread needs one");
}

/* Checks that the file has the suffix of an SVG file. Devices, and the pipes of a shell's >(...),
 * are below /dev and need no suffix. */
static bool check_svg(const char *name)
{
    size_t length = strlen(name);
    return (length >= 4 && strcasecmp(name + length - 4, ".svg") == 0) ||
           strncmp(name, "/dev/", 5) == 0 ||
           refuse_option("svg", name, "the curve is written as SVG: give a name that ends in .svg");
}

static bool read_speed(const struct given *given, struct eb_load_options *out)
{
    out->duration_s = 10;
    out->warmup_s = 1;
    if (!read_seconds("duration", given->duration, 0.01, &out->duration_s) ||
        !read_seconds("warmup", given->warmup, 0, &out->warmup_s) || !read_rate(given->rate, out)) {
        return false;
    }
    if (given->sweep) {
        if (given->rate) {
            return refuse_option("sweep", given->sweep, "a sweep sets the rate: leave --rate out");
        }
        if (!read_sweep(given->sweep, &out->sweep) || !check_svg(out->svg)) {
            return false;
        }
        out->is_open = true;
    } else if (given->svg) {
        return refuse_option(
            "svg", given->svg, "only a sweep draws a curve: add --sweep FROM:TO:STEPS");
    }
    return read_sharing(given, out);
}

static bool read_workload(const struct given *given, struct eb_load_options *out)
{
    out->workload = eb_workload_find(given->workload);
    if (!out->workload) {
        fprintf(stderr, "embag-load: --workload %s: not one of %s\n", given->workload,
            eb_workload_names());
        return false;
    }
    if (given->bags != 0 || given->indices_per_bag != 0) {
        return refuse_option("workload", given->workload,
            "a workload has its own indices per bag, and --samples sets its bags; --bags and "
            "--indices-per-bag are for --tables and --group");
    }
    out->model = given->model ? given->model : out->workload->name;
    out->bag_count = given->samples != 0 ? (uint32_t)given->samples : 1;
    return true;
}

/* Reads the options that apply to tables given by name and to groups. */
static bool read_bags(const struct given *given, struct eb_load_options *out)
{
    if (given->samples != 0) {
        return refuse_option(
            "samples", NULL, "is for --workload; for --tables and --group use --bags");
    }
    out->model = given->model;
    out->bag_count = given->bags != 0 ? (uint32_t)given->bags : 1;
    out->indices_per_bag = given->indices_per_bag != 0 ? (uint32_t)given->indices_per_bag : 1;
    return true;
}

static bool read_option_group(const struct given *given, struct eb_load_options *out)
{
    if (given->is_verified) {
        return refuse_option(
            "verify", NULL, "is for tables with published values, not for groups; leave it out");
    }
    out->group = given->group;
    out->is_grouped = true;
    return read_bags(given, out);
}

static bool read_option_tables(const struct given *given, struct eb_load_options *out)
{
    unsigned count = 1;
    for (const char *c = given->tables; *c != '\0'; c++) {
        if (*c == ',' && (c == given->tables || c[1] == ',' || c[1] == '\0')) {
            return refuse_option("tables", given->tables, "a name is empty");
        }
        count += *c == ',';
    }
    if (*given->tables == '\0' || count > EB_LOAD_TABLES_MAX) {
        return refuse_option(
            "tables", given->tables, "expected 1 to 1024 names, such as user,item");
    }
    out->tables = given->tables;
    return read_bags(given, out);
}

static bool read_option_request(const struct given *given, struct eb_load_options *out)
{
    const char *distribution = given->distribution ? given->distribution : "uniform";
    if (!given->server) {
        return refuse_option(
            "server", NULL, "is missing: expected HOST:PORT, [V6]:PORT, unix:PATH or a list");
    }
    if (!!given->workload + !!given->tables + !!given->group != 1) {
        fputs(
            "embag-load: expected exactly one of --workload NAME, --tables A,B and --group NAME\n",
            stderr);
        return false;
    }
    if (!eb_sampler_parse(distribution, &out->distribution)) {
        return refuse_option(
            "distribution", distribution, "expected uniform, zipf:A (0 < A <= 4) or meta2021");
    }
    if (given->verify_ahead != 0 && !given->is_verified) {
        return refuse_option("verify-ahead", NULL, "needs --verify");
    }
    if (given->group) {
        return read_option_group(given, out);
    }
    return given->workload ? read_workload(given, out) : read_option_tables(given, out);
}

static void read_rest(const struct given *given, struct eb_load_options *out)
{
    uint64_t fallback = given->deadline_us != 0 ? given->deadline_us : TIMEOUT_US_DEFAULT;
    out->server = given->server;
    out->access = given->access;
    out->output_type = output_type_numbers[given->output_type];
    out->keys_file = given->keys_file;
    out->is_grouped = given->is_grouped;
    out->is_unpaced = given->is_unpaced;
    out->priority = given->priority == PRIORITY_BATCH ? EMBAG_BATCH : EMBAG_INTERACTIVE;
    out->is_unary = given->mode == MODE_UNARY;
    out->deadline_us = given->deadline_us;
    out->timeout_us = given->timeout_us != 0 ? given->timeout_us : fallback;
    out->retries = (uint32_t)given->retries;
    out->hedge_percent = (uint32_t)given->hedge;
    out->pool_count = given->requests;
    out->seed = given->seed.given ? (uint64_t)given->seed.value : 1;
    out->svg = given->svg ? given->svg : SVG_DEFAULT;
    out->is_verified = given->is_verified;
    out->versions_ahead = (uint32_t)given->verify_ahead;
    out->is_json = given->is_json;
}

enum eb_arguments_outcome eb_load_options_read(
    struct eb_load_options *out, int argument_count, char **arguments)
{
    struct given given = {0};
    enum eb_arguments_outcome outcome =
        eb_arguments_read(&command, argument_count, arguments, &given);
    *out = (struct eb_load_options){0};
    if (outcome != EB_ARGUMENTS_READ) {
        return outcome;
    }
    read_rest(&given, out);
    return read_option_request(&given, out) && read_speed(&given, out) ? EB_ARGUMENTS_READ
                                                                       : EB_ARGUMENTS_WRONG;
}

uint64_t eb_load_options_unanswered_us(const struct eb_load_options *options)
{
    return options->timeout_us > options->deadline_us ? options->timeout_us : options->deadline_us;
}
