#include "server/work/queue.h"

#include <assert.h>

static_assert((EB_QUEUE_BUCKETS & (EB_QUEUE_BUCKETS - 1)) == 0, "buckets are found by a mask");

/* Bytes from which the rate starts: as many as an average over EB_RATE_TILES full tiles remembers,
 * so that the assumed rate weighs as much as they do. */
#define RATE_ASSUMED_BYTES (UINT64_C(1) * EB_RATE_TILES * EB_WORK_TILE_BYTES)

/* ---- work items ---- */

bool eb_work_is_expired(const struct eb_work *work, uint64_t now_ns)
{
    return (work->cancelled && atomic_load_explicit(work->cancelled, memory_order_relaxed)) ||
           (work->deadline_ns != 0 && now_ns >= work->deadline_ns);
}

bool eb_work_is_all_given(struct eb_work *work)
{
    return eb_bag_cut_is_over(work->jobs, work->job_count, &work->cut);
}

bool eb_work_is_last_tile(const struct eb_work *work)
{
    struct eb_bag_cut cut = work->cut;
    struct eb_bag_tile tile;
    if (eb_bag_cut_is_over(work->jobs, work->job_count, &cut)) {
        return false;
    }
    eb_bag_cut_tile(work->jobs, work->job_count, EB_WORK_TILE_BYTES, &cut, &tile);
    return eb_bag_cut_is_over(work->jobs, work->job_count, &cut);
}

void eb_work_cut_tile(struct eb_work *work, struct eb_bag_tile *tile)
{
    eb_bag_cut_tile(work->jobs, work->job_count, EB_WORK_TILE_BYTES, &work->cut, tile);
    tile->owner = work;
    work->open_tiles++;
}

uint64_t eb_work_tile_bytes(const struct eb_bag_tile *tile)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < tile->job_count; n++) {
        struct eb_bag_range range = eb_bag_tile_range(tile, n);
        const struct eb_bag_job *job = range.job;
        uint32_t elements = range.element_end - range.element_first;
        uint64_t bags = range.bag_end - range.bag_first;
        uint64_t row_bytes = eb_storage_row_bytes(job->table->storage, elements);
        if (job->table->scales && range.element_first == 0) {
            row_bytes += sizeof(struct eb_row_scale);
        }
        bytes += eb_bag_range_rows(&range) * row_bytes +
                 bags * elements * eb_type_bytes(job->output_type);
    }
    return bytes;
}

const char *eb_work_priority_name(enum eb_work_priority priority)
{
    static const char *const names[] = {
#define X(name, text) [EB_WORK_##name] = text,
        EB_WORK_PRIORITY_LIST(X)
#undef X
    };
    return names[priority];
}

/* ---- rings: circular lists without a head; a pointer to one link, or NULL if empty ---- */

static void ring_push(struct eb_list **ring, struct eb_list *link)
{
    eb_list_init(link);
    if (*ring) {
        eb_list_push(*ring, link);
    } else {
        *ring = link;
    }
}

static void ring_remove(struct eb_list **ring, struct eb_list *link)
{
    if (*ring == link) {
        *ring = eb_list_is_empty(link) ? NULL : link->next;
    }
    eb_list_remove(link);
}

static void ring_replace(struct eb_list **ring, struct eb_list *link, struct eb_list *by)
{
    eb_list_push(link->next, by);
    ring_remove(ring, link);
}

/* ---- sources ---- */

static unsigned level_of(unsigned priority)
{
    return priority == EB_WORK_INTERACTIVE ? EB_WORK_INTERACTIVE : EB_WORK_BATCH;
}

static size_t bucket_of(const struct eb_work *work)
{
    /* Multiplying by the golden ratio spreads addresses, whose low bits hardly differ. */
    uint64_t key = (uint64_t)(uintptr_t)work->source + level_of(work->priority);
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (EB_QUEUE_BUCKETS - 1);
}

static bool is_of_source(const struct eb_work *work, const struct eb_work *other)
{
    return work->source == other->source && level_of(work->priority) == level_of(other->priority);
}

static struct eb_work *work_in_round(const struct eb_list *link)
{
    return EB_CONTAINER_OF(link, struct eb_work, in_round);
}

/* Returns the first waiting item of the same source and priority; NULL if there is none. */
static struct eb_work *find_source(const struct eb_queue *queue, const struct eb_work *work)
{
    struct eb_list *first = queue->buckets[bucket_of(work)];
    struct eb_list *link = first;
    while (link) {
        struct eb_work *source = EB_CONTAINER_OF(link, struct eb_work, in_bucket);
        if (is_of_source(source, work)) {
            return source;
        }
        link = link->next == first ? NULL : link->next;
    }
    return NULL;
}

/* Grants the served source the quantum of a round. A source that was given more than its quantum
 * gets less in the next rounds, but at least a tile in each. */
static void grant_quantum(const struct eb_queue_level *level)
{
    work_in_round(level->served)->deficit_bytes += EB_QUEUE_QUANTUM_BYTES;
}

