#include "server/work/executor.h"

#include "tests/lib/test_group.h"

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
#define THREADS 1 /* avoids false reports: the OpenMP runtime is not built for this sanitizer */
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

/* A work item whose bag b consists of the rows b, b + 1, ..., b + 9. */
struct counted_work {
    struct eb_work work;
    struct eb_bag_job job;
    int64_t *row_list;
    uint32_t starts[BAGS + 1];
    float *out;
    atomic_int ended;
    int place; /* position in the order in which all items have ended */
    enum eb_work_outcome outcome;
};

static atomic_int places;

static void on_done(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct counted_work *counted = EB_CONTAINER_OF(work, struct counted_work, work);
    counted->outcome = outcome;
    counted->place = atomic_fetch_add(&places, 1);
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

/* Waits until `count` items have ended, for at most 30 s. Returns whether they have. */
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

/* ---- the executor of a test ---- */

/* On the heap, because the executor's threads may outlive a failed test. */
struct team {
    struct eb_executor *executor; /* NULL: not created, or destroyed */
    struct counted_work *held;    /* the item that holds the thread of set_up_held, or NULL */
    atomic_bool is_cancelled;     /* always true; for items that a test cancels */
};

static int taken_count;  /* work items admitted by the executor, except `held` */
static uv_sem_t gate;    /* holds a thread until posted */
static uv_sem_t arrived; /* posted when the thread of set_up_held reaches the gate */

static void create_executor(struct team *team, unsigned threads, uint64_t queue_bytes_max)
{
    team->executor = eb_executor_create(
        eb_bag_ops_find(NULL), &eb_bag_schedules_default, threads, queue_bytes_max);
    assert_non_null(team->executor);
}

static enum eb_admit admit_works(
    struct team *team, struct eb_work **works, size_t count, struct eb_admission *told)
{
    enum eb_admit verdict = eb_executor_admit(team->executor, works, count, told);
    taken_count += verdict == EB_ADMIT_TAKEN ? (int)count : 0;
    return verdict;
}

static enum eb_admit admit_one(
    struct team *team, struct counted_work *counted, struct eb_admission *told)
{
    struct eb_work *work = &counted->work;
    return admit_works(team, &work, 1, told);
}

/* Submits a work item. Returns whether the executor has admitted it. */
static bool submit(struct team *team, struct counted_work *counted)
{
    struct eb_admission told;
    return admit_one(team, counted, &told) == EB_ADMIT_TAKEN;
}

static int set_up(void **state)
{
    struct team *team = calloc(1, sizeof *team);
    assert_non_null(team);
    *state = team;
    atomic_store(&team->is_cancelled, true);
    assert_int_equal(uv_sem_init(&gate, 0), 0);
    assert_int_equal(uv_sem_init(&arrived, 0), 0);
    atomic_store(&places, 0);
    taken_count = 0;
    return 0;
}

static void destroy_executor(struct team *team)
{
    eb_executor_destroy(team->executor);
    team->executor = NULL;
}

static void open_gate(void)
{
    for (int i = 0; i < THREADS; i++) {
        uv_sem_post(&gate);
    }
}

static int tear_down(void **state)
{
    struct team *team = *state;
    /* The work items of a failed test must still end, and nobody else waits for them. */
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(30000000000);
    open_gate();
    while (atomic_load(&places) < taken_count && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    destroy_executor(team);
    uv_sem_destroy(&arrived);
    uv_sem_destroy(&gate);
    if (team->held) {
        free_work(team->held);
    }
    free(team);
    return 0;
}

/* ---- one thread, held until all items wait ---- */

static void come_to_gate(struct eb_work *work, enum eb_work_outcome outcome)
{
    (void)work;
    (void)outcome;
    uv_sem_post(&arrived);
    uv_sem_wait(&gate);
}

static int set_up_held(void **state)
{
    set_up(state);
    struct team *team = *state;
    create_executor(team, 1, UINT64_MAX / 2);
    team->held = make_work();
    team->held->work.on_done = come_to_gate;
    team->held->work.job_count = 0;
    team->held->work.weight_bytes = 0;
    assert_true(submit(team, team->held));
    taken_count = 0;
    uv_sem_wait(&arrived);
    return 0;
}

/* Opens the gate, waits for the items, and ends the executor. */
static void release_team(struct team *team, struct counted_work **works, int count)
{
    open_gate();
    assert_true(wait_for_all(works, count));
    destroy_executor(team);
}

/* The second of two items, and how many tiles of it were open when the first was done. */
static const struct eb_work *watched;
static size_t watched_tiles;

static void watch(struct eb_work *work, enum eb_work_outcome outcome)
{
    watched_tiles = watched->open_tiles;
    on_done(work, outcome);
}

/* Queues two items for the held thread. Returns how many tiles of the second item the thread had
 * been given when the first item was done. */
static size_t count_given_ahead(
    struct team *team, struct counted_work *first, struct counted_work *second)
{
    struct counted_work *works[] = {first, second};
    first->work.on_done = watch;
    watched = &second->work;
    assert_true(submit(team, first));
    assert_true(submit(team, second));
    release_team(team, works, 2);
    return watched_tiles;
}

static void gives_a_tile_of_the_next_work_ahead(void **state)
{
    struct team *team = *state;
    struct counted_work *first = make_work();
    struct counted_work *second = make_work();
    assert_int_equal(count_given_ahead(team, first, second), 1);
    assert_int_equal(second->outcome, EB_WORK_DONE);
    free_work(first);
    free_work(second);
}

/* Makes a work item of one bag with two tiles. Each tile has half of the columns, which are two
 * quanta. */
static struct counted_work *make_giant(void)
{
    uint32_t count = 4 * EB_QUEUE_QUANTUM_BYTES / sizeof rows[0];
    struct counted_work *counted = make_work();
    free(counted->row_list);
    counted->row_list = calloc(count, sizeof *counted->row_list);
    assert_non_null(counted->row_list);
    counted->starts[1] = count;
    counted->job.rows = counted->row_list;
    counted->job.bag_count = 1;
    counted->job.gather_bytes = count * sizeof rows[0];
    counted->work.weight_bytes = counted->job.gather_bytes;
    return counted;
}

static void gives_nothing_ahead_of_a_tile_that_takes_long(void **state)
{
    struct team *team = *state;
    struct counted_work *first = make_giant();
    struct counted_work *second = make_work();
    assert_int_equal(count_given_ahead(team, first, second), 0);
    assert_int_equal(first->outcome, EB_WORK_DONE);
    assert_int_equal(second->outcome, EB_WORK_DONE);
    free_work(first);
    free_work(second);
}

static void gives_nothing_ahead_of_a_work_that_is_cancelled(void **state)
{
    struct team *team = *state;
    struct counted_work *first = make_work();
    struct counted_work *second = make_work();
    second->work.cancelled = &team->is_cancelled;
    assert_int_equal(count_given_ahead(team, first, second), 0);
    assert_int_equal(second->outcome, EB_WORK_EXPIRED);
    free_work(first);
    free_work(second);
}

static void computes_every_bag_of_every_work_once(void **state)
{
    struct team *team = *state;
    struct counted_work *works[WORKS];
    create_executor(team, THREADS, UINT64_MAX / 2);
    for (int i = 0; i < WORKS; i++) {
        works[i] = make_work();
        works[i]->work.source = &rows[i % 5];
        works[i]->work.priority = i % 3 == 0 ? EB_WORK_BATCH : EB_WORK_INTERACTIVE;
        assert_true(submit(team, works[i]));
    }
    assert_true(wait_for_all(works, WORKS));
    for (int i = 0; i < WORKS; i++) {
        assert_int_equal(atomic_load(&works[i]->ended), 1);
        assert_int_equal(works[i]->outcome, EB_WORK_DONE);
        for (int b = 0; b < BAGS; b++) {
            /* Each row holds its own number. The sum of b, b + 1, ..., b + 9 is exact in f32. */
            assert_true(works[i]->out[b * DIM] == (float)(10 * b + 45));
            assert_true(works[i]->out[b * DIM + DIM - 1] == (float)(10 * b + 45));
        }
        free_work(works[i]);
    }
}

static void ends_an_expired_work_without_computing(void **state)
{
    struct team *team = *state;
    create_executor(team, THREADS, UINT64_MAX / 2);
    struct counted_work *late = make_work();
    late->work.deadline_ns = 1;
    late->out[0] = -1.0f;
    assert_true(submit(team, late));
    assert_true(wait_for_all(&late, 1));
    assert_int_equal(late->outcome, EB_WORK_EXPIRED);
    assert_true(late->out[0] == -1.0f);
    free_work(late);
}

static void ends_a_cancelled_work_without_computing(void **state)
{
    struct team *team = *state;
    create_executor(team, THREADS, UINT64_MAX / 2);
    struct counted_work *work = make_work();
    work->work.cancelled = &team->is_cancelled;
    assert_true(submit(team, work));
    assert_true(wait_for_all(&work, 1));
    assert_int_equal(work->outcome, EB_WORK_EXPIRED);
    free_work(work);
}

static void ends_a_work_of_no_bags(void **state)
{
    struct team *team = *state;
    create_executor(team, THREADS, UINT64_MAX / 2);
    struct counted_work *works[2] = {make_work(), make_work()};
    works[0]->job.bag_count = 0;
    works[0]->job.gather_bytes = 0;
    works[0]->work.weight_bytes = 0;
    works[1]->work.job_count = 0;
    works[1]->work.weight_bytes = 0;
    assert_true(submit(team, works[0]));
    assert_true(submit(team, works[1]));
    assert_true(wait_for_all(works, 2));
    assert_int_equal(works[0]->outcome, EB_WORK_DONE);
    assert_int_equal(works[1]->outcome, EB_WORK_DONE);
    free_work(works[0]);
    free_work(works[1]);
}

/* Keeps a thread until the gate opens, so that the number of bytes in the queue is known. */
static void on_done_held(struct eb_work *work, enum eb_work_outcome outcome)
{
    uv_sem_wait(&gate);
    on_done(work, outcome);
}

static void refuses_what_does_not_fit_the_queue(void **state)
{
    struct team *team = *state;
    struct counted_work *works[THREADS + 2];
    for (int i = 0; i < THREADS + 2; i++) {
        works[i] = make_work();
    }
    create_executor(team, THREADS, works[0]->work.weight_bytes);
    for (int i = 0; i < THREADS; i++) {
        works[i]->work.on_done = on_done_held;
        works[i]->work.job_count = 0;
        works[i]->work.weight_bytes = 0;
        assert_true(submit(team, works[i]));
    }
    /* Every thread is held or about to be, so what is queued now stays queued. */
    assert_true(submit(team, works[THREADS]));
    bool fits = submit(team, works[THREADS + 1]);
    open_gate();
    assert_true(wait_for_all(works, THREADS + 1));
    assert_false(fits);
    assert_true(submit(team, works[THREADS + 1]));
    assert_true(wait_for_all(works, THREADS + 2));
    for (int i = 0; i < THREADS + 2; i++) {
        free_work(works[i]);
    }
}

static void takes_more_when_the_queue_may_be_longer(void **state)
{
    struct team *team = *state;
    struct counted_work *works[2] = {make_work(), make_work()};
    uint64_t bytes = works[0]->work.weight_bytes;
    eb_executor_set_queue_bytes_max(team->executor, 2 * bytes - 1);
    bool is_first = submit(team, works[0]);
    bool fits_before = submit(team, works[1]);
    eb_executor_set_queue_bytes_max(team->executor, 2 * bytes);
    bool fits = submit(team, works[1]);
    release_team(team, works, 2);
    assert_true(is_first);
    assert_false(fits_before);
    assert_true(fits);
    free_work(works[0]);
    free_work(works[1]);
}

/* While an item larger than the whole queue waits, the queue is full rather than unbounded. */
static void takes_a_work_that_is_too_large_alone(void **state)
{
    struct team *team = *state;
    struct counted_work *works[THREADS + 2];
    for (int i = 0; i < THREADS + 2; i++) {
        works[i] = make_work();
    }
    create_executor(team, THREADS, works[0]->work.weight_bytes - 1);
    for (int i = 0; i < THREADS; i++) {
        works[i]->work.on_done = on_done_held;
        works[i]->work.job_count = 0;
        works[i]->work.weight_bytes = 0;
        assert_true(submit(team, works[i]));
    }
    bool large_fits = submit(team, works[THREADS]);
    works[THREADS + 1]->work.weight_bytes = 1;
    bool next_fits = submit(team, works[THREADS + 1]);
    open_gate();
    assert_true(wait_for_all(works, THREADS + 1));
    assert_true(large_fits);
    assert_false(next_fits);
    for (int i = 0; i < THREADS + 2; i++) {
        free_work(works[i]);
    }
}

static struct counted_work *submit_work(struct team *team, const void *source, unsigned priority)
{
    struct counted_work *counted = make_work();
    counted->work.source = source;
    counted->work.priority = priority;
    assert_true(submit(team, counted));
    return counted;
}

static void runs_batch_works_after_interactive_ones(void **state)
{
    struct team *team = *state;
    struct counted_work *works[6];
    for (unsigned i = 0; i < 6; i++) {
        works[i] = submit_work(team, NULL, i % 2 == 0 ? EB_WORK_BATCH : EB_WORK_INTERACTIVE);
    }
    release_team(team, works, 6);
    const int places_due[] = {3, 0, 4, 1, 5, 2};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(works[i]->place, places_due[i]);
        assert_int_equal(works[i]->outcome, EB_WORK_DONE);
        free_work(works[i]);
    }
}

static void serves_others_beside_a_source_that_floods(void **state)
{
    struct team *team = *state;
    static const char sources[2];
    struct counted_work *works[12];
    for (int i = 0; i < 12; i++) {
        works[i] = submit_work(team, &sources[i < 10 ? 0 : 1], EB_WORK_INTERACTIVE);
    }
    /* A quantum is less than an item, so when an item of one source ends, one of the other source
     * has begun. */
    assert_true(works[0]->work.weight_bytes > EB_QUEUE_QUANTUM_BYTES);
    release_team(team, works, 12);
    assert_int_equal(works[0]->place, 0);
    assert_int_equal(works[10]->place, 1);
    assert_in_range(works[11]->place, 2, 4);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(works[i]->outcome, EB_WORK_DONE);
        free_work(works[i]);
    }
}

