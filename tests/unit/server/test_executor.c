#include "server/work/executor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <uv.h>

#include <cmocka.h>

#define ROWS 1000
#define DIM 64
#define BAGS 300
#define WORKS 40

#ifdef __SANITIZE_THREAD__
#define THREADS 1 /* the OpenMP runtime is not built for this sanitizer, and reports falsely */
#else
#define THREADS 3
#endif

static float rows[ROWS][DIM];
static const struct eb_table table = {.rows = rows,
    .row_count = ROWS,
    .row_stride_bytes = sizeof rows[0],
    .row_elements = DIM,
    .storage = EB_STORAGE_F32,
    .type = EB_F32,
    .unknown_row = -1};

/* A work whose bag b is the rows b, b + 1, ..., b + 9. */
struct counted_work {
    struct eb_work work;
    struct eb_bag_job job;
    int64_t *row_list;
    uint32_t starts[BAGS + 1];
    float *out;
    atomic_int ended;
    enum eb_work_outcome outcome;
};

static void on_done(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct counted_work *counted = (struct counted_work *)work;
    counted->outcome = outcome;
    atomic_fetch_add(&counted->ended, 1);
}

static struct counted_work *make_work(void)
{
    struct counted_work *counted = calloc(1, sizeof *counted);
    assert_non_null(counted);
    counted->row_list = malloc(BAGS * 10 * sizeof *counted->row_list);
    counted->out = malloc(BAGS * sizeof rows[0]);
    assert_non_null(counted->row_list);
    assert_non_null(counted->out);
    for (uint32_t b = 0; b < BAGS; b++) {
        counted->starts[b] = b * 10;
        for (uint32_t k = 0; k < 10; k++) {
            counted->row_list[b * 10 + k] = b + k;
        }
    }
    counted->starts[BAGS] = BAGS * 10;
    counted->job = (struct eb_bag_job){.table = &table,
        .rows = counted->row_list,
        .starts = counted->starts,
        .bag_count = BAGS,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
        .gather_bytes = BAGS * 10 * sizeof rows[0],
        .out = (uint8_t *)counted->out,
        .out_stride_bytes = sizeof rows[0]};
    counted->work = (struct eb_work){.jobs = &counted->job,
        .job_count = 1,
        .weight_bytes = counted->job.gather_bytes,
        .on_done = on_done};
    return counted;
}

static void free_work(struct counted_work *counted)
{
    free(counted->row_list);
    free(counted->out);
    free(counted);
}

/* Until `count` works have ended, or a generous while is over. */
static bool wait_for_all(struct counted_work **works, int count)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(30000000000);
    for (int i = 0; i < count; i++) {
        while (atomic_load(&works[i]->ended) == 0) {
            if (uv_hrtime() > deadline_ns) {
                return false;
            }
            uv_sleep(1);
        }
    }
    return true;
}

static struct eb_executor *create(uint64_t queue_bytes_max)
{
    struct eb_executor *executor = eb_executor_create(
        eb_bag_ops_find(NULL), &eb_bag_schedules_default, THREADS, queue_bytes_max);
    assert_non_null(executor);
    return executor;
}

/* Holds the only thread of an executor until the gate is opened. */
static uv_sem_t gate;

static void pass_gate(struct eb_work *work, enum eb_work_outcome outcome)
{
    uv_sem_wait(&gate);
    on_done(work, outcome);
}

/* Tiles that were open of the work that came after one, when that was done. */
static const struct eb_work *watched;
static size_t watched_tiles;

static void watch(struct eb_work *work, enum eb_work_outcome outcome)
{
    watched_tiles = watched->open_tiles;
    on_done(work, outcome);
}

/* Two works that wait behind a gate for one thread. Returns how many tiles of the second that
 * thread had been given when the first was done. */
