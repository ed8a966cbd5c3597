#include "server/publish/worker.h"

#include "proto/list.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>

#include <cmocka.h>

#define JOBS 50

struct fixture_job {
    struct eb_job job;
    int number;
    int *last;
    int priority;
    bool is_elsewhere;
    uv_thread_t owner;
};

static int done_count;

static void run(struct eb_job *job)
{
    struct fixture_job *fixture = EB_CONTAINER_OF(job, struct fixture_job, job);
    uv_thread_t self = uv_thread_self();
    fixture->is_elsewhere = !uv_thread_equal(&self, &fixture->owner);
    fixture->priority = getpriority(PRIO_PROCESS, 0);
    if (*fixture->last == fixture->number - 1) {
        *fixture->last = fixture->number;
    }
}

static void on_job_done(struct eb_job *job)
{
    struct fixture_job *fixture = EB_CONTAINER_OF(job, struct fixture_job, job);
    uv_thread_t self = uv_thread_self();
    assert_true(uv_thread_equal(&self, &fixture->owner));
    done_count++;
    if (done_count == JOBS) {
        eb_worker_stop(job->worker);
    }
}

static void run_jobs(struct fixture_job jobs[JOBS], bool gives_way)
{
    uv_loop_t uv;
    struct eb_worker worker;
    int last = -1;
    done_count = 0;
    assert_int_equal(uv_loop_init(&uv), 0);
    assert_int_equal(eb_worker_start(&worker, &uv), 0);
    if (gives_way) {
        eb_worker_give_way(&worker);
    }
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct fixture_job){.job = {.run = run, .done = on_job_done},
            .number = i,
            .last = &last,
            .owner = uv_thread_self()};
        eb_worker_post(&worker, &jobs[i].job);
    }
    assert_int_equal(uv_run(&uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(done_count, JOBS);
    assert_int_equal(last, JOBS - 1);
    assert_true(jobs[0].is_elsewhere);
    assert_int_equal(uv_loop_close(&uv), 0);
}

static void does_one_job_after_the_other_elsewhere(void **state)
{
    (void)state;
    static struct fixture_job jobs[JOBS];
    run_jobs(jobs, false);
    assert_int_equal(jobs[0].priority, getpriority(PRIO_PROCESS, 0));
}

static void does_them_at_the_lowest_priority_once_it_gives_way(void **state)
{
    (void)state;
    static struct fixture_job jobs[JOBS];
    run_jobs(jobs, true);
    assert_int_equal(jobs[0].priority, 19);
}

static void ends_without_having_had_a_job(void **state)
{
    (void)state;
    uv_loop_t uv;
    struct eb_worker worker;
    assert_int_equal(uv_loop_init(&uv), 0);
    assert_int_equal(eb_worker_start(&worker, &uv), 0);
    eb_worker_stop(&worker);
    assert_int_equal(uv_run(&uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&uv), 0);
}

EB_TEST_GROUP(worker)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_one_job_after_the_other_elsewhere),
        cmocka_unit_test(does_them_at_the_lowest_priority_once_it_gives_way),
        cmocka_unit_test(ends_without_having_had_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
