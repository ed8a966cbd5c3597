/* Collects stats: asks every loop, through its mailbox, for its counts. Adds the counters of the
 * executor and the models of the current snapshot. A busy loop answers when it next reads its mail.
 *
 * The collector reads snapshots, as a loop does. Therefore its owner's thread must keep reading its
 * mailbox until the manager is closed (eb_manager_stop), and must have ended before the manager is
 * destroyed. The process ends in this order: all loops have drained; eb_stats_collector_detach; the
 * loops end; main's loop runs out, and with it the manager's handles; the owner's thread ends;
 * eb_stats_collector_destroy; eb_manager_destroy.
 * Threads: the owner's, which serves the operators' port; functions marked "Main." only on the main
 * thread. Memory: on the heap. */
#pragma once

#include "proto/net/mailbox.h"
#include "server/stats/stats.h"

struct eb_loop;
struct eb_stats_collector; /* opaque */

/* The functions through which the collector queries the service, which is in a layer above:
 * eb_service_stats of rpc/service.h. */
struct eb_stats_provider {
    struct eb_mailbox *(*mailbox)(struct eb_loop *loop);
    /* Fills *out, which is zeroed, with the loop's counts. Called on the loop's thread. */
    void (*gather)(struct eb_loop *loop, struct eb_loop_stats *out);
    /* Fills in the methods of the stats. */
    void (*list_methods)(struct eb_stats *stats);
};

/* A request for stats. It belongs to the collector until on_taken. */
struct eb_stats_request {
    struct eb_list link;
    /* Whether the loops need only show that they respond. All stats except the phase and the times
     * stay empty then. */
    bool is_bare;
    /* Receives the stats, which the callee then owns. They are NULL if out of memory or if the
     * process ends. */
    void (*on_taken)(struct eb_stats_request *request, struct eb_stats *stats);
};

/* Returns a collector that knows neither loops nor models until it is attached; NULL if out of
 * memory. Keeps the provider. Main. */
struct eb_stats_collector *eb_stats_collector_create(const struct eb_stats_provider *provider);
/* Frees the collector, which must have no open request. Accepts NULL. Main. */
void eb_stats_collector_destroy(struct eb_stats_collector *collector);
/* Gives the collector the mailbox of its owner's thread. Called once, before the first request and
 * before all functions below that main calls. */
void eb_stats_collector_open(struct eb_stats_collector *collector, struct eb_mailbox *mailbox);

/* Requests stats, to be taken after this call. Each request gets stats of its own, in the order of
 * the requests. on_taken may be called at once, and may make another request. */
void eb_stats_collector_request(
    struct eb_stats_collector *collector, struct eb_stats_request *request);
enum eb_stats_phase eb_stats_collector_phase(const struct eb_stats_collector *collector);
/* Returns why the server is not ready although it serves; NULL if it is ready: on a router as in
 * the facts told last, on others as in the current snapshot. The text is borrowed until these
 * change.
 */
const char *eb_stats_collector_not_ready(const struct eb_stats_collector *collector);
/* Replaces the snapshot and returns the one before it. */
struct eb_snapshot *eb_stats_collector_swap(
    struct eb_stats_collector *collector, struct eb_snapshot *snapshot);

/* Sets the loops, executor and snapshot that are counted from now on. Called once. The loops and
 * their array must stay until detach. The first eb_stats_collector_swap, which may now be called,
 * returns `snapshot`. Main. */
void eb_stats_collector_attach(struct eb_stats_collector *collector, struct eb_loop *const *loops,
    size_t loop_count, struct eb_executor *executor, struct eb_snapshot *snapshot);
/* Sets the phase. Called at most once for each phase. Main. */
void eb_stats_collector_set_phase(struct eb_stats_collector *collector, enum eb_stats_phase phase);
/* Stores a copy of the facts. If out of memory, keeps the previous ones until the next call. Must
 * not be called after detach. Main. */
void eb_stats_collector_set_facts(
    struct eb_stats_collector *collector, const struct eb_process_facts *facts);
/* Takes over what a router knows, with its hold. If out of memory, keeps the previous facts. Must
 * not be called after detach. Main. */
void eb_stats_collector_set_route(
    struct eb_stats_collector *collector, struct eb_route_facts *facts);
/* Waits until no loop is gathering stats. From then on every request ends with NULL. Called once,
 * while the owner's thread and the loops still run, whether or not loops are attached. Main. */
void eb_stats_collector_detach(struct eb_stats_collector *collector);