static size_t count_given_ahead(struct counted_work *first, struct counted_work *second)
{
    struct counted_work *held = make_work();
    struct counted_work *works[] = {held, first, second};
    struct eb_executor *executor =
        eb_executor_create(eb_bag_ops_find(NULL), &eb_bag_schedules_default, 1, UINT64_MAX / 2);
    assert_non_null(executor);
    assert_int_equal(uv_sem_init(&gate, 0), 0);
    held->work.on_done = pass_gate;
    first->work.on_done = watch;
    watched = &second->work;
    for (unsigned i = 0; i < 3; i++) {
        assert_true(eb_executor_submit(executor, &works[i]->work));
    }
    uv_sem_post(&gate);
    assert_true(wait_for_all(works, 3));
    eb_executor_destroy(executor);
    uv_sem_destroy(&gate);
    free_work(held);
    return watched_tiles;
}

static void gives_a_tile_of_the_next_work_ahead(void **state)
{
    (void)state;
    struct counted_work *first = make_work();
    struct counted_work *second = make_work();
    assert_int_equal(count_given_ahead(first, second), 1);
    assert_int_equal(second->outcome, EB_WORK_DONE);
    free_work(first);
    free_work(second);
}

static void gives_nothing_ahead_of_a_work_that_is_cancelled(void **state)
{
    (void)state;
    const atomic_bool is_cancelled = true;
    struct counted_work *first = make_work();
    struct counted_work *second = make_work();
    second->work.cancelled = &is_cancelled;
    assert_int_equal(count_given_ahead(first, second), 0);
    assert_int_equal(second->outcome, EB_WORK_EXPIRED);
    free_work(first);
    free_work(second);
}

static void computes_every_bag_of_every_work_once(void **state)
{
    (void)state;
    struct counted_work *works[WORKS];
    struct eb_executor *executor = create(UINT64_MAX / 2);
    for (int i = 0; i < WORKS; i++) {
        works[i] = make_work();
        assert_true(eb_executor_submit(executor, &works[i]->work));
    }
    assert_true(wait_for_all(works, WORKS));
    for (int i = 0; i < WORKS; i++) {
        assert_int_equal(atomic_load(&works[i]->ended), 1);
        assert_int_equal(works[i]->outcome, EB_WORK_DONE);
        for (int b = 0; b < BAGS; b++) {
            /* Rows hold their own number: sum of b .. b + 9, exact in f32. */
            assert_true(works[i]->out[b * DIM] == (float)(10 * b + 45));
            assert_true(works[i]->out[b * DIM + DIM - 1] == (float)(10 * b + 45));
        }
        free_work(works[i]);
    }
    eb_executor_destroy(executor);
}

static void ends_an_expired_work_without_computing(void **state)
{
    (void)state;
    struct eb_executor *executor = create(UINT64_MAX / 2);
    struct counted_work *late = make_work();
    late->work.deadline_ns = 1;
    late->out[0] = -1.0f;
    assert_true(eb_executor_submit(executor, &late->work));
    assert_true(wait_for_all(&late, 1));
    assert_int_equal(late->outcome, EB_WORK_EXPIRED);
    assert_true(late->out[0] == -1.0f);
    free_work(late);
    eb_executor_destroy(executor);
}

static void ends_a_cancelled_work_without_computing(void **state)
{
    (void)state;
    atomic_bool cancelled = true;
    struct eb_executor *executor = create(UINT64_MAX / 2);
    struct counted_work *work = make_work();
    work->work.cancelled = &cancelled;
    assert_true(eb_executor_submit(executor, &work->work));
    assert_true(wait_for_all(&work, 1));
    assert_int_equal(work->outcome, EB_WORK_EXPIRED);
    free_work(work);
    eb_executor_destroy(executor);
}

static void ends_a_work_of_no_bags(void **state)
{
    (void)state;
    struct eb_executor *executor = create(UINT64_MAX / 2);
    struct counted_work *works[2] = {make_work(), make_work()};
    works[0]->job.bag_count = 0;
    works[0]->job.gather_bytes = 0;
    works[0]->work.weight_bytes = 0;
    works[1]->work.job_count = 0;
    works[1]->work.weight_bytes = 0;
    assert_true(eb_executor_submit(executor, &works[0]->work));
    assert_true(eb_executor_submit(executor, &works[1]->work));
    assert_true(wait_for_all(works, 2));
    assert_int_equal(works[0]->outcome, EB_WORK_DONE);
    assert_int_equal(works[1]->outcome, EB_WORK_DONE);
    free_work(works[0]);
    free_work(works[1]);
    eb_executor_destroy(executor);
}

