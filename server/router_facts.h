/* Makes the facts that a router tells the stats: its models' versions and their replicas, and which
 * part each server process has.
 * Thread: main's. Memory: facts are on the heap; the other struct is part of its owner. */
#pragma once

#include "server/stats/route_stats.h"

struct eb_model_flips;
struct eb_peer_watch;

/* The parts of the server processes that had one lately. Kept, so that the part of a server that
 * has been lost is known. */
struct eb_router_instances {
    size_t count;
    struct eb_route_instance items[EB_ROUTE_INSTANCES_MAX]; /* by instance */
};

/* Returns facts with models, servers and parts; the caller adds the others. Updates `known`.
 * Returns NULL if out of memory. */
struct eb_route_facts *eb_router_facts_make(const struct eb_model_flips *flips,
    struct eb_peer_watch *watch, struct eb_router_instances *known);
