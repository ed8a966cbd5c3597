#include "server/tables/worker_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define MS_PER_S 1000
/* Longest time between two checks of the workers. */
#define WATCH_MS 1000

/* Threads that are in run_pool_worker. */
static atomic_uint threads_at_work;

struct pool_run;

struct pool_thread {
    struct pool_run *run;
    struct eb_pool_worker worker;
    pthread_t thread;
};

/* The state of one run. */
struct pool_run {
    const struct eb_worker_pool *pool;
    atomic_uint_fast64_t next;   /* task that is handed out next */
    atomic_uint_fast64_t failed; /* least task that has failed; UINT64_MAX if none has */
    pthread_mutex_t mutex;       /* guards the members below */
    pthread_cond_t changed;
    unsigned working_count;    /* threads that have not ended */
    unsigned opened_count;     /* threads that could be made ready */
    struct eb_failure failure; /* of `failed`, or of the last `open` that failed */
};

unsigned eb_worker_pool_count_threads(void)
{
    return atomic_load_explicit(&threads_at_work, memory_order_relaxed);
}

/* ---- workers ---- */

/* Keeps the failure of a task, unless an earlier task has failed too. */
static void note_failed_task(struct pool_run *run, uint64_t task, const struct eb_failure *failure)
{
    pthread_mutex_lock(&run->mutex);
    if (task < atomic_load(&run->failed)) {
        atomic_store(&run->failed, task);
        run->failure = *failure;
    }
    pthread_mutex_unlock(&run->mutex);
}

/* Tasks are handed out in order. So when one has failed, all before it have been handed out, and
 * each of them is done before the run ends. */
static void run_tasks(struct pool_run *run, struct eb_pool_worker *worker)
{
    const struct eb_worker_pool *pool = run->pool;
    struct eb_failure failure;
    while (atomic_load_explicit(&run->failed, memory_order_relaxed) == UINT64_MAX) {
        uint64_t task = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
        if (task >= pool->task_count) {
            return;
        }
        if (!pool->run(pool->context, worker, task, &failure)) {
            note_failed_task(run, task, &failure);
        }
    }
}

static void run_pool_worker(struct pool_run *run, struct eb_pool_worker *worker)
{
    const struct eb_worker_pool *pool = run->pool;
    struct eb_failure failure;
    atomic_fetch_add_explicit(&threads_at_work, 1, memory_order_relaxed);
    worker->state = pool->open(pool->context, &failure);
    pthread_mutex_lock(&run->mutex);
    if (worker->state) {
        run->opened_count++;
    } else if (atomic_load(&run->failed) == UINT64_MAX) {
        run->failure = failure;
    }
    pthread_mutex_unlock(&run->mutex);
    if (worker->state) {
        run_tasks(run, worker);
        pool->close(worker->state);
    }
    atomic_fetch_sub_explicit(&threads_at_work, 1, memory_order_relaxed);
}