static void add_source(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    work->source_bytes = 0;
    work->deficit_bytes = 0;
    ring_push(&queue->buckets[bucket_of(work)], &work->in_bucket);
    ring_push(&level->served, &work->in_round);
    if (level->served == &work->in_round) {
        grant_quantum(level);
    }
}

static void remove_source(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    bool was_served = level->served == &work->in_round;
    ring_remove(&queue->buckets[bucket_of(work)], &work->in_bucket);
    ring_remove(&level->served, &work->in_round);
    if (was_served && level->served) {
        grant_quantum(level);
    }
}

/* Makes `heir` represent the source in place of `work`. */
static void hand_over_source(struct eb_queue *queue, struct eb_work *work, struct eb_work *heir)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    heir->source_bytes = work->source_bytes;
    heir->deficit_bytes = work->deficit_bytes;
    ring_replace(&queue->buckets[bucket_of(work)], &work->in_bucket, &heir->in_bucket);
    ring_replace(&level->served, &work->in_round, &heir->in_round);
}

/* ---- the queue ---- */

struct eb_work *eb_queue_next(const struct eb_queue *queue)
{
    const struct eb_list *interactive = queue->levels[EB_WORK_INTERACTIVE].served;
    const struct eb_list *link = interactive ? interactive : queue->levels[EB_WORK_BATCH].served;
    return link ? work_in_round(link) : NULL;
}

void eb_queue_charge(struct eb_queue *queue, struct eb_work *work, uint64_t bytes)
{
    struct eb_queue_level *level = &queue->levels[level_of(work->priority)];
    assert(&work->in_round == level->served);
    uint64_t given_bytes = bytes < work->left_bytes ? bytes : work->left_bytes;
    work->left_bytes -= given_bytes;
    work->source_bytes -= given_bytes;
    level->bytes -= given_bytes;
    work->deficit_bytes -= (int64_t)bytes;
    if (work->deficit_bytes <= 0) {
        level->served = work->in_round.next;
        grant_quantum(level);
    }
}

void eb_queue_push(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_work *first = find_source(queue, work);
    struct eb_list *of_source = first ? &first->in_source : NULL;
    if (!first) {
        add_source(queue, work);
        first = work;
    }
    ring_push(&of_source, &work->in_source);
    ring_push(&queue->swept, &work->in_all);
    work->left_bytes = work->weight_bytes;
    first->source_bytes += work->left_bytes;
    queue->levels[level_of(work->priority)].bytes += work->left_bytes;
    queue->levels[level_of(work->priority)].works++;
}

void eb_queue_remove(struct eb_queue *queue, struct eb_work *work)
{
    struct eb_work *first = find_source(queue, work);
    struct eb_work *heir = EB_CONTAINER_OF(work->in_source.next, struct eb_work, in_source);
    assert(first);
    first->source_bytes -= work->left_bytes;
    queue->levels[level_of(work->priority)].bytes -= work->left_bytes;
    queue->levels[level_of(work->priority)].works--;
    if (first == work && heir == work) {
        remove_source(queue, work);
    } else if (first == work) {
        hand_over_source(queue, work, heir);
    }
    eb_list_remove(&work->in_source);
    ring_remove(&queue->swept, &work->in_all);
}

