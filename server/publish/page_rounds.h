/* Asks the kernel again for huge pages for tables in memory that got small ones
 * (tables/page_collapse.h): in rounds, in the background, at the lowest priority, as long as there
 * are such tables. There is no round while memory is short.
 * Thread: the owner's loop; pages are joined on a thread that exists only during a round. Memory: a
 * list of versions; a round holds them, and ends when one of them is retired. */
#pragma once

#include "proto/net/background_task.h"
#include "server/models/registry.h"

#include <stdatomic.h>

/* Time from one round to the next. */
#define EB_PAGE_ROUNDS_INTERVAL_MS 60000
/* Percentage of time in which tasks waited for memory lately, from which on there is no round. */
#define EB_PAGE_ROUNDS_PRESSURE_PERCENT 1.0

struct eb_page_rounds {
    struct eb_registry *registry;
    uint64_t interval_ms; /* time between rounds; 0 means EB_PAGE_ROUNDS_INTERVAL_MS */
    /* Called when a round is over. */
    void (*on_round)(void *context);
    void *context;
    /* Private. */
    uv_timer_t timer;
    struct eb_background_task task;
    uint64_t passes;                    /* passes over all tables that are over */
    size_t count;                       /* versions of the round under way */
    struct eb_model_version **versions; /* with a reference to each */
    atomic_bool is_cancelled;           /* the round under way is to end */
    bool is_open;
};

/* Begins the rounds. The owner has set the members above the private ones, and has zeroed the
 * private ones. If the system has no resources for it, it logs a warning, and pages stay as they
 * are. */
void eb_page_rounds_start(struct eb_page_rounds *rounds, uv_loop_t *loop);
/* Ends the round under way if one of its versions is no longer in the registry. Called after each
 * change of the registry. */
void eb_page_rounds_advance(struct eb_page_rounds *rounds);
/* Ends the rounds. If one is under way after that, a last on_round follows. May be called without
 * start. */
void eb_page_rounds_stop(struct eb_page_rounds *rounds);
/* Returns whether a round is under way. */
bool eb_page_rounds_is_busy(const struct eb_page_rounds *rounds);