static void *run_pool_thread(void *context)
{
    struct pool_thread *thread = context;
    struct pool_run *run = thread->run;
    eb_read_watch_attach(&thread->worker.watch);
    run_pool_worker(run, &thread->worker);
    pthread_mutex_lock(&run->mutex);
    run->working_count--;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

/* Starts the next thread. Returns whether the system has allowed it. */
static bool start_pool_thread(struct pool_run *run, struct pool_thread *thread)
{
    thread->run = run;
    pthread_mutex_lock(&run->mutex);
    run->working_count++;
    bool is_started = pthread_create(&thread->thread, NULL, run_pool_thread, thread) == 0;
    run->working_count -= !is_started;
    pthread_mutex_unlock(&run->mutex);
    if (is_started) {
        (void)pthread_setname_np(thread->thread, "embag-load");
    }
    return is_started;
}

/* ---- the calling thread ---- */

/* Waits until a worker ends, or for WATCH_MS. Returns whether workers are left. */
static bool await_workers(struct pool_run *run)
{
    struct timespec until;
    int rc = clock_gettime(CLOCK_MONOTONIC_COARSE, &until);
    assert(rc == 0);
    (void)rc;
    until.tv_sec += WATCH_MS / MS_PER_S;
    pthread_mutex_lock(&run->mutex);
    if (run->working_count > 0) {
        (void)pthread_cond_timedwait(&run->changed, &run->mutex, &until);
    }
    bool is_any_left = run->working_count > 0;
    pthread_mutex_unlock(&run->mutex);
    return is_any_left;
}

/* Reports a worker's read if it has taken long, or that such a read has ended. Returns whether it
 * has just been reported. */
static bool tell_stalled(const struct pool_run *run, struct pool_thread *thread)
{
    const struct eb_worker_pool *pool = run->pool;
    uint64_t stall_ms = pool->stall_ms > 0 ? pool->stall_ms : EB_READ_WATCH_STALL_MS;
    struct eb_read_stall stall;
    enum eb_read_watch_event event = eb_read_watch_check(&thread->worker.watch, stall_ms, &stall);
    if (event == EB_READ_WATCH_STALLED) {
        eb_load_meter_stall(pool->meter, stall.path, stall.seconds);
    } else if (event == EB_READ_WATCH_RESUMED) {
        eb_load_meter_resume(pool->meter);
    }
    return event == EB_READ_WATCH_STALLED;
}

/* Watches the workers until all have ended. A stalled one is replaced, at most once for each of the
 * `wanted` ones. Returns how many threads have been started in all. */
static unsigned watch_workers(
    struct pool_run *run, struct pool_thread *threads, unsigned started, unsigned wanted)
{
    while (await_workers(run)) {
        for (unsigned i = 0; i < started; i++) {
            if (tell_stalled(run, &threads[i]) && started < 2 * wanted) {
                started += start_pool_thread(run, &threads[started]);
            }
        }
    }
    return started;
}

static void run_on_threads(struct pool_run *run, struct pool_thread *threads, unsigned wanted)
{
    unsigned started = 0;
    while (started < wanted && start_pool_thread(run, &threads[started])) {
        started++;
    }
    if (started == 0) {
        run_pool_worker(run, &threads[0].worker);
        return;
    }
    started = watch_workers(run, threads, started, wanted);
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        (void)tell_stalled(run, &threads[i]);
    }
}

/* Prepares the run. Returns false if out of memory. */
static bool init_pool_run(struct pool_run *run, const struct eb_worker_pool *pool)
{
    pthread_condattr_t attributes;
    *run = (struct pool_run){.pool = pool};
    atomic_init(&run->failed, UINT64_MAX);
    if (pthread_mutex_init(&run->mutex, NULL) != 0) {
        return false;
    }
    bool has_attributes = pthread_condattr_init(&attributes) == 0;
    bool is_good = has_attributes && pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                   pthread_cond_init(&run->changed, &attributes) == 0;
    if (has_attributes) {
        (void)pthread_condattr_destroy(&attributes);
    }
    if (!is_good) {
        (void)pthread_mutex_destroy(&run->mutex);
    }
    return is_good;
}

static void free_pool_threads(struct pool_thread *threads, size_t count)
{
    for (size_t i = 0; threads && i < count; i++) {
        eb_read_watch_deinit(&threads[i].worker.watch);
    }
    free(threads);
}

/* Returns `count` threads that are not started, or NULL if out of memory. */
static struct pool_thread *make_pool_threads(size_t count)
{
    struct pool_thread *threads = calloc(count, sizeof *threads);
    for (size_t i = 0; threads && i < count; i++) {
        if (!eb_read_watch_init(&threads[i].worker.watch)) {
            free_pool_threads(threads, i);
            return NULL;
        }
    }
    return threads;
}

bool eb_worker_pool_run(const struct eb_worker_pool *pool, struct eb_failure *failure)
{
    if (pool->task_count == 0) {
        return true;
    }
    unsigned wanted = pool->thread_count > 0 ? pool->thread_count : 1;
    wanted = wanted < EB_WORKER_POOL_THREADS_MAX ? wanted : EB_WORKER_POOL_THREADS_MAX;
    wanted = wanted < pool->task_count ? wanted : (unsigned)pool->task_count;
    struct pool_run run;
    size_t thread_count = 2 * (size_t)wanted;
    struct pool_thread *threads = make_pool_threads(thread_count);
    if (!threads || !init_pool_run(&run, pool)) {
        free_pool_threads(threads, thread_count);
        return eb_failure_set(failure, "out of memory");
    }
    run_on_threads(&run, threads, wanted);
    bool is_good = run.opened_count > 0 && atomic_load(&run.failed) == UINT64_MAX;
    if (!is_good) {
        *failure = run.failure;
    }
    (void)pthread_cond_destroy(&run.changed);
    (void)pthread_mutex_destroy(&run.mutex);
    free_pool_threads(threads, thread_count);
    return is_good;
}
