/* The service xds.service.orca.v3.OpenRcaService: sends load reports out of band, by which gRPC's
 * weighted round robin balances. The load is that of the whole process. It is no secret: clients
 * open these calls without the metadata of their lookups, so everybody may open them.
 *
 * Each loop publishes its counts with each tick, and before each report that it makes. A call's
 * loop adds those of all loops when a report is due, so reports come with ticks. Thread: the call's
 * loop. Memory: each stream is on the heap until its call is over. */
#pragma once

#include "server/rpc/conn_state.h"

/* Most open streams of one connection: a client needs one. At this limit a call gets
 * RESOURCE_EXHAUSTED. */
#define EB_ORCA_STREAMS_MAX 4
/* Shortest time between two reports, which bounds what streams cost. Shorter intervals are
 * lengthened to this one. */
#define EB_ORCA_INTERVAL_MS_MIN 1000
/* A report may come 1 / EB_ORCA_EARLY_PART of the interval early, since ticks come about once a
 * second. */
#define EB_ORCA_EARLY_PART 8

extern const struct eb_method_table eb_orca_service_methods;

/* Publishes the loop's counts. Called with each tick of the loop, and before each report. */
void eb_orca_service_publish(struct eb_service_loop *loop);
