/* One run of a load: warm-up, the measured time, and what is under way at its end.
 * Closed: a number of requests is under way at any time. Open: requests are due at random times,
 * whatever the server does; one that cannot be sent when it is due is sent later, and latency and
 * timeout count from when it was due all the same. One whose timeout has passed is not sent, nor is
 * one that the client withholds until then, for its answer would come too late (embag_async.h).
 * Thread: one. Memory: none of its own. */
#pragma once

#include "client/cli/load_connection.h"

struct eb_load_run {
    const struct eb_load_options *options;
    double rate; /* requests per second; 0: closed */
    uint64_t seed;
    struct eb_load_connection *connections; /* [options->thread_count] */
};

/* What a run measured. */
struct eb_load_result {
    double rate;    /* that was asked for; 0: closed */
    double seconds; /* that were measured */
    bool was_interrupted;
    uint64_t lost_count; /* of requests that have not ended, long after their timeout */
    struct eb_load_stats stats;
};

/* Runs until the time is over or a signal has come, and tells on stderr once a second how it goes.
 * *result may hold anything before. */
void eb_load_run(const struct eb_load_run *run, struct eb_load_result *result);

/* Answers per second within the measured time: all, and those within the deadline. */
double eb_load_run_answers_per_s(const struct eb_load_result *result);
double eb_load_run_good_per_s(const struct eb_load_result *result);

/* ---- signals ---- */

/* From now on Ctrl-C and SIGTERM end a run, not the program: what was measured is still reported. A
 * second one ends the program. */
void eb_load_interrupt_init(void);
/* Returns whether a signal has come since then. Any thread may ask. */
bool eb_load_interrupt_has_come(void);
