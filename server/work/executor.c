#include "server/work/executor.h"

#include "kernels/bag_parallel.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

/* Bytes of rows per tile: some 15 us of gathering, so that the lock around the queue and the end of
 * a request cost little beside it. */
#define TILE_BYTES 131072

struct eb_executor {
    struct eb_bag_team team;
    uint64_t queue_bytes_max;
    uv_thread_t leader; /* the team's first thread, which brings up the others */
    uv_mutex_t lock;
    uv_cond_t filled;
    struct eb_work *first; /* guarded by lock, as are all below */
    struct eb_work *last;
    uint64_t queue_bytes;  /* of works whose last tile has not been given out */
    unsigned idle_threads; /* that wait for a work */
    bool stopping;
};

static void drop_first(struct eb_executor *executor)
{
    struct eb_work *work = executor->first;
    executor->first = work->next;
    if (!executor->first) {
        executor->last = NULL;
    }
    executor->queue_bytes -= work->weight_bytes;
    work->whole = true;
}

static bool is_expired(const struct eb_work *work)
{
    return (work->cancelled && atomic_load_explicit(work->cancelled, memory_order_relaxed)) ||
           (work->deadline_ns != 0 && uv_hrtime() >= work->deadline_ns);
}

static bool is_all_given(struct eb_work *work)
{
    return eb_bag_cut_is_over(work->jobs, work->job_count, &work->cut);
}

static void cut_tile(struct eb_executor *executor, struct eb_bag_tile *tile)
{
    struct eb_work *work = executor->first;
    eb_bag_cut_tile(work->jobs, work->job_count, TILE_BYTES, &work->cut, tile);
    tile->owner = work;
    work->open_tiles++;
    if (is_all_given(work)) {
        drop_first(executor);
    }
}

/* Ends the first work without computing more of it: outside the lock, or with its last open tile.
 */
static void end_first(struct eb_executor *executor, enum eb_work_outcome outcome)
{
    struct eb_work *work = executor->first;
    drop_first(executor);
    work->outcome = outcome;
    if (work->open_tiles > 0) {
        return;
    }
    uv_mutex_unlock(&executor->lock);
    work->on_done(work, work->outcome);
    uv_mutex_lock(&executor->lock);
}

/* Blocks until there is a work. false: the team is to end. */
static bool wait_for_work(struct eb_executor *executor)
{
    executor->idle_threads++;
    while (!executor->first && !executor->stopping) {
        uv_cond_wait(&executor->filled, &executor->lock);
    }
    executor->idle_threads--;
    return executor->first;
}

/* Whether the queue holds one more tile and no other. */
static bool is_last_tile(const struct eb_executor *executor)
{
    const struct eb_work *work = executor->first;
    struct eb_bag_cut cut = work->cut;
    struct eb_bag_tile tile;
    if (work->next || eb_bag_cut_is_over(work->jobs, work->job_count, &cut)) {
        return false;
    }
    eb_bag_cut_tile(work->jobs, work->job_count, TILE_BYTES, &cut, &tile);
    return eb_bag_cut_is_over(work->jobs, work->job_count, &cut);
}

/* A tile is given ahead of its turn only where no thread is idle or will be before it: that one
 * would begin it sooner. What has expired is left to who has the time to say so. */
static bool may_give_ahead(struct eb_executor *executor)
{
    return executor->first && executor->idle_threads == 0 && !is_expired(executor->first) &&
           !is_all_given(executor->first) &&
           (executor->team.thread_count == 1 || !is_last_tile(executor));
}

static bool has_work(struct eb_executor *executor, bool may_wait)
{
    return may_wait ? wait_for_work(executor) : may_give_ahead(executor);
}

static bool next_tile(void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile)
{
    struct eb_executor *executor = context;
    bool found = false;
    (void)thread;
    uv_mutex_lock(&executor->lock);
    while (!found && has_work(executor, may_wait)) {
        if (is_expired(executor->first)) {
            end_first(executor, EB_WORK_EXPIRED);
        } else if (is_all_given(executor->first)) {
            end_first(executor, EB_WORK_DONE);
        } else {
            cut_tile(executor, tile);
            found = true;
        }
    }
    if (found && executor->first) {
        /* One waker at a time: each thread that finds more than it takes calls the next. */
        uv_cond_signal(&executor->filled);
    }
    uv_mutex_unlock(&executor->lock);
    return found;
}

static void finish_tile(void *context, unsigned thread, const struct eb_bag_tile *tile)
{
    struct eb_executor *executor = context;
    struct eb_work *work = tile->owner;
    (void)thread;
    uv_mutex_lock(&executor->lock);
    work->open_tiles--;
    bool over = work->whole && work->open_tiles == 0;
    uv_mutex_unlock(&executor->lock);
    if (over) {
        work->on_done(work, work->outcome);
    }
}

static void lead_team(void *context)
{
    struct eb_executor *executor = context;
    eb_bag_parallel_run(&executor->team);
}

static void free_executor(struct eb_executor *executor)
{
    uv_cond_destroy(&executor->filled);
    uv_mutex_destroy(&executor->lock);
    free(executor);
}

struct eb_executor *eb_executor_create(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, unsigned thread_count, uint64_t queue_bytes_max)
{
    struct eb_executor *executor =
        thread_count <= eb_bag_parallel_limit() ? calloc(1, sizeof *executor) : NULL;
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
    if (uv_mutex_init(&executor->lock) < 0) {
        free(executor);
        return NULL;
    }
    if (uv_cond_init(&executor->filled) < 0) {
        uv_mutex_destroy(&executor->lock);
        free(executor);
        return NULL;
    }
    if (uv_thread_create(&executor->leader, lead_team, executor) < 0) {
        free_executor(executor);
        return NULL;
    }
    return executor;
}

void eb_executor_destroy(struct eb_executor *executor)
{
    if (!executor) {
        return;
    }
    uv_mutex_lock(&executor->lock);
    assert(!executor->first);
    executor->stopping = true;
    uv_cond_broadcast(&executor->filled);
    uv_mutex_unlock(&executor->lock);
    uv_thread_join(&executor->leader);
    free_executor(executor);
}

bool eb_executor_submit(struct eb_executor *executor, struct eb_work *work)
{
    work->next = NULL;
    work->cut = (struct eb_bag_cut){0};
    work->open_tiles = 0;
    work->outcome = EB_WORK_DONE;
    work->whole = false;
    uv_mutex_lock(&executor->lock);
    bool fits = executor->queue_bytes == 0 ||
                executor->queue_bytes + work->weight_bytes <= executor->queue_bytes_max;
    if (fits) {
        if (executor->last) {
            executor->last->next = work;
        } else {
            executor->first = work;
        }
        executor->last = work;
        executor->queue_bytes += work->weight_bytes;
        uv_cond_signal(&executor->filled);
    }
    uv_mutex_unlock(&executor->lock);
    return fits;
}
