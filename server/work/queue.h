/* The executor's queue: holds the waiting work items, chooses the next one, and decides whether
 * another one is admitted.
 *
 * Batch items wait for all interactive ones. Within a priority the sources are served in rounds of
 * deficit round robin: in each round a source is given EB_QUEUE_QUANTUM_BYTES, and its items are
 * begun in order. So a new source waits for one round of the others, however much they have queued.
 * Thread: whoever holds the executor's lock, unless a function says otherwise. Memory: items belong
 * to their submitters, and contain the links of the lists of waiting items. */
#pragma once

#include "kernels/bag_tile.h"
#include "proto/list.h"

#include <stdatomic.h>

/* ---- work items ---- */

/* Bytes of rows, or of results, per tile: some 15 us of gathering. Compared with that, the lock
 * around the queue and the end of a request cost little. A bag whose rows are no longer than two
 * cache lines is one tile, however many rows it has: once that tile is begun, neither a cancel nor
 * a deadline ends it. */
#define EB_WORK_TILE_BYTES 131072

enum eb_work_outcome {
    EB_WORK_DONE,    /* every job is computed */
    EB_WORK_EXPIRED, /* its deadline passed, or it was cancelled, before its last tile was begun */
};

/* X(NAME, "name"): priorities, in the order in which they are served. */
#define EB_WORK_PRIORITY_LIST(X)                                                                   \
    X(INTERACTIVE, "interactive")                                                                  \
    X(BATCH, "batch") /* served only while nothing interactive waits, and refused first */

#define X(name, text) EB_WORK_##name,
enum eb_work_priority { EB_WORK_PRIORITY_LIST(X) EB_WORK_PRIORITIES };
#undef X

/* A work item: checked jobs that are computed together and end together. */
struct eb_work {
    struct eb_bag_job *jobs; /* [job_count], with their outputs set */
    uint32_t job_count;
    unsigned priority;     /* 0: EB_WORK_INTERACTIVE; all others: EB_WORK_BATCH */
    bool is_repeated;      /* its request was sent before, so another server may be computing it */
    uint64_t weight_bytes; /* bytes that its jobs read and write: what it takes up of the queue */
    uint64_t deadline_ns;  /* uv_hrtime; 0 if there is none */
    const atomic_bool *cancelled; /* if true, the item is treated as expired; may be NULL */
    /* The sender. It is compared, never dereferenced. All items with NULL count as one source,
     * which may fill the whole queue. */
    const void *source;
    void (*on_done)(struct eb_work *work, enum eb_work_outcome outcome);
    /* Set by the executor (uv_hrtime), valid from on_done on. */
    uint64_t queued_ns; /* when it was admitted */
    uint64_t begun_ns;  /* when its first tile was given out; 0 if none was yet */
    uint64_t ended_ns;  /* when its last tile was computed, or it was dropped */
    /* The executor's own. */
    struct eb_bag_cut cut; /* where the next tile begins */
    size_t open_tiles;     /* tiles given out and not computed yet */
    enum eb_work_outcome outcome;
    bool is_given; /* whether every tile has been given out, or no more will be */
    /* The queue's own. */
    uint64_t left_bytes; /* the part of its weight that has not been given out */
    struct eb_list in_all;
    struct eb_list in_source; /* its place among the items of one source and priority, in order */
    /* Only in the first item of a source, which represents the source: */
    struct eb_list in_round;  /* its place among the sources of a priority */
    struct eb_list in_bucket; /* its place among the sources of a bucket */
    uint64_t source_bytes;    /* bytes of the source's items that have not been given out */
    int64_t deficit_bytes;    /* bytes that the source may still be given in this round */
};

/* Returns whether nobody waits for the item any more: it is cancelled, or its deadline has passed.
 * Any thread. */
bool eb_work_is_expired(const struct eb_work *work, uint64_t now_ns);
/* Returns whether no tile is left to cut. */
bool eb_work_is_all_given(struct eb_work *work);
/* Returns whether the next tile is the last one; false if no tile is left. */
bool eb_work_is_last_tile(const struct eb_work *work);
/* Cuts the next tile; there must be one. */
void eb_work_cut_tile(struct eb_work *work, struct eb_bag_tile *tile);
/* Returns the bytes that a tile reads and writes, which are part of the item's weight. Takes time
 * in proportion to the number of the tile's jobs. Any thread. */
uint64_t eb_work_tile_bytes(const struct eb_bag_tile *tile);
/* Returns "interactive" or "batch". Any thread. */
const char *eb_work_priority_name(enum eb_work_priority priority);

/* ---- the queue ---- */

/* Bytes that a source is given in a round. They are enough for a small item to end in the round in
 * which it begins, and so few that a source delays the others by some 60 us of one thread's
 * time. */
#define EB_QUEUE_QUANTUM_BYTES (4 * EB_WORK_TILE_BYTES)
/* Number of items that eb_queue_sweep looks at. */
#define EB_QUEUE_SWEEP_WORKS 4
/* Hash buckets of sources; a power of two. At the default of connections_max, two or three
 * connections share a bucket. */
#define EB_QUEUE_BUCKETS 4096
/* Number of sources that eb_queue_bytes_before looks at. This takes some 3 us, under the executor's
 * lock. */
#define EB_QUEUE_SOURCES_ASKED 256

struct eb_queue_level {
    struct eb_list *served; /* in_round of the source that is being served; NULL if none waits */
    uint64_t bytes;         /* waiting bytes */
    uint64_t works;         /* waiting items */
};

/* Empty when zeroed. */
struct eb_queue {
    struct eb_queue_level levels[EB_WORK_PRIORITIES];
    struct eb_list *swept; /* in_all of the item where the next sweep begins; NULL if none waits */
    struct eb_list *buckets[EB_QUEUE_BUCKETS]; /* in_bucket of a source; NULL if there is none */
};

