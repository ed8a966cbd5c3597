/* Compares tables that were adopted from resident files (tables/resident_tables.h) with the files
 * of their versions, in the background, while they are served. Files that were written to in place,
 * with the same size and time, have the same source keys as before, so that an adopted table may
 * differ from them. One chunk of each table's rows, chosen at random, and all of its keys are
 * compared at the pace of background loads and at the lowest priority. If they differ, that is
 * logged, the resident file is deleted, and its mapping is marked as outdated, so that the registry
 * has the version loaded again.
 *
 * Only the owner of the directory compares. Versions are compared one after the other, each
 * resident file once. A comparison does not hold the version: it copies what it needs.
 * Thread: the owner's loop; files are read on a thread that exists only during a comparison.
 * Memory: a few hundred bytes for each table of the version that is being compared, and 8 bytes for
 * each chunk of it. */
#pragma once

#include "proto/net/background_task.h"
#include "server/models/registry.h"
#include "server/publish/loader.h"
#include "server/publish/publisher.h"
#include "server/publish/resident_keeper.h"

struct eb_comparison;

struct eb_adoption_check {
    struct eb_registry *registry;
    struct eb_loader *loader; /* gives the options to read versions with, and keeps the pace */
    const struct eb_publisher *publisher;
    struct eb_resident_keeper *keeper;
    /* Called when a comparison is over. */
    void (*on_compared)(void *context);
    /* Called when is_stalled has changed. */
    void (*on_stalled)(void *context);
    void *context;
    bool is_stalled; /* the comparison under way has waited long for a read */
    /* Private. */
    struct eb_background_task task;
    uv_timer_t watch_timer;           /* runs during a comparison */
    struct eb_comparison *comparison; /* under way; NULL if none is */
    atomic_bool is_cancelled;         /* the one under way must end */
    uint64_t random_state;            /* of splitmix64, which chooses chunks */
    bool is_open;
};

/* Allows comparisons. The owner has set the members above the private ones, has zeroed the private
 * ones, and has started the keeper. Does nothing if tables are not resident. If the system lacks
 * the resources, logs a warning, and nothing is compared. */
void eb_adoption_check_start(struct eb_adoption_check *check, uv_loop_t *loop);
/* Begins the next comparison if one is due and none is under way, unless the server has started
 * without the repository, which has not been read since. Cancels the one under way if its version
 * is no longer in memory. Called after each change of the registry; does nothing before the start
 * and after the stop. */
void eb_adoption_check_advance(struct eb_adoption_check *check);
/* Cancels the comparison under way. If eb_adoption_check_is_busy after that, a last on_compared
 * follows.
 * May be called without start. */
void eb_adoption_check_stop(struct eb_adoption_check *check);
/* Returns whether a comparison is under way. */
bool eb_adoption_check_is_busy(const struct eb_adoption_check *check);