static void ends_what_is_cancelled_before_it_would_be_next(void **state)
{
    struct team *team = *state;
    struct counted_work *works[WORKS];
    for (int i = 0; i < WORKS; i++) {
        works[i] = make_work();
        works[i]->work.cancelled = i == WORKS - 1 ? &team->is_cancelled : NULL;
        assert_true(submit(team, works[i]));
    }
    release_team(team, works, WORKS);
    /* Every item has several tiles, and before each tile the executor checks some items for
     * expiry. */
    assert_int_equal(works[WORKS - 1]->outcome, EB_WORK_EXPIRED);
    assert_true(works[WORKS - 1]->place < WORKS / EB_QUEUE_SWEEP_WORKS);
    for (int i = 0; i < WORKS; i++) {
        free_work(works[i]);
    }
}

static void refuses_what_cannot_meet_its_deadline(void **state)
{
    struct team *team = *state;
    struct eb_admission told = {0};
    struct counted_work *works[] = {make_work(), make_work(), make_work()};
    struct counted_work *late = make_work();
    /* works[2] is admitted because nothing waits yet. Its deadline passes in the queue. */
    works[2]->work.deadline_ns = uv_hrtime() + 1;
    /* works[0] takes minutes at any speed that the executor may assume. */
    works[0]->work.weight_bytes = UINT64_C(1) << 42;
    assert_int_equal(eb_executor_retry_after_ms(team->executor), 1);
    bool is_taken = submit(team, works[2]);
    assert_int_equal(admit_one(team, works[0], &told), EB_ADMIT_TAKEN);
    assert_int_equal(told.retry_after_ms, 0);
    assert_true(eb_executor_retry_after_ms(team->executor) > 60000);
    late->work.deadline_ns = uv_hrtime() + 1000000000;
    enum eb_admit verdict = admit_one(team, late, &told);
    uint32_t retry_after_ms = told.retry_after_ms;
    /* A batch item would start even later. An item without a deadline is never late. */
    late->work.priority = EB_WORK_BATCH;
    enum eb_admit batch_verdict = admit_one(team, late, &told);
    enum eb_admit endless_verdict = admit_one(team, works[1], &told);
    release_team(team, works, 3);
    assert_int_equal(verdict, EB_ADMIT_LATE);
    assert_true(retry_after_ms > 1000);
    assert_int_equal(batch_verdict, EB_ADMIT_LATE);
    assert_int_equal(endless_verdict, EB_ADMIT_TAKEN);
    assert_true(is_taken);
    assert_int_equal(works[2]->outcome, EB_WORK_EXPIRED);
    assert_int_equal(atomic_load(&late->ended), 0);
    for (int i = 0; i < 3; i++) {
        free_work(works[i]);
    }
    free_work(late);
}

