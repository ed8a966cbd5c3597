/* One run of a load: warm-up, measured time, and the wait for the requests that are then still in
 * flight. In a closed load a fixed number of requests is in flight at any time. In an open load
 * requests are due at random times, whatever the server does. A request that cannot be sent when it
 * is due is sent later, but its latency and timeout count from when it was due. If its timeout has
 * passed, the request is not sent. The client may also withhold a request until its timeout,
 * because the answer would come too late (embag_async.h).
 * Thread: one. Memory: none of its own. */
#pragma once

#include "client/cli/load_connection.h"

struct eb_load_run {
    const struct eb_load_options *options;
    double rate; /* requests per second; 0: closed */
    uint64_t seed;
    struct eb_load_connection *connections; /* [options->thread_count] */
};

/* The result of a run. */
struct eb_load_result {
    double rate;    /* the rate that was requested; 0: closed */
    double seconds; /* the measured time */
    bool was_interrupted;
    uint64_t lost_count; /* requests that have not ended, long after their timeout */
    struct eb_load_stats stats;
    struct eb_load_servers servers; /* what was sent within the measured time */
};

/* Runs until the time is over or a signal has come, and prints progress to stderr once a second.
 * *result need not be initialised. */
void eb_load_run(const struct eb_load_run *run, struct eb_load_result *result);

/* Return the answers per second within the measured time: all of them, and those within the
 * deadline. */
double eb_load_run_answers_per_s(const struct eb_load_result *result);
double eb_load_run_good_per_s(const struct eb_load_result *result);

/* ---- signals ---- */

/* Makes Ctrl-C and SIGTERM end a run instead of the program, so that what was measured is still
 * reported. A second signal ends the program. */
void eb_load_interrupt_init(void);
/* Returns whether a signal has come since eb_load_interrupt_init. Any thread may call it. */
bool eb_load_interrupt_has_come(void);
