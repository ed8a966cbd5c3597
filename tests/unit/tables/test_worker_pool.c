#include "server/tables/worker_pool.h"

#include "tests/lib/test_group.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TASKS 2000

/* What the tasks of a run do. Tasks run on several threads, so that no assert may be in them. */
struct work {
    atomic_uint done[TASKS];
    atomic_uint opened;
    atomic_uint closed;
    unsigned awaited;         /* tasks wait for this number of opened workers */
    atomic_uint at_work_max;  /* most threads at work that a task has counted */
    unsigned open_max;        /* further workers find no memory */
    uint64_t failing;         /* each task from this one on fails */
    uint64_t stalled;         /* this task waits until all others are done; UINT64_MAX: none does */
    uint64_t stalled_told;    /* number of reports of a stall */
    atomic_uint resumed_told; /* number of reports that it is over */
    bool is_resumed_early;    /* there was one before the stalled read ended */
    char stalled_path[32];
};

static void *open_work(void *context, struct eb_failure *failure)
{
    struct work *work = context;
    if (atomic_fetch_add(&work->opened, 1) >= work->open_max) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    return work;
}

static void close_work(void *state)
{
    atomic_fetch_add(&((struct work *)state)->closed, 1);
}

static void sleep_ms(long ms)
{
    struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

static unsigned count_done(const struct work *work)
{
    unsigned count = 0;
    for (size_t i = 0; i < TASKS; i++) {
        count += work->done[i];
    }
    return count;
}

static void note_threads(struct work *work)
{
    unsigned count = eb_worker_pool_count_threads();
    unsigned max = work->at_work_max;
    while (count > max && !atomic_compare_exchange_weak(&work->at_work_max, &max, count)) {
    }
}

static bool run_work(
    void *context, struct eb_pool_worker *worker, uint64_t task, struct eb_failure *failure)
{
    struct work *work = context;
    (void)worker;
    while (work->opened < work->awaited) {
        sleep_ms(1);
    }
    note_threads(work);
    if (task == work->stalled) {
        eb_read_watch_begin("slow file");
        while (count_done(work) < TASKS - 1) {
            sleep_ms(1);
        }
        work->is_resumed_early = atomic_load(&work->resumed_told) > 0;
        eb_read_watch_end();
    }
    if (task >= work->failing) {
        return eb_failure_set(failure, "task %" PRIu64, task);
    }
    atomic_fetch_add(&work->done[task], 1);
    return true;
}

static void on_stalled(void *context, const char *path, uint64_t seconds)
{
    struct work *work = context;
    (void)seconds;
    work->stalled_told++;
    strncpy(work->stalled_path, path, sizeof work->stalled_path - 1);
}

static void on_resumed(void *context)
{
    atomic_fetch_add(&((struct work *)context)->resumed_told, 1);
}

static struct work *make_work(void)
{
    struct work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    work->open_max = UINT32_MAX;
    work->failing = UINT64_MAX;
    work->stalled = UINT64_MAX;
    return work;
}

static bool run_pool(
    struct work *work, unsigned threads, uint64_t tasks, struct eb_failure *failure)
{
    struct eb_load_progress progress = {
        .stalled = on_stalled, .resumed = on_resumed, .context = work};
    struct eb_load_meter meter;
    eb_load_meter_init(&meter, &progress, 0);
    struct eb_worker_pool pool = {
        .thread_count = threads,
        .task_count = tasks,
        .meter = &meter,
        .stall_ms = 10,
        .open = open_work,
        .run = run_work,
        .close = close_work,
        .context = work,
    };
    return eb_worker_pool_run(&pool, failure);
}

static void does_each_task_once(void **state)
{
    (void)state;
    static const unsigned threads[] = {0, 1, 2, 7, EB_WORKER_POOL_THREADS_MAX + 1};
    for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
        struct work *work = make_work();
        struct eb_failure failure;
        assert_true(run_pool(work, threads[k], TASKS, &failure));
        for (size_t i = 0; i < TASKS; i++) {
            assert_int_equal(work->done[i], 1);
        }
        assert_int_equal(work->opened, work->closed);
        assert_in_range(work->opened, 1, EB_WORKER_POOL_THREADS_MAX);
        free(work);
    }
}

static void starts_no_more_workers_than_tasks(void **state)
{
    (void)state;
    struct work *work = make_work();
    struct eb_failure failure;
    assert_true(run_pool(work, 7, 2, &failure));
    assert_in_range(work->opened, 1, 2);
    assert_true(run_pool(work, 7, 0, &failure));
    free(work);
}

static void tells_the_first_failure(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 7; threads++) {
        struct work *work = make_work();
        struct eb_failure failure;
        work->failing = 100;
        assert_false(run_pool(work, threads, TASKS, &failure));
        assert_string_equal(failure.text, "task 100");
        assert_int_equal(count_done(work), 100);
        free(work);
    }
}

static void works_with_the_workers_that_there_are(void **state)
{
    (void)state;
    struct work *work = make_work();
    struct eb_failure failure;
    work->open_max = 1;
    assert_true(run_pool(work, 7, TASKS, &failure));
    assert_int_equal(count_done(work), TASKS);
    free(work);
    work = make_work();
    work->open_max = 0;
    assert_false(run_pool(work, 7, TASKS, &failure));
    assert_string_equal(failure.text, "out of memory");
    free(work);
}

static void replaces_a_stalled_worker(void **state)
{
    (void)state;
    struct work *work = make_work();
    struct eb_failure failure;
    work->stalled = 0;
    assert_true(run_pool(work, 1, TASKS, &failure));
    assert_int_equal(count_done(work), TASKS);
    assert_int_equal(work->stalled_told, 1);
    assert_string_equal(work->stalled_path, "slow file");
    assert_false(work->is_resumed_early);
    assert_int_equal(atomic_load(&work->resumed_told), 1);
    assert_int_equal(work->opened, 2);
    assert_int_equal(work->closed, 2);
    free(work);
}

static void counts_the_threads_at_work(void **state)
{
    (void)state;
    struct work *work = make_work();
    struct eb_failure failure;
    work->awaited = 3;
    assert_int_equal(eb_worker_pool_count_threads(), 0);
    assert_true(run_pool(work, 3, 3, &failure));
    assert_int_equal(work->at_work_max, 3);
    assert_int_equal(eb_worker_pool_count_threads(), 0);
    free(work);
}

/* ---- threads: the linker redirects the calls (--wrap) ---- */

typedef void *start_fn(void *argument);

int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);

static bool are_threads_refused;

int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument)
{
    return are_threads_refused ? EAGAIN
                               : __real_pthread_create(thread, attributes, start, argument);
}

static void works_without_threads(void **state)
{
    (void)state;
    struct work *work = make_work();
    struct eb_failure failure;
    are_threads_refused = true;
    bool is_good = run_pool(work, 7, TASKS, &failure);
    are_threads_refused = false;
    assert_true(is_good);
    assert_int_equal(count_done(work), TASKS);
    assert_int_equal(work->opened, 1);
    assert_int_equal(work->at_work_max, 1);
    free(work);
}

EB_TEST_GROUP(worker_pool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_each_task_once),
        cmocka_unit_test(starts_no_more_workers_than_tasks),
        cmocka_unit_test(tells_the_first_failure),
        cmocka_unit_test(works_with_the_workers_that_there_are),
        cmocka_unit_test(replaces_a_stalled_worker),
        cmocka_unit_test(counts_the_threads_at_work),
        cmocka_unit_test(works_without_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
