/* The queue: which of the waiting works is to be given to a thread next. Batch works wait for all
 * interactive ones. Within a priority the sources are served in turn, by bytes (deficit round
 * robin), and the works of a source in order; a source that is new waits for one turn of each of
 * the others, however much they have queued.
 * Thread: whoever holds its lock. Memory: none of its own; its lists run through the works. */
#pragma once

#include "server/work/work.h"

/* What a source is given in its turn: large enough that small works end in the turn that begins
 * them, small enough that a turn costs the others some 60 us of one thread. */
#define EB_QUEUE_TURN_BYTES (4 * EB_WORK_TILE_BYTES)
/* How many works a look for expired ones looks at. */
#define EB_QUEUE_SWEEP_WORKS 4
/* Places in which sources are looked up; a power of two. As many connections as connections_max is
 * by default share one between two or three of them. */
#define EB_QUEUE_BUCKETS 4096
/* How many sources a look at what comes before a work asks: some 3 us, under the executor's lock.
 */
#define EB_QUEUE_SOURCES_ASKED 256

struct eb_queue_level {
    struct eb_work *turn; /* the first work of the source whose turn it is; NULL: none waits */
    uint64_t bytes;       /* that wait */
    uint64_t works;       /* likewise */
};

/* Empty when zeroed. */
struct eb_queue {
    struct eb_queue_level levels[EB_WORK_PRIORITIES];
    struct eb_work *hand; /* where the next look for expired works begins */
    struct eb_work *buckets[EB_QUEUE_BUCKETS];
};

/* The work whose tile is next. NULL: none waits. */
struct eb_work *eb_queue_next(const struct eb_queue *queue);
/* How many wait. */
static inline uint64_t eb_queue_count(const struct eb_queue *queue)
{
    return queue->levels[EB_WORK_INTERACTIVE].works + queue->levels[EB_WORK_BATCH].works;
}

/* Counts a tile of that work, which must be eb_queue_next. */
void eb_queue_charge(struct eb_queue *queue, struct eb_work *work, uint64_t bytes);
/* Behind all works of its source; a source that did not wait comes behind all others. */
void eb_queue_push(struct eb_queue *queue, struct eb_work *work);
/* Takes out a work wherever it waits. */
void eb_queue_remove(struct eb_queue *queue, struct eb_work *work);

/* A work that has expired, of the next EB_QUEUE_SWEEP_WORKS; the same again until it is removed.
 * NULL: none of these, and the next call looks at others. So of n works that wait each is looked
 * at within n / EB_QUEUE_SWEEP_WORKS + 1 calls. */
struct eb_work *eb_queue_sweep(struct eb_queue *queue, uint64_t now_ns);

/* Bytes that wait of a priority and all above it. */
uint64_t eb_queue_bytes(const struct eb_queue *queue, unsigned priority);
/* Bytes that wait of a work's source, in its priority; the work itself need not be queued. */
uint64_t eb_queue_source_bytes(const struct eb_queue *queue, const struct eb_work *work);
/* Bytes that will be given out, if nothing is dropped, before a work that is pushed now: all that
 * waits above its priority and of its own source, and of every other source of its priority what
 * its turns until then give it at least. That no tile is larger than a turn is assumed: one of a
 * huge bag of narrow rows is (EB_WORK_TILE_BYTES), and then less is told than will be. Counts no
 * further than to `enough_bytes`, and no more than EB_QUEUE_SOURCES_ASKED sources, so that it may
 * be more than is said. */
uint64_t eb_queue_bytes_before(
    const struct eb_queue *queue, const struct eb_work *work, uint64_t enough_bytes);
