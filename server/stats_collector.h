/* Takes stats: asks every loop by its mailbox for a copy of what it has counted, the executor
 * under its lock, and the models of the snapshot that it has, as a loop has one. Loops that are
 * asked while they are busy answer when they next look at their mail.
 *
 * It is a reader of snapshots more: its owner's thread must take its mail until the manager is
 * closed (eb_manager_stop), and must have ended before that is destroyed. So the process ends in
 * this order: all loops have drained; eb_stats_collector_detach; the loops end; main's loop runs
 * out, the manager's handles with it; the thread ends; eb_stats_collector_destroy;
 * eb_manager_destroy. Thread: its owner's loop, which is the web's; attach, say and detach on main.
 * Memory: on the heap. */
#pragma once

#include "proto/net/mailbox.h"
#include "server/models/snapshot.h"
#include "server/stats/stats.h"

struct eb_stats_collector;
struct eb_executor;
struct eb_loop;

/* NULL: no memory. Until it is attached stats has neither loops nor models. */
struct eb_stats_collector *eb_stats_collector_create(void);
/* When nothing is being taken. Accepts NULL. */
void eb_stats_collector_destroy(struct eb_stats_collector *taker);
/* For the web (admin/web.h), which calls its functions as they say below. */
struct eb_stats_source eb_stats_collector_source(struct eb_stats_collector *taker);
/* The thread's mailbox, once it is open: before the first request. */
void eb_stats_collector_open(void *taker, struct eb_mailbox *mailbox);

/* Stats are taken one at a time, one for each request, in the order of asking: each begins after it
 * was asked for. on_taken may be called at once, and may ask again. */
void eb_stats_collector_ask(void *taker, struct eb_stats_request *request);
enum eb_stats_phase eb_stats_collector_phase(const void *taker);

/* On main, as are the next two: what there is to be counted, from now on; once, after open. The
 * loops, which are those of the service (rpc/service.h), and the list of them stay until detach.
 * `snapshot` is the one that the first swap returns; from then on it may be swapped. */
void eb_stats_collector_attach(struct eb_stats_collector *taker, struct eb_loop *const *loops,
    size_t loop_count, struct eb_executor *executor, struct eb_snapshot *snapshot);
/* The phase from now on, each at most once. */
void eb_stats_collector_say(struct eb_stats_collector *taker, enum eb_stats_phase phase);
/* What main knows from now on, which is copied; before detach. Where there is no memory for it, it
 * comes with the next. */
void eb_stats_collector_tell(
    struct eb_stats_collector *taker, const struct eb_process_facts *facts);
/* Waits until no loop is being asked; from then on every request ends with NULL. After open, while
 * the owner's thread and the loops still run; with or without attach; once. */
void eb_stats_collector_detach(struct eb_stats_collector *taker);
/* For the publisher (publish/publisher.h), on the owner's thread: the snapshot from now on; returns
 * the one it had. */
struct eb_snapshot *eb_stats_collector_swap(void *taker, struct eb_snapshot *snapshot);
