#include "server/work/executor.h"

#include "kernels/bag_parallel.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

/* The data from which the speed of a thread's tiles is measured. */
struct executor_thread {
    uint64_t since_ns;    /* when the thread began its tile */
    uint64_t tile_bytes;  /* bytes of that tile */
    uint64_t ahead_bytes; /* bytes of the tile that was given ahead (take_ahead) */
};

struct eb_executor {
    struct eb_bag_team team;
    uv_thread_t leader; /* the team's first thread, which starts the others */
    uv_mutex_t lock;
    uv_cond_t filled;
    struct eb_queue queue; /* guarded by lock, as is everything below */
    uint64_t queue_bytes_max;
    struct eb_rate rate;
    unsigned idle_threads; /* threads that wait for a work item */
    uint64_t tiles;        /* count of tiles computed since the start */
    uint64_t busy_ns;      /* time that all threads together have computed since the start */
    bool is_stopping;
    struct executor_thread threads[]; /* [thread_count] */
};

static void remove_work(struct eb_executor *executor, struct eb_work *work)
{
    eb_queue_remove(&executor->queue, work);
    work->is_given = true;
}

/* Gives out a tile of the next work item. Returns its bytes. */
static uint64_t give_tile(struct eb_executor *executor, uint64_t now_ns, struct eb_bag_tile *tile)
{
    struct eb_work *work = eb_queue_next(&executor->queue);
    eb_work_cut_tile(work, tile);
    bool is_last = eb_work_is_all_given(work);
    /* Adding up a tile's bytes takes time for each of its jobs. The last tile needs no sum: it has
     * all bytes that are left. */
    uint64_t bytes = is_last ? work->left_bytes : eb_work_tile_bytes(tile);
    eb_queue_charge(&executor->queue, work, bytes);
    if (work->begun_ns == 0) {
        work->begun_ns = now_ns;
    }
    if (is_last) {
        remove_work(executor, work);
    }
    return bytes;
}

/* Ends a work item without computing more of it. Calls on_done, outside the lock, unless some of
 * the item's tiles are still being computed; the thread that finishes the last of these calls it
 * then. */
static void end_work(struct eb_executor *executor, struct eb_work *work, uint64_t now_ns,
    enum eb_work_outcome outcome)
{
    remove_work(executor, work);
    work->outcome = outcome;
    if (work->open_tiles > 0) {
        return;
    }
    work->ended_ns = now_ns;
    uv_mutex_unlock(&executor->lock);
    work->on_done(work, work->outcome);
    uv_mutex_lock(&executor->lock);
}

/* Blocks until there is a work item. Returns false if the team must end. */
static bool wait_for_work(struct eb_executor *executor)
{
    executor->idle_threads++;
    while (eb_queue_count(&executor->queue) == 0 && !executor->is_stopping) {
        uv_cond_wait(&executor->filled, &executor->lock);
    }
    executor->idle_threads--;
    return eb_queue_count(&executor->queue) > 0;
}

/* Returns the next work item if it has expired, else another one that has. Returns NULL if none is
 * known to have expired. */
static struct eb_work *find_expired(struct eb_executor *executor, uint64_t now_ns)
{
    struct eb_work *next = eb_queue_next(&executor->queue);
    return eb_work_is_expired(next, now_ns) ? next : eb_queue_sweep(&executor->queue, now_ns);
}

/* Gives an idle thread a tile. Ends expired work items, and blocks until there is a tile. Returns
 * false if the team must end. */
static bool take_tile(struct eb_executor *executor, unsigned thread, struct eb_bag_tile *tile)
{
    while (wait_for_work(executor)) {
        uint64_t now_ns = uv_hrtime();
        struct eb_work *next = eb_queue_next(&executor->queue);
        struct eb_work *expired = find_expired(executor, now_ns);
        if (expired) {
            end_work(executor, expired, now_ns, EB_WORK_EXPIRED);
        } else if (eb_work_is_all_given(next)) {
            end_work(executor, next, now_ns, EB_WORK_DONE);
        } else {
            struct executor_thread *self = &executor->threads[thread];
            self->tile_bytes = give_tile(executor, now_ns, tile);
            self->since_ns = now_ns;
            return true;
        }
    }
    return false;
}

