#include "server/tables/worker_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define MS_PER_S 1000
#define NS_PER_MS 1000000
/* Longest time between two checks of the workers. */
#define WATCH_MS 1000

/* Threads that are in run_pool_worker. */
static atomic_uint threads_at_work;

struct pool_run;

struct pool_thread {
    struct pool_run *run;
    struct eb_pool_worker worker;
    pthread_t thread;
    uint64_t reported_since_ms; /* start of the read that was reported as stalled; 0 if none was */
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

static uint64_t pool_now_ms(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    assert(rc == 0);
    (void)rc;
    return (uint64_t)now.tv_sec * MS_PER_S + (uint64_t)now.tv_nsec / NS_PER_MS;
}

unsigned eb_worker_pool_count_threads(void)
{
    return atomic_load_explicit(&threads_at_work, memory_order_relaxed);
}

void eb_pool_worker_begin_read(struct eb_pool_worker *worker, const char *path)
{
    atomic_store_explicit(&worker->path, path, memory_order_relaxed);
    atomic_store_explicit(&worker->reading_since_ms, pool_now_ms(), memory_order_release);
}

void eb_pool_worker_end_read(struct eb_pool_worker *worker)
{
    atomic_store_explicit(&worker->reading_since_ms, 0, memory_order_relaxed);
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

/* Reports that the worker's stalled read has ended, if there was one. */
static void tell_resumed(const struct pool_run *run, struct pool_thread *thread)
{
    if (thread->reported_since_ms != 0) {
        thread->reported_since_ms = 0;
        eb_load_meter_resume(run->pool->meter);
    }
}

/* Reports a worker's read if it has taken long. Returns whether it has just been reported. */
static bool tell_stalled(const struct pool_run *run, struct pool_thread *thread)
{
    const struct eb_worker_pool *pool = run->pool;
    uint64_t stall_ms = pool->stall_ms > 0 ? pool->stall_ms : EB_WORKER_POOL_STALL_MS;
    uint64_t since_ms =
        atomic_load_explicit(&thread->worker.reading_since_ms, memory_order_acquire);
    uint64_t now_ms = pool_now_ms();
    if (since_ms != thread->reported_since_ms) {
        tell_resumed(run, thread);
    }
    if (since_ms == 0 || since_ms == thread->reported_since_ms || now_ms - since_ms < stall_ms) {
        return false;
    }
    thread->reported_since_ms = since_ms;
    eb_load_meter_stall(pool->meter,
        atomic_load_explicit(&thread->worker.path, memory_order_relaxed),
        (now_ms - since_ms) / MS_PER_S);
    return true;
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
        tell_resumed(run, &threads[i]);
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

bool eb_worker_pool_run(const struct eb_worker_pool *pool, struct eb_failure *failure)
{
    if (pool->task_count == 0) {
        return true;
    }
    unsigned wanted = pool->thread_count > 0 ? pool->thread_count : 1;
    wanted = wanted < EB_WORKER_POOL_THREADS_MAX ? wanted : EB_WORKER_POOL_THREADS_MAX;
    wanted = wanted < pool->task_count ? wanted : (unsigned)pool->task_count;
    struct pool_run run;
    struct pool_thread *threads = calloc(2 * (size_t)wanted, sizeof *threads);
    if (!threads || !init_pool_run(&run, pool)) {
        free(threads);
        return eb_failure_set(failure, "out of memory");
    }
    run_on_threads(&run, threads, wanted);
    bool is_good = run.opened_count > 0 && atomic_load(&run.failed) == UINT64_MAX;
    if (!is_good) {
        *failure = run.failure;
    }
    (void)pthread_cond_destroy(&run.changed);
    (void)pthread_mutex_destroy(&run.mutex);
    free(threads);
    return is_good;
}
