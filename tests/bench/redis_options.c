#include "tests/bench/redis_options.h"

#include "tests/bench/redis_link.h"

#include <stdio.h>
#include <stdlib.h>

#define SAMPLES_MAX 100000
#define REQUESTS_MAX 1000000
#define RATE_MAX 100000000
#define SECONDS_MAX 86400
#define IN_FLIGHT_DEFAULT 32
#define OPEN_IN_FLIGHT_DEFAULT 8192
#define TIMEOUT_US 1000000

static const char usage[] =
    "Usage: embag-peer-redis --server ADDRESS --fill [--scale N]\n"
    "       embag-peer-redis --server ADDRESS [OPTION]...\n"
    "Fills Redis servers with the rows of a workload, or requests rows from them: one MGET for\n"
    "each request and server, pipelined on one connection to each; this program pools the rows.\n"
    "\n"
    "  --server ADDRESS,...   HOST:PORT or unix:PATH; several are the nodes of a cluster, in the\n"
    "                         order of their slots, which must be divided evenly\n"
    "  --fill                 replace everything that the servers hold\n"
    "  --workload NAME        rows (default), dlrm-v2, or another one of at most 256 tables\n"
    "  --scale N              divide the number of rows by N (default 1)\n"
    "  --samples N            bags for each table in each request (default 1)\n"
    "  --requests N           number of different requests, made before the run and sent in turn\n"
    "  --distribution D       distribution of the rows: uniform (default), zipf:A or meta2021\n"
    "  --in-flight N          requests in flight (default 32); with --rate: limit (default 8192)\n"
    "  --rate R               open load: R requests per second at random times\n"
    "  --duration S           seconds to measure (default 10)\n"
    "  --warmup S             seconds of load before that, which do not count (default 1)\n"
    "  --seed N               seed of rows and send times (default 1)\n"
    "  --verify               compare every answer with the published values\n"
    "Prints one JSON object, with keys of embag-load --json.\n";

struct given {
    const char *server, *workload, *distribution, *duration, *warmup;
    uint64_t scale, samples, requests, in_flight, rate, seed;
    bool is_fill, is_verified;
};

#define AT(field) offsetof(struct given, field)
static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, AT(server), 0, 0, NULL},
    {"fill", EB_FLAG_SWITCH, AT(is_fill), 0, 0, NULL},
    {"workload", EB_FLAG_TEXT, AT(workload), 0, 0, NULL},
    {"scale", EB_FLAG_NUMBER, AT(scale), 1, UINT32_MAX, NULL},
    {"samples", EB_FLAG_NUMBER, AT(samples), 1, SAMPLES_MAX, NULL},
    {"requests", EB_FLAG_NUMBER, AT(requests), 1, REQUESTS_MAX, NULL},
    {"distribution", EB_FLAG_TEXT, AT(distribution), 0, 0, NULL},
    {"in-flight", EB_FLAG_NUMBER, AT(in_flight), 1, EB_LOAD_IN_FLIGHT_MAX, NULL},
    {"rate", EB_FLAG_NUMBER, AT(rate), 1, RATE_MAX, NULL},
    {"duration", EB_FLAG_TEXT, AT(duration), 0, 0, NULL},
    {"warmup", EB_FLAG_TEXT, AT(warmup), 0, 0, NULL},
    {"seed", EB_FLAG_NUMBER, AT(seed), 0, UINT32_MAX, NULL},
    {"verify", EB_FLAG_SWITCH, AT(is_verified), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {
    "embag-peer-redis", {usage}, flags, sizeof flags / sizeof flags[0]};

static bool refuse_redis_flag(const char *what)
{
    fprintf(stderr, "embag-peer-redis: %s\n", what);
    return false;
}

static bool read_seconds(const char *text, double *out)
{
    char *end = NULL;
    if (text) {
        *out = strtod(text, &end);
    }
    return !text || (end != text && *end == '\0' && *out >= 0 && *out <= SECONDS_MAX) ||
           refuse_redis_flag(
               "--duration, --warmup: expected seconds from 0 to 86400, such as 10 or 0.5");
}

static bool check_redis_options(const struct given *given, struct eb_redis_options *out)
{
    const char *distribution = given->distribution ? given->distribution : "uniform";
    if (!given->server) {
        return refuse_redis_flag(
            "--server is missing: expected HOST:PORT or unix:PATH, or several");
    }
    out->load.workload = eb_workload_find(given->workload ? given->workload : "rows");
    if (!out->load.workload || out->load.workload->table_count > EB_REDIS_TABLES_MAX) {
        return refuse_redis_flag("--workload: expected rows, dlrm-v2, rm1, rm2, rm3 or tbe");
    }
    if (!eb_sampler_parse(distribution, &out->load.distribution)) {
        return refuse_redis_flag(
            "--distribution: expected uniform, zipf:A (0 < A <= 4) or meta2021");
    }
    return read_seconds(given->duration, &out->load.duration_s) &&
           read_seconds(given->warmup, &out->load.warmup_s);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value != 0 ? value : fallback;
}

enum eb_arguments_outcome eb_redis_options_read(
    struct eb_redis_options *out, int argument_count, char **arguments)
{
    struct given given = {0};
    enum eb_arguments_outcome outcome =
        eb_arguments_read(&command, argument_count, arguments, &given);
    bool is_open = given.rate != 0;
    *out = (struct eb_redis_options){
        .load =
            {
                .server = given.server,
                .bag_count = (uint32_t)or_default(given.samples, 1),
                .is_open = is_open,
                .rate = (double)given.rate,
                .in_flight = or_default(
                    given.in_flight, is_open ? OPEN_IN_FLIGHT_DEFAULT : IN_FLIGHT_DEFAULT),
                .connection_count = 1,
                .thread_count = 1,
                .duration_s = 10,
                .warmup_s = 1,
                .timeout_us = TIMEOUT_US,
                .pool_count = given.requests,
                .seed = or_default(given.seed, 1),
                .is_verified = given.is_verified,
            },
        .is_fill = given.is_fill,
        .scale = or_default(given.scale, 1),
    };
    if (outcome != EB_ARGUMENTS_READ) {
        return outcome;
    }
    return check_redis_options(&given, out) ? EB_ARGUMENTS_READ : EB_ARGUMENTS_WRONG;
}
