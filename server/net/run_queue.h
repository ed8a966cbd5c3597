/* A loop's queue of connections that wait for their next time slice.
 *
 * A connection's level depends on how many slices it has used up lately: that number doubles from
 * level to level. Slices go to the lowest level with a waiting connection, so that a request of
 * ordinary size does not wait for connections that have been sending for seconds. But one slice in
 * EB_RUN_ROUND goes to the levels in turn, so that no connection starves. Within a level the order
 * is first come, first served.
 * Thread: its loop's. Memory: none; its lists run through the connections. */
#pragma once

#include "proto/list.h"

#include <stdint.h>

#define EB_RUN_LEVELS 8 /* level 0: no slice used, 1: one, 2: 2 or 3, ... 7: 64 or more */

#define EB_RUN_ROUND 8             /* one in this many slices goes to the levels in turn */
#define EB_RUN_HALVED_NS 100000000 /* each such time with nothing to read halves the slices */

/* The time slices that a connection has used up and that still count. Zeroed if there are none. */
struct eb_run_usage {
    uint64_t slices;
    uint64_t idle_since_ns; /* when it last had nothing to read */
};

void eb_run_usage_add(struct eb_run_usage *usage);
/* Notes that the connection has nothing to read. */
void eb_run_usage_idle(struct eb_run_usage *usage, uint64_t now_ns);
/* Notes that the connection has something to read again. Halves its slices once for each
 * EB_RUN_HALVED_NS since the last eb_run_usage_idle. Returns how many slices still count. */
uint64_t eb_run_usage_resume(struct eb_run_usage *usage, uint64_t now_ns);

/* A connection's entry in the queue. */
struct eb_run_entry {
    struct eb_list link;
    unsigned level; /* valid while it waits */
    bool is_waiting;
};

struct eb_run_queue {
    struct eb_list levels[EB_RUN_LEVELS];
    size_t count;
    unsigned next_level; /* first level to try for the next slice that goes to the levels in turn */
    unsigned slice_count; /* slices since the last one that went to the levels in turn */
};

void eb_run_queue_init(struct eb_run_queue *queue);
void eb_run_entry_init(struct eb_run_entry *entry);
/* Returns the level of a connection that has used `slices` slices. */
unsigned eb_run_queue_find_level(uint64_t slices);
/* Appends an entry to the queue of its level. Does nothing if the entry waits already. */
void eb_run_queue_push(struct eb_run_queue *queue, struct eb_run_entry *entry, uint64_t slices);
/* Removes and returns the entry that gets the next slice. Returns NULL if the queue is empty. */
struct eb_run_entry *eb_run_queue_pop(struct eb_run_queue *queue);
/* Removes an entry. Does nothing if it does not wait. */
void eb_run_queue_remove(struct eb_run_queue *queue, struct eb_run_entry *entry);
