#include "server/work/queue.h"

#include <assert.h>

static_assert((EB_QUEUE_BUCKETS & (EB_QUEUE_BUCKETS - 1)) == 0, "buckets are found by a mask");

/* ---- rings: lists without an end, known by their first ---- */

static void ring_insert(struct eb_work *before, struct eb_work *work, enum eb_work_ring ring)
{
    struct eb_work *after = before->links[ring].next;
    work->links[ring] = (struct eb_work_link){.next = after, .previous = before};
    before->links[ring].next = work;
    after->links[ring].previous = work;
}

static void ring_push(struct eb_work **first, struct eb_work *work, enum eb_work_ring ring)
{
    if (*first) {
        ring_insert((*first)->links[ring].previous, work, ring);
        return;
    }
    work->links[ring] = (struct eb_work_link){.next = work, .previous = work};
    *first = work;
}

static void ring_remove(struct eb_work **first, struct eb_work *work, enum eb_work_ring ring)
{
    struct eb_work_link *link = &work->links[ring];
    if (*first == work) {
        *first = link->next == work ? NULL : link->next;
    }
    link->previous->links[ring].next = link->next;
    link->next->links[ring].previous = link->previous;
}

static void ring_replace(
    struct eb_work **first, struct eb_work *work, struct eb_work *by, enum eb_work_ring ring)
{
    ring_insert(work, by, ring);
    ring_remove(first, work, ring);
}

/* ---- sources ---- */

static unsigned level_of(unsigned priority)
{
    return priority == EB_WORK_INTERACTIVE ? EB_WORK_INTERACTIVE : EB_WORK_BATCH;
}

static size_t bucket_of(const struct eb_work *work)
{
    /* The golden ratio's bits spread addresses, of which the low bits say little. */
    uint64_t key = (uint64_t)(uintptr_t)work->source + level_of(work->priority);
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (EB_QUEUE_BUCKETS - 1);
}

static bool is_of_source(const struct eb_work *work, const struct eb_work *other)
{
    return work->source == other->source && level_of(work->priority) == level_of(other->priority);
}

/* The first waiting work of the same source and priority. NULL: none. */
static struct eb_work *find_source(const struct eb_queue *queue, const struct eb_work *work)
{
    struct eb_work *first = queue->buckets[bucket_of(work)];
    struct eb_work *at = first;
    while (at && !is_of_source(at, work)) {
        at = at->links[EB_WORK_RING_BUCKET].next;
        at = at == first ? NULL : at;
    }
    return at;
}

/* A source that has had more than its turn pays in the next ones, each of which has a tile at
 * least.
 */
static void begin_turn(const struct eb_queue_level *level)
{
    level->turn->credit_bytes += EB_QUEUE_TURN_BYTES;
}

static void add_source(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    work->source_bytes = 0;
    work->credit_bytes = 0;
    ring_push(&queue->buckets[bucket_of(work)], work, EB_WORK_RING_BUCKET);
    ring_push(&level->turn, work, EB_WORK_RING_TURN);
    if (level->turn == work) {
        begin_turn(level);
    }
}

static void remove_source(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    bool had_turn = level->turn == work;
    ring_remove(&queue->buckets[bucket_of(work)], work, EB_WORK_RING_BUCKET);
    ring_remove(&level->turn, work, EB_WORK_RING_TURN);
    if (had_turn && level->turn) {
        begin_turn(level);
    }
}

static void pass_source(struct eb_queue *queue, struct eb_work *work, struct eb_work *heir)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    heir->source_bytes = work->source_bytes;
    heir->credit_bytes = work->credit_bytes;
    ring_replace(&queue->buckets[bucket_of(work)], work, heir, EB_WORK_RING_BUCKET);
    ring_replace(&level->turn, work, heir, EB_WORK_RING_TURN);
}

/* ---- the queue ---- */

struct eb_work *eb_queue_next(const struct eb_queue *queue)
{
    struct eb_work *interactive = queue->levels[EB_WORK_INTERACTIVE].turn;
    return interactive ? interactive : queue->levels[EB_WORK_BATCH].turn;
}

