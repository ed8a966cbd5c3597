/* Simulates a client and several servers, with the modules of proto/link between them. The clock
 * only moves from event to event, so a minute passes in a second or less.
 * Calls arrive at random times. A server has threads and a queue, and computes a call to its end
 * even if nobody waits for it any more.
 * Thread: one at a time. Memory: from the heap, freed by destroy. */
#pragma once

#include "proto/link/hedge.h"
#include "proto/link/replica_choice.h"
#include "proto/link/resend_budget.h"

#define EB_SIM_SERVERS_MAX 8

enum eb_sim_mode {
    EB_SIM_SERVES,
    EB_SIM_FAILS,   /* answers UNAVAILABLE within 50 us */
    EB_SIM_REFUSES, /* answers RESOURCE_EXHAUSTED within 50 us */
    EB_SIM_STOPS    /* answers nothing; what it gets is answered when it serves again */
};

struct eb_sim_server {
    /* May be changed while the simulation is between two runs. */
    enum eb_sim_mode mode;
    uint32_t slowness; /* service times are multiplied by this */

    struct eb_replica replica;
    uint64_t free_ns[4]; /* when each thread has done what it has */
    uint64_t attempts;   /* that were sent to it */
};

struct eb_sim_settings {
    uint32_t servers;
    uint32_t calls_per_second;
    uint64_t service_ns; /* mean time that a thread needs for a call */
    uint64_t timeout_ns;
    uint32_t hedge_percent;
    uint64_t seed;
};

struct eb_sim_counts {
    uint64_t calls;
    uint64_t attempts;
    uint64_t hedges;
    uint64_t resends;
    uint64_t failed; /* calls that failed for good */
    uint64_t slow;   /* calls that took longer than 20 times the mean service time */
};

struct eb_sim; /* opaque */

/* Every server is up, and serves. */
struct eb_sim *eb_sim_create(const struct eb_sim_settings *settings);
void eb_sim_destroy(struct eb_sim *sim);
struct eb_sim_server *eb_sim_server(struct eb_sim *sim, uint32_t number);
const struct eb_replica_group *eb_sim_group(const struct eb_sim *sim);
void eb_sim_join(struct eb_sim *sim, uint32_t number);
void eb_sim_leave(struct eb_sim *sim, uint32_t number);
/* Runs for this time, and returns what was counted in it. */
struct eb_sim_counts eb_sim_run(struct eb_sim *sim, uint64_t time_ns);
/* Returns the share of attempts, in thousandths, that a server got in the last run. */
uint32_t eb_sim_share(struct eb_sim *sim, uint32_t number);