static void says_when_a_work_was_queued_begun_and_ended(void **state)
{
    struct team *team = *state;
    uint64_t start_ns = uv_hrtime();
    struct counted_work *works[] = {make_work(), make_work()};
    works[1]->work.cancelled = &team->is_cancelled;
    for (int i = 0; i < 2; i++) {
        /* The value that an earlier run would have left. */
        works[i]->work.begun_ns = 1;
        assert_true(submit(team, works[i]));
    }
    uint64_t released_ns = uv_hrtime();
    release_team(team, works, 2);
    const struct eb_work *done = &works[0]->work;
    const struct eb_work *expired = &works[1]->work;
    assert_true(start_ns <= done->queued_ns && done->queued_ns <= released_ns);
    assert_true(released_ns <= done->begun_ns && done->begun_ns <= done->ended_ns);
    assert_true(done->ended_ns <= uv_hrtime());
    assert_int_equal(expired->begun_ns, 0);
    assert_true(expired->queued_ns <= expired->ended_ns);
    free_work(works[0]);
    free_work(works[1]);
}

static void decides_as_one_on_works_that_come_together(void **state)
{
    struct team *team = *state;
    struct eb_admission told;
    create_executor(team, THREADS, 1);
    struct counted_work *together[] = {make_work(), make_work(), make_work()};
    struct eb_work *works[] = {&together[0]->work, &together[1]->work, &together[2]->work};
    for (int i = 0; i < 3; i++) {
        works[i]->source = team;
    }
    /* If the items were admitted one by one, the second would find the first in a queue that is
     * too small for both. */
    assert_int_equal(admit_works(team, works, 3, &told), EB_ADMIT_TAKEN);
    assert_true(wait_for_all(together, 3));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(together[i]->outcome, EB_WORK_DONE);
        free_work(together[i]);
    }
}