/* Returns the item whose tile is next; NULL if none waits. */
struct eb_work *eb_queue_next(const struct eb_queue *queue);
/* Returns how many items wait. */
static inline uint64_t eb_queue_count(const struct eb_queue *queue)
{
    return queue->levels[EB_WORK_INTERACTIVE].works + queue->levels[EB_WORK_BATCH].works;
}

/* Counts `bytes`, the size of a tile of the item, as given out. The item must be the one that
 * eb_queue_next returns. */
void eb_queue_charge(struct eb_queue *queue, struct eb_work *work, uint64_t bytes);
/* Appends the item to those of its source. A source that has no waiting item comes after all
 * others. */
void eb_queue_push(struct eb_queue *queue, struct eb_work *work);
/* Removes the item, wherever it waits. */
void eb_queue_remove(struct eb_queue *queue, struct eb_work *work);

/* Looks at the next EB_QUEUE_SWEEP_WORKS items and returns an expired one. Returns the same one
 * until it is removed. Returns NULL if none of them has expired; the next call then looks at
 * others. Each of n items is looked at within n / EB_QUEUE_SWEEP_WORKS + 1 calls. */
struct eb_work *eb_queue_sweep(struct eb_queue *queue, uint64_t now_ns);

/* Returns the number of bytes that wait with this priority or a higher one. */
uint64_t eb_queue_bytes(const struct eb_queue *queue, unsigned priority);
/* Returns the waiting bytes of the item's source, in the item's priority. The item itself need not
 * be queued. */
uint64_t eb_queue_source_bytes(const struct eb_queue *queue, const struct eb_work *work);
/* Returns how many bytes would be given out before an item that is pushed now, if nothing is
 * dropped: all bytes of a higher priority, all bytes of the item's own source, and the least number
 * of bytes that every other source of its priority is given in the rounds until then. Stops adding
 * at `enough_bytes` and looks at no more than EB_QUEUE_SOURCES_ASKED sources, so there may be more.
 * Assumes that no tile is larger than a quantum. The result is too small if a larger tile waits,
 * which is a huge bag of narrow rows (EB_WORK_TILE_BYTES). */
uint64_t eb_queue_bytes_before(
    const struct eb_queue *queue, const struct eb_work *work, uint64_t enough_bytes);

/* ---- the rate of a thread ---- */

/* The rate that is assumed until tiles have been measured: gathering from memory. */
#define EB_RATE_DEFAULT_BYTES_PER_US 8192
/* Number of tiles that the average remembers: each new one weighs 1 / EB_RATE_TILES. */
#define EB_RATE_TILES 64
/* A tile is counted as at most this many times slower than the average. If a thread was not
 * scheduled for a while, its time says nothing about the next tiles. */
#define EB_RATE_SLOWER_MAX 8

/* The rate at which a thread computes tiles, as exponentially weighted sums. */
struct eb_rate {
    uint64_t bytes;
    uint64_t ns;
};

void eb_rate_init(struct eb_rate *rate);
/* Adds a tile of `bytes` that took one thread `ns`. */
void eb_rate_add(struct eb_rate *rate, uint64_t bytes, uint64_t ns);
/* Returns the rate of one thread; at least 1. */
uint64_t eb_rate_bytes_per_us(const struct eb_rate *rate);

/* ---- admission ---- */

/* Batch items may fill 1 / EB_ADMISSION_BATCH_FRACTION of queue_bytes_max. */
#define EB_ADMISSION_BATCH_FRACTION 2
/* The last 1 / EB_ADMISSION_FIRST_FRACTION of queue_bytes_max is for items whose requests are sent
 * for the first time: what is sent again because of an overload must not add to it. */
#define EB_ADMISSION_FIRST_FRACTION 4
/* A source may hold this many times as much as is free, so that a source that floods leaves room
 * for others. Alone it fills 4/5 of the queue; two fill 4/9 each, and so on. */
#define EB_ADMISSION_SOURCE_SHARE 4

enum eb_admit {
    EB_ADMIT_TAKEN,
    EB_ADMIT_FULL, /* the queue, or the share of it for such items, would overflow */
    EB_ADMIT_LATE, /* computing the items before it would take longer than its deadline allows */
};

/* The answer to a refused submitter. */
struct eb_admission {
    uint32_t retry_after_ms; /* about how long until the queue is empty, at least 1; 0 if the item
                                was taken */
};

struct eb_admission_terms {
    uint64_t queue_bytes_max;
    uint64_t bytes_per_us; /* of all threads; at least 1 */
    uint64_t now_ns;
};

/* Decides whether the queue takes the item; does not push it.
 * - TAKEN, however large the item is, if nothing of its priority or a higher one waits.
 * - FULL if, with the item, more than queue_bytes_max would wait. A batch item also gets FULL if
 *   more than the batch share of that would wait, and a repeated one if part of what is for first
 *   attempts were taken. An item with a source also gets FULL if more
 *   bytes of that source would wait than its share of what is free.
 * - LATE if computing eb_queue_bytes_before at bytes_per_us takes until its deadline or longer. The
 *   item's own bytes, the tiles that are being computed and the sources that eb_queue_bytes_before
 *   does not look at are not counted: in doubt the item is taken. */
enum eb_admit eb_admission_decide(const struct eb_queue *queue,
    const struct eb_admission_terms *terms, const struct eb_work *work, struct eb_admission *out);
/* Returns about how many ms it takes until everything that waits is computed; at least 1. */
uint32_t eb_admission_retry_after_ms(
    const struct eb_queue *queue, const struct eb_admission_terms *terms, unsigned priority);
