/* The command line of embag-load: what is asked, of whom, how fast and how long.
 * Thread: main. Memory: texts are borrowed from the arguments; nothing is on the heap. */
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/sampler.h"
#include "client/cli/workload.h"

#define EB_LOAD_TABLES_MAX 1024
#define EB_LOAD_THREADS_MAX 64
#define EB_LOAD_CONNECTIONS_MAX 4096
#define EB_LOAD_THREAD_CONNECTIONS_MAX 64 /* as many as a client can have */
#define EB_LOAD_IN_FLIGHT_MAX 65000
#define EB_LOAD_STEPS_MAX 100
#define EB_LOAD_VERSIONS_AHEAD_MAX 10000

/* Rates of an open load, from the lowest to the highest; no steps: one run, no sweep. */
struct eb_load_sweep {
    double from;
    double to;
    unsigned step_count;
};

struct eb_load_options {
    const char *server;
    struct embag_access access;
    const char *model;                  /* NULL: the server's only one */
    const struct eb_workload *workload; /* NULL: tables are given by name */
    const char *tables;                 /* "a,b", features too; NULL: the workload's, or group's */
    const char *group;                  /* of the model's; NULL: none */
    uint32_t bag_count;                 /* of each table */
    uint32_t indices_per_bag;           /* of tables given by name */
    struct eb_sampler_distribution distribution;
    enum embag_type output_type; /* unspecified: each table's own */
    const char *keys_file;       /* of the table that is keyed; NULL: none may be */
    bool is_grouped;             /* all tables in one group, as with `group`; else a query each */
    enum embag_priority priority;
    bool is_unary;      /* else on streams */
    bool is_unpaced;    /* requests are sent however late their answers will be */
    bool is_open;       /* requests are due at `rate`, else `in_flight` at any time */
    uint64_t in_flight; /* of all connections; open: the most that may be */
    double rate;        /* requests per second */
    unsigned connection_count;
    unsigned thread_count; /* that send and receive, each with its share of the connections */
    double duration_s;     /* that is measured */
    double warmup_s;       /* before it */
    uint64_t timeout_us;
    uint64_t deadline_us; /* within which an answer is good; 0: any */
    uint64_t pool_count;  /* different requests; 0: as many as fit a budget */
    uint64_t seed;
    struct eb_load_sweep sweep;
    const char *svg; /* where a sweep draws its curve */
    bool is_verified;
    uint32_t versions_ahead; /* behind the served one, that answers are expected of too */
    bool is_json;
};

/* The least that a request without an answer counts with in percentiles: the timeout, or the
 * deadline where it is longer. */
uint64_t eb_load_options_unanswered_us(const struct eb_load_options *options);
/* Reads and checks the arguments, of which the first is the program. What is wrong is said on
 * stderr, with what to do about it; then *out is not to be used. */
enum eb_arguments_outcome eb_load_options_read(
    struct eb_load_options *out, int argument_count, char **arguments);