EB_TEST_GROUP(executor)
{
    for (int r = 0; r < ROWS; r++) {
        for (int d = 0; d < DIM; d++) {
            rows[r][d] = (float)r;
        }
    }
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define HELD(test) cmocka_unit_test_setup_teardown(test, set_up_held, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(decides_as_one_on_works_that_come_together),
        FIXTURE(computes_every_bag_of_every_work_once),
        HELD(gives_a_tile_of_the_next_work_ahead),
        HELD(gives_nothing_ahead_of_a_tile_that_takes_long),
        HELD(gives_nothing_ahead_of_a_work_that_is_cancelled),
        FIXTURE(ends_an_expired_work_without_computing),
        FIXTURE(ends_a_cancelled_work_without_computing),
        FIXTURE(ends_a_work_of_no_bags),
        FIXTURE(refuses_what_does_not_fit_the_queue),
        HELD(takes_more_when_the_queue_may_be_longer),
        FIXTURE(takes_a_work_that_is_too_large_alone),
        HELD(runs_batch_works_after_interactive_ones),
        HELD(serves_others_beside_a_source_that_floods),
        HELD(ends_what_is_cancelled_before_it_would_be_next),
        HELD(refuses_what_cannot_meet_its_deadline),
        HELD(says_when_a_work_was_queued_begun_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