static bool is_last_tile(const struct eb_executor *executor)
{
    return eb_queue_count(&executor->queue) == 1 &&
           eb_work_is_last_tile(eb_queue_next(&executor->queue));
}

/* Gives a thread its next tile while it still computes one. Returns false if another thread is
 * idle, or will probably be idle sooner, since that thread would begin the tile earlier. Also
 * returns false while the thread computes a tile that takes long, since the next tile could not be
 * cancelled meanwhile. Leaves expired work items to take_tile. */
static bool take_ahead(struct eb_executor *executor, unsigned thread, struct eb_bag_tile *tile)
{
    if (eb_queue_count(&executor->queue) == 0 || executor->idle_threads > 0 ||
        executor->threads[thread].tile_bytes > EB_QUEUE_QUANTUM_BYTES) {
        return false;
    }
    uint64_t now_ns = uv_hrtime();
    if (find_expired(executor, now_ns) || eb_work_is_all_given(eb_queue_next(&executor->queue)) ||
        (executor->team.thread_count > 1 && is_last_tile(executor))) {
        return false;
    }
    executor->threads[thread].ahead_bytes = give_tile(executor, now_ns, tile);
    return true;
}

static bool next_tile(void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile)
{
    struct eb_executor *executor = context;
    uv_mutex_lock(&executor->lock);
    bool found = may_wait ? take_tile(executor, thread, tile) : take_ahead(executor, thread, tile);
    if (found && eb_queue_count(&executor->queue) > 0) {
        /* Wake one thread at a time: if it finds more work than it takes, it wakes the next. */
        uv_cond_signal(&executor->filled);
    }
    uv_mutex_unlock(&executor->lock);
    return found;
}

static void finish_tile(void *context, unsigned thread, const struct eb_bag_tile *tile)
{
    struct eb_executor *executor = context;
    struct eb_work *work = tile->owner;
    struct executor_thread *finisher = &executor->threads[thread];
    uint64_t now_ns = uv_hrtime();
    uv_mutex_lock(&executor->lock);
    eb_rate_add(&executor->rate, finisher->tile_bytes, now_ns - finisher->since_ns);
    executor->tiles++;
    executor->busy_ns += now_ns - finisher->since_ns;
    finisher->tile_bytes = finisher->ahead_bytes; /* take_tile sets it if none was given ahead */
    finisher->since_ns = now_ns;
    work->open_tiles--;
    bool over = work->is_given && work->open_tiles == 0;
    uv_mutex_unlock(&executor->lock);
    if (over) {
        work->ended_ns = now_ns;
        work->on_done(work, work->outcome);
    }
}

static void lead_team(void *context)
{
    struct eb_executor *executor = context;
    eb_bag_parallel_run(&executor->team);
}

struct eb_executor *eb_executor_create(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, unsigned thread_count, uint64_t queue_bytes_max)
{
    if (thread_count > eb_bag_parallel_limit()) {
        return NULL;
    }
    struct eb_executor *executor =
        calloc(1, sizeof *executor + thread_count * sizeof executor->threads[0]);
    if (!executor) {
        return NULL;
    }
    executor->team = (struct eb_bag_team){
        .ops = ops,
        .schedules = schedules,
        .thread_count = thread_count,
        .next = next_tile,
        .done = finish_tile,
        .context = executor,
    };
    executor->queue_bytes_max = queue_bytes_max;
    eb_rate_init(&executor->rate);
    if (uv_mutex_init(&executor->lock) < 0) {
        goto free_executor;
    }
    if (uv_cond_init(&executor->filled) < 0) {
        goto destroy_lock;
    }
    if (uv_thread_create(&executor->leader, lead_team, executor) < 0) {
        goto destroy_condition;
    }
    return executor;

destroy_condition:
    uv_cond_destroy(&executor->filled);
destroy_lock:
    uv_mutex_destroy(&executor->lock);
free_executor:
    free(executor);
    return NULL;
}