/* A first work that holds the team until told, so that the queue's bytes are known. */
static uv_sem_t hold;

static void on_done_held(struct eb_work *work, enum eb_work_outcome outcome)
{
    uv_sem_wait(&hold);
    on_done(work, outcome);
}

static void refuses_what_does_not_fit_the_queue(void **state)
{
    (void)state;
    struct counted_work *works[THREADS + 2];
    assert_int_equal(uv_sem_init(&hold, 0), 0);
    for (int i = 0; i < THREADS + 2; i++) {
        works[i] = make_work();
    }
    struct eb_executor *executor = create(works[0]->work.weight_bytes);
    for (int i = 0; i < THREADS; i++) {
        works[i]->work.on_done = on_done_held;
        works[i]->work.job_count = 0;
        works[i]->work.weight_bytes = 0;
        assert_true(eb_executor_submit(executor, &works[i]->work));
    }
    /* The team is held or about to be: what is queued now stays queued. */
    assert_true(eb_executor_submit(executor, &works[THREADS]->work));
    bool fits = eb_executor_submit(executor, &works[THREADS + 1]->work);
    for (int i = 0; i < THREADS; i++) {
        uv_sem_post(&hold);
    }
    assert_true(wait_for_all(works, THREADS + 1));
    assert_false(fits);
    assert_true(eb_executor_submit(executor, &works[THREADS + 1]->work));
    assert_true(wait_for_all(works, THREADS + 2));
    for (int i = 0; i < THREADS + 2; i++) {
        free_work(works[i]);
    }
    uv_sem_destroy(&hold);
    eb_executor_destroy(executor);
}

/* While a work larger than the whole queue waits, the queue is full, not endless. */
static void takes_a_work_that_is_too_large_alone(void **state)
{
    (void)state;
    struct counted_work *works[THREADS + 2];
    assert_int_equal(uv_sem_init(&hold, 0), 0);
    for (int i = 0; i < THREADS + 2; i++) {
        works[i] = make_work();
    }
    struct eb_executor *executor = create(works[0]->work.weight_bytes - 1);
    for (int i = 0; i < THREADS; i++) {
        works[i]->work.on_done = on_done_held;
        works[i]->work.job_count = 0;
        works[i]->work.weight_bytes = 0;
        assert_true(eb_executor_submit(executor, &works[i]->work));
    }
    bool large_fits = eb_executor_submit(executor, &works[THREADS]->work);
    works[THREADS + 1]->work.weight_bytes = 1;
    bool next_fits = eb_executor_submit(executor, &works[THREADS + 1]->work);
    for (int i = 0; i < THREADS; i++) {
        uv_sem_post(&hold);
    }
    assert_true(wait_for_all(works, THREADS + 1));
    assert_true(large_fits);
    assert_false(next_fits);
    for (int i = 0; i < THREADS + 2; i++) {
        free_work(works[i]);
    }
    uv_sem_destroy(&hold);
    eb_executor_destroy(executor);
}

int main(void)
{
    for (int r = 0; r < ROWS; r++) {
        for (int d = 0; d < DIM; d++) {
            rows[r][d] = (float)r;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_every_bag_of_every_work_once),
        cmocka_unit_test(gives_a_tile_of_the_next_work_ahead),
        cmocka_unit_test(gives_nothing_ahead_of_a_work_that_is_cancelled),
        cmocka_unit_test(ends_an_expired_work_without_computing),
        cmocka_unit_test(ends_a_cancelled_work_without_computing),
        cmocka_unit_test(ends_a_work_of_no_bags),
        cmocka_unit_test(refuses_what_does_not_fit_the_queue),
        cmocka_unit_test(takes_a_work_that_is_too_large_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