void eb_queue_charge(struct eb_queue *queue, struct eb_work *work, uint64_t bytes)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    assert(work == level->turn);
    uint64_t given_bytes = bytes < work->left_bytes ? bytes : work->left_bytes;
    work->left_bytes -= given_bytes;
    work->source_bytes -= given_bytes;
    level->bytes -= given_bytes;
    work->credit_bytes -= (int64_t)bytes;
    if (work->credit_bytes <= 0) {
        level->turn = work->links[EB_WORK_RING_TURN].next;
        begin_turn(level);
    }
}

void eb_queue_push(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_work *first = find_source(queue, work);
    if (!first) {
        add_source(queue, work);
    }
    struct eb_work *source = first ? first : work;
    ring_push(&first, work, EB_WORK_RING_SOURCE);
    ring_push(&queue->hand, work, EB_WORK_RING_ALL);
    work->left_bytes = work->weight_bytes;
    source->source_bytes += work->left_bytes;
    queue->levels[level_of(work->priority)].bytes += work->left_bytes;
    queue->levels[level_of(work->priority)].works++;
}

void eb_queue_remove(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_work *first = find_source(queue, work);
    struct eb_work *heir = work->links[EB_WORK_RING_SOURCE].next;
    assert(first);
    first->source_bytes -= work->left_bytes;
    queue->levels[level_of(work->priority)].bytes -= work->left_bytes;
    queue->levels[level_of(work->priority)].works--;
    if (first == work && heir == work) {
        remove_source(queue, work);
    } else if (first == work) {
        pass_source(queue, work, heir);
    }
    ring_remove(&first, work, EB_WORK_RING_SOURCE);
    ring_remove(&queue->hand, work, EB_WORK_RING_ALL);
}

struct eb_work *eb_queue_sweep(struct eb_queue *queue, uint64_t now_ns)
{
    for (unsigned n = 0; n < EB_QUEUE_SWEEP_WORKS && queue->hand; n++) {
        if (eb_work_is_expired(queue->hand, now_ns)) {
            return queue->hand;
        }
        queue->hand = queue->hand->links[EB_WORK_RING_ALL].next;
    }
    return NULL;
}

uint64_t eb_queue_bytes(const struct eb_queue *queue, unsigned priority)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i <= level_of(priority); i++) {
        bytes += queue->levels[i].bytes;
    }
    return bytes;
}

uint64_t eb_queue_source_bytes(const struct eb_queue *queue, const struct eb_work *work)
{
    const struct eb_work *first = find_source(queue, work);
    return first ? first->source_bytes : 0;
}

/* What so many turns from now on give to another source at least. */
static uint64_t turns_bytes(
    const struct eb_queue_level *level, const struct eb_work *first, uint64_t turn_count)
{
    /* What is left of the turn that it is having is one of them. */
    int64_t bytes = first->credit_bytes + (int64_t)(turn_count * EB_QUEUE_TURN_BYTES) -
                    (first == level->turn ? EB_QUEUE_TURN_BYTES : 0);
    if (bytes < 0) {
        return 0;
    }
    return (uint64_t)bytes < first->source_bytes ? (uint64_t)bytes : first->source_bytes;
}

uint64_t eb_queue_bytes_before(
    const struct eb_queue *queue, const struct eb_work *work, uint64_t enough_bytes)
{
    unsigned level_index = level_of(work->priority);
    const struct eb_queue_level *level = &queue->levels[level_index];
    const struct eb_work *own = find_source(queue, work);
    uint64_t own_bytes = own ? own->source_bytes : 0;
    uint64_t turn_count = own ? own_bytes / EB_QUEUE_TURN_BYTES : 1;
    uint64_t bytes = own_bytes;
    if (level_index != EB_WORK_INTERACTIVE) {
        bytes += queue->levels[EB_WORK_INTERACTIVE].bytes;
    }
    const struct eb_work *at = level->turn;
    for (unsigned n = 0; at && n < EB_QUEUE_SOURCES_ASKED && bytes < enough_bytes; n++) {
        bytes += at == own ? 0 : turns_bytes(level, at, turn_count);
        at = at->links[EB_WORK_RING_TURN].next;
        at = at == level->turn ? NULL : at;
    }
    return bytes;
}
