/* The command line of embag-load: what to request, from which server, how fast and for how long.
 * Thread: main. Memory: texts are borrowed from the arguments; nothing is on the heap. */
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/sampler.h"
#include "client/cli/workload.h"

#define EB_LOAD_TABLES_MAX 1024
#define EB_LOAD_THREADS_MAX 64
#define EB_LOAD_CONNECTIONS_MAX 4096
#define EB_LOAD_THREAD_CONNECTIONS_MAX 64 /* most connections that one client can have */
#define EB_LOAD_IN_FLIGHT_MAX 65000
#define EB_LOAD_STEPS_MAX 100
#define EB_LOAD_VERSIONS_AHEAD_MAX 10000
#define EB_LOAD_RETRIES_MAX 100 /* as many as the client makes */
#define EB_LOAD_CONNECT_TIMEOUT_US UINT64_C(5000000)

/* Rates of an open load, from lowest to highest. If there are no steps, there is a single run and
 * no sweep. */
struct eb_load_sweep {
    double from;
    double to;
    unsigned step_count;
};

struct eb_load_options {
    const char *server; /* one address or several */
    struct embag_access access;
    const char *model;                  /* NULL: the server's only one */
    const struct eb_workload *workload; /* NULL: tables are given by name */
    const char *tables;       /* tables or features, as "a,b"; NULL: all of the workload or group */
    const char *group;        /* a group of the model; NULL: none */
    uint32_t bag_count;       /* bags of each table */
    uint32_t indices_per_bag; /* number of indices per bag, for tables given by name */
    struct eb_sampler_distribution distribution;
    enum embag_type output_type; /* unspecified: each table's own */
    const char *keys_file;       /* keys of the one keyed table; NULL: no table may be keyed */
    bool is_grouped; /* all tables in one group, as with `group`; if not, a query per table */
    enum embag_priority priority;
    bool is_unary;      /* unary calls; if not, streams */
    bool is_unpaced;    /* requests are sent even if their answers will be late */
    bool is_open;       /* requests are due at `rate`; if not, `in_flight` are always in flight */
    uint64_t in_flight; /* requests in flight, over all connections; if is_open, the maximum */
    double rate;        /* requests per second */
    unsigned connection_count;
    unsigned thread_count; /* each sends and receives on its share of the connections */
    double duration_s;     /* measured time */
    double warmup_s;       /* time before the measured time */
    uint64_t timeout_us;
    uint32_t retries;       /* times that a request may be sent again */
    uint32_t hedge_percent; /* requests per hundred that may be hedged; 0: none */
    uint64_t deadline_us;   /* an answer is good if it comes within this time; 0: always */
    uint64_t pool_count;    /* number of different requests; 0: as many as fit a budget */
    uint64_t seed;
    struct eb_load_sweep sweep;
    const char *svg; /* file for the curve of a sweep */
    bool is_verified;
    /* Number of versions after the served one whose answers are computed beforehand. */
    uint32_t versions_ahead;
    bool is_json;
};

/* Returns the least latency with which percentiles count a request without an answer: the timeout,
 * or the deadline if that is longer. */
uint64_t eb_load_options_unanswered_us(const struct eb_load_options *options);
/* Reads and checks the arguments; the first is the program. Errors are printed to stderr with a
 * hint; then *out must not be used. */
enum eb_arguments_outcome eb_load_options_read(
    struct eb_load_options *out, int argument_count, char **arguments);