void eb_executor_destroy(struct eb_executor *executor)
{
    if (!executor) {
        return;
    }
    uv_mutex_lock(&executor->lock);
    assert(eb_queue_count(&executor->queue) == 0);
    executor->is_stopping = true;
    uv_cond_broadcast(&executor->filled);
    uv_mutex_unlock(&executor->lock);
    uv_thread_join(&executor->leader);
    uv_cond_destroy(&executor->filled);
    uv_mutex_destroy(&executor->lock);
    free(executor);
}

static void reset_work(struct eb_work *work, uint64_t now_ns)
{
    work->queued_ns = now_ns;
    work->begun_ns = 0;
    work->ended_ns = 0;
    work->cut = (struct eb_bag_cut){0};
    work->open_tiles = 0;
    work->outcome = EB_WORK_DONE;
    work->is_given = false;
}

/* Must be called under the lock. */
static struct eb_admission_terms find_terms(const struct eb_executor *executor, uint64_t now_ns)
{
    return (struct eb_admission_terms){
        .queue_bytes_max = executor->queue_bytes_max,
        .bytes_per_us = eb_rate_bytes_per_us(&executor->rate) * executor->team.thread_count,
        .now_ns = now_ns,
    };
}

void eb_executor_set_queue_bytes_max(struct eb_executor *executor, uint64_t queue_bytes_max)
{
    uv_mutex_lock(&executor->lock);
    executor->queue_bytes_max = queue_bytes_max;
    uv_mutex_unlock(&executor->lock);
}

enum eb_admit eb_executor_admit(struct eb_executor *executor, struct eb_work *const works[],
    size_t count, struct eb_admission *out)
{
    uint64_t now_ns = uv_hrtime();
    struct eb_work whole = *works[0];
    whole.weight_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        reset_work(works[i], now_ns);
        whole.weight_bytes += works[i]->weight_bytes;
    }
    uv_mutex_lock(&executor->lock);
    struct eb_admission_terms terms = find_terms(executor, now_ns);
    enum eb_admit admit = eb_admission_decide(&executor->queue, &terms, &whole, out);
    for (size_t i = 0; admit == EB_ADMIT_TAKEN && i < count; i++) {
        eb_queue_push(&executor->queue, works[i]);
    }
    if (admit == EB_ADMIT_TAKEN) {
        uv_cond_signal(&executor->filled);
    }
    uv_mutex_unlock(&executor->lock);
    return admit;
}

uint32_t eb_executor_retry_after_ms(struct eb_executor *executor)
{
    uv_mutex_lock(&executor->lock);
    struct eb_admission_terms terms = find_terms(executor, 0);
    uint32_t ms = eb_admission_retry_after_ms(&executor->queue, &terms, EB_WORK_BATCH);
    uv_mutex_unlock(&executor->lock);
    return ms;
}

void eb_executor_check(struct eb_executor *executor)
{
    uv_mutex_lock(&executor->lock);
    uv_mutex_unlock(&executor->lock);
}

void eb_executor_count(struct eb_executor *executor, struct eb_executor_stats *out)
{
    uv_mutex_lock(&executor->lock);
    *out = (struct eb_executor_stats){
        .threads = executor->team.thread_count,
        .idle_threads = executor->idle_threads,
        .tiles = executor->tiles,
        .busy_ns = executor->busy_ns,
        .bytes_per_us = eb_rate_bytes_per_us(&executor->rate),
    };
    for (unsigned i = 0; i < EB_WORK_PRIORITIES; i++) {
        out->queued_works[i] = executor->queue.levels[i].works;
        out->queued_bytes[i] = executor->queue.levels[i].bytes;
    }
    uv_mutex_unlock(&executor->lock);
}
