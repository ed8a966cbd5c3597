/* A work: checked jobs that are computed together and end together, and how its tiles are cut.
 * Thread: whoever holds the executor's lock, but for what says otherwise. Memory: works are their
 * submitters'; the lists that they wait in run through them. */
#pragma once

#include "kernels/bag_tile.h"

#include <stdatomic.h>

/* Bytes of rows, or of results, per tile: some 15 us of gathering, so that the lock around the
 * queue and the end of a request cost little beside it. A bag whose rows are no longer than two
 * lines is one tile, however many rows it has: no cancel and no deadline ends it once it is begun.
 */
#define EB_WORK_TILE_BYTES 131072

enum eb_work_outcome {
    EB_WORK_DONE,    /* every job is computed */
    EB_WORK_EXPIRED, /* its deadline passed, or it was cancelled, before the last tile was given out
                      */
};

enum eb_work_priority {
    EB_WORK_INTERACTIVE,
    EB_WORK_BATCH, /* is given to threads only while nothing interactive waits, refused first */
    EB_WORK_PRIORITIES
};

/* The lists that a waiting work is in. */
enum eb_work_ring {
    EB_WORK_RING_ALL,
    EB_WORK_RING_SOURCE, /* the works of one source and priority, in order */
    /* The first of these stands for the source: */
    EB_WORK_RING_TURN,   /* among the sources of a priority */
    EB_WORK_RING_BUCKET, /* among those that are looked up in one place */
    EB_WORK_RINGS
};

struct eb_work_link {
    struct eb_work *next;
    struct eb_work *previous;
};

struct eb_work {
    struct eb_bag_job *jobs; /* [job_count], with their outputs set */
    uint32_t job_count;
    unsigned priority;            /* 0: EB_WORK_INTERACTIVE; all else is EB_WORK_BATCH */
    uint64_t weight_bytes;        /* what its jobs read and write: its share of the queue */
    uint64_t deadline_ns;         /* uv_hrtime; 0: none */
    const atomic_bool *cancelled; /* true: the work is treated as expired; NULL: never */
    /* Who sent it: works of one source are begun in order, sources are served in turn. It is
     * compared, never followed. NULL: one source too, to which the whole queue is open. */
    const void *source;
    void (*on_done)(struct eb_work *work, enum eb_work_outcome outcome);
    /* Set by the executor (uv_hrtime), to be read from on_done on. */
    uint64_t queued_ns; /* when it was taken */
    uint64_t begun_ns;  /* when its first tile was given out; 0: none was */
    uint64_t ended_ns;  /* when its last tile was computed, or it was dropped */
    /* The executor's own, guarded by its lock. */
    struct eb_bag_cut cut; /* where the next tile begins */
    size_t open_tiles;     /* given out and not computed yet */
    enum eb_work_outcome outcome;
    bool whole; /* every tile has been given out, or none will be any more */
    /* The queue's own, likewise. */
    uint64_t left_bytes; /* of its weight: what has not been given out */
    struct eb_work_link links[EB_WORK_RINGS];
    uint64_t source_bytes; /* left of all works of the source; of its first work only, as is */
    int64_t credit_bytes;  /* what it may still be given in this turn */
};

/* Whether nobody waits for it any longer. Any thread. */
bool eb_work_is_expired(const struct eb_work *work, uint64_t now_ns);
bool eb_work_is_all_given(struct eb_work *work);
/* Whether the next tile is its last; false where it has none. */
bool eb_work_is_last_tile(const struct eb_work *work);

/* Cuts its next tile, of which there must be one. */
void eb_work_cut_tile(struct eb_work *work, struct eb_bag_tile *tile);
/* What a tile reads and writes: its share of the work's weight. Takes time by its number of jobs.
 * Any thread. */
uint64_t eb_work_tile_bytes(const struct eb_bag_tile *tile);
