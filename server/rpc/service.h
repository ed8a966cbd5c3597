/* The services behind all connections: which method a call is, what its messages start, in what
 * order what waits goes on. Thread: events on the loops' threads; the service
 * itself is read-only while serving. Memory: the states of loops, connections and calls are on the
 * heap, bounded by their limits. */
#pragma once

#include "server/rpc/conn_state.h"
#include "server/stats/stats_collector.h"

/* Fills in what loops need to serve: options->events and the loop hooks. The service is found
 * through options->service, which the caller sets. */
void eb_service_attach(struct eb_loop_options *options);

/* On the loop's thread: requests that come from now on are answered from `snapshot`, which the loop
 * borrows until it gets another. Returns the one it had. */
struct eb_snapshot *eb_service_swap(struct eb_loop *loop, struct eb_snapshot *snapshot);
/* On the loop's thread: makes health report NOT_SERVING from now on, also to those who watch it.
 * Calls are served as before. */
void eb_service_leave(struct eb_loop *loop);
/* On the loop's thread: fills *out, which is zeroed, with what the loop has counted. */
void eb_service_count(struct eb_loop *loop, struct eb_loop_stats *out);
/* What the stats collector asks of the service. */
extern const struct eb_stats_provider eb_service_stats;