struct eb_work *eb_queue_sweep(struct eb_queue *queue, uint64_t now_ns)
{
    for (unsigned n = 0; n < EB_QUEUE_SWEEP_WORKS && queue->swept; n++) {
        struct eb_work *work = EB_CONTAINER_OF(queue->swept, struct eb_work, in_all);
        if (eb_work_is_expired(work, now_ns)) {
            return work;
        }
        queue->swept = queue->swept->next;
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

/* Returns the least number of bytes that `round_count` rounds, beginning with this one, give a
 * source. */
static uint64_t count_round_bytes(
    const struct eb_queue_level *level, const struct eb_work *source, uint64_t round_count)
{
    /* The served source has been granted the quantum of this round. */
    int64_t bytes = source->deficit_bytes + (int64_t)(round_count * EB_QUEUE_QUANTUM_BYTES) -
                    (&source->in_round == level->served ? EB_QUEUE_QUANTUM_BYTES : 0);
    if (bytes < 0) {
        return 0;
    }
    return (uint64_t)bytes < source->source_bytes ? (uint64_t)bytes : source->source_bytes;
}

uint64_t eb_queue_bytes_before(
    const struct eb_queue *queue, const struct eb_work *work, uint64_t enough_bytes)
{
    unsigned level_index = level_of(work->priority);
    const struct eb_queue_level *level = &queue->levels[level_index];
    const struct eb_work *own = find_source(queue, work);
    uint64_t own_bytes = own ? own->source_bytes : 0;
    uint64_t round_count = own ? own_bytes / EB_QUEUE_QUANTUM_BYTES : 1;
    uint64_t bytes = own_bytes;
    if (level_index != EB_WORK_INTERACTIVE) {
        bytes += queue->levels[EB_WORK_INTERACTIVE].bytes;
    }
    const struct eb_list *link = level->served;
    for (unsigned n = 0; link && n < EB_QUEUE_SOURCES_ASKED && bytes < enough_bytes; n++) {
        const struct eb_work *source = work_in_round(link);
        bytes += source == own ? 0 : count_round_bytes(level, source, round_count);
        link = link->next == level->served ? NULL : link->next;
    }
    return bytes;
}

/* ---- the rate of a thread ---- */

void eb_rate_init(struct eb_rate *rate)
{
    *rate = (struct eb_rate){
        .bytes = RATE_ASSUMED_BYTES,
        .ns = RATE_ASSUMED_BYTES * 1000 / EB_RATE_DEFAULT_BYTES_PER_US,
    };
}

void eb_rate_add(struct eb_rate *rate, uint64_t bytes, uint64_t ns)
{
    uint64_t ns_max = (bytes * 1000 / eb_rate_bytes_per_us(rate) + 1) * EB_RATE_SLOWER_MAX;
    rate->bytes += bytes - rate->bytes / EB_RATE_TILES;
    rate->ns += (ns < ns_max ? ns : ns_max) - rate->ns / EB_RATE_TILES;
}

uint64_t eb_rate_bytes_per_us(const struct eb_rate *rate)
{
    uint64_t bytes_per_us = rate->bytes * 1000 / (rate->ns + 1);
    return bytes_per_us > 0 ? bytes_per_us : 1;
}

/* ---- admission ---- */

static uint64_t subtract_bytes(uint64_t bytes_max, uint64_t bytes)
{
    return bytes < bytes_max ? bytes_max - bytes : 0;
}

/* Returns how many more bytes of items like this one the queue can take. */
static uint64_t find_room(
    const struct eb_queue *queue, uint64_t bytes_max, const struct eb_work *work)
{
    uint64_t first_bytes = work->is_repeated ? bytes_max / EB_ADMISSION_FIRST_FRACTION : 0;
    uint64_t all = subtract_bytes(bytes_max - first_bytes, eb_queue_bytes(queue, EB_WORK_BATCH));
    if (work->priority == EB_WORK_INTERACTIVE) {
        return all;
    }
    uint64_t batch =
        subtract_bytes(bytes_max / EB_ADMISSION_BATCH_FRACTION, queue->levels[EB_WORK_BATCH].bytes);
    return batch < all ? batch : all;
}

static bool is_queue_full(
    const struct eb_queue *queue, uint64_t bytes_max, const struct eb_work *work)
{
    uint64_t room = find_room(queue, bytes_max, work);
    if (eb_queue_bytes(queue, work->priority) == 0) {
        return false;
    }
    return work->weight_bytes > room ||
           (work->source && eb_queue_source_bytes(queue, work) + work->weight_bytes >
                                room * EB_ADMISSION_SOURCE_SHARE);
}

/* Returns the number of bytes that, if computed before the item, make it miss its deadline; at
 * least 1. */
static uint64_t find_late_bytes(const struct eb_admission_terms *terms, const struct eb_work *work)
{
    if (work->deadline_ns <= terms->now_ns) {
        return 1;
    }
    uint64_t us = (work->deadline_ns - terms->now_ns - 1) / 1000 + 1;
    return us < UINT64_MAX / terms->bytes_per_us ? us * terms->bytes_per_us : UINT64_MAX;
}

static bool would_be_late(const struct eb_queue *queue, const struct eb_admission_terms *terms,
    const struct eb_work *work)
{
    /* Add up the bytes that come first only if all queued bytes together would take too long. */
    uint64_t late_bytes = find_late_bytes(terms, work);
    return work->deadline_ns != 0 && eb_queue_bytes(queue, work->priority) >= late_bytes &&
           eb_queue_bytes_before(queue, work, late_bytes) >= late_bytes;
}

uint32_t eb_admission_retry_after_ms(
    const struct eb_queue *queue, const struct eb_admission_terms *terms, unsigned priority)
{
    uint64_t ms = eb_queue_bytes(queue, priority) / terms->bytes_per_us / 1000 + 1;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

enum eb_admit eb_admission_decide(const struct eb_queue *queue,
    const struct eb_admission_terms *terms, const struct eb_work *work, struct eb_admission *out)
{
    enum eb_admit verdict = EB_ADMIT_TAKEN;
    *out = (struct eb_admission){0};
    if (is_queue_full(queue, terms->queue_bytes_max, work)) {
        verdict = EB_ADMIT_FULL;
    } else if (would_be_late(queue, terms, work)) {
        verdict = EB_ADMIT_LATE;
    }
    if (verdict != EB_ADMIT_TAKEN) {
        out->retry_after_ms = eb_admission_retry_after_ms(queue, terms, work->priority);
    }
    return verdict;
}
