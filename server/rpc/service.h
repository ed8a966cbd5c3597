/* The services of all connections: finds the method of a call, starts the work that its messages
 * request, and decides the order in which waiting work continues.
 * Thread: events on the loops' threads; the service itself is read-only while serving. Memory: the
 * states of loops, connections and calls are on the heap, bounded by their limits. */
#pragma once

#include "server/rpc/conn_state.h"
#include "server/stats/stats_collector.h"

struct eb_route_table;

/* Fills in options->events and the loop hooks, which loops need to serve requests. They find the
 * service through options->service, which the caller sets. */
void eb_service_attach(struct eb_loop_options *options);

/* Replaces the snapshot that requests are answered from, starting with the next request. The loop
 * borrows `snapshot` until it gets another. Returns the former one. On the loop's thread. */
struct eb_snapshot *eb_service_swap(struct eb_loop *loop, struct eb_snapshot *snapshot);
/* Replaces the settings from the next request on, that is, the next call or the next request of a
 * stream. request_bytes_max must stay as it is. On the loop's thread. */
void eb_service_set(struct eb_loop *loop, const struct eb_service_settings *settings);
/* Takes the loop's way to part servers, which makes it a loop of a router, not ready yet. Called
 * before the loop is started. The link is closed with the loop; its owner destroys it afterwards.
 */
void eb_service_set_legs(struct eb_loop *loop, struct eb_leg_link *legs);
/* Replaces the route table of a loop that has such a link, which then owns the table. On the loop's
 * thread. */
void eb_service_set_routes(struct eb_loop *loop, struct eb_route_table *table);
/* Sets whether the health service reports a router itself as SERVING, also to open watches. A
 * router begins as not ready. On the loop's thread. */
void eb_service_set_ready(struct eb_loop *loop, bool is_ready);
/* Makes the health service report NOT_SERVING from now on, also to open watches. Calls are served
 * as before. On the loop's thread. */
void eb_service_leave(struct eb_loop *loop);
/* Fills *out, which is zeroed, with the loop's counts. On the loop's thread. */
void eb_service_count(struct eb_loop *loop, struct eb_loop_stats *out);
/* The functions through which the stats collector queries the service. */
extern const struct eb_stats_provider eb_service_stats;
