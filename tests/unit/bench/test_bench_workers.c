#include "tests/bench/bench_workers.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#define THREADS 3
#define READINGS 5
#define CALLS 10

/* The calls that one thread got. */
struct log {
    uint64_t positions[READINGS];
    unsigned prepared;
    unsigned run;
};

/* Detect runs that begin while a thread is still preparing. */
static atomic_int preparing;
static atomic_bool was_early;

static void prepare(void *self, uint64_t position)
{
    struct log *log = self;
    atomic_fetch_add(&preparing, 1);
    log->positions[log->prepared++] = position;
    atomic_fetch_sub(&preparing, 1);
}

static void run(void *self)
{
    struct log *log = self;
    atomic_store(&was_early, atomic_load(&was_early) || atomic_load(&preparing) != 0);
    log->run++;
}

static void takes_readings_in_all_threads(void **state)
{
    (void)state;
    struct log logs[THREADS] = {0};
    struct eb_bench_runner runners[THREADS];
    struct eb_bench_turn turn = {.position = 100, .call_count = CALLS, .reading_count = READINGS};
    for (unsigned i = 0; i < THREADS; i++) {
        runners[i] = (struct eb_bench_runner){&logs[i], prepare, run};
    }
    assert_true(eb_bench_workers_take_turn(runners, THREADS, &turn) >= 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(logs[i].run, READINGS);
        assert_int_equal(logs[i].prepared, READINGS);
        for (unsigned n = 0; n < READINGS; n++) {
            assert_int_equal(logs[i].positions[n], 100 + n * CALLS);
        }
    }
}

static void runs_only_when_all_are_ready(void **state)
{
    (void)state;
    assert_false(atomic_load(&was_early));
}

static void prepare_slowly(void *self, uint64_t position)
{
    (void)self;
    (void)position;
    struct timespec pause = {.tv_nsec = 30000000};
    (void)nanosleep(&pause, NULL);
}

static void run_a_while(void *self)
{
    (void)self;
    struct timespec pause = {.tv_nsec = 2000000};
    (void)nanosleep(&pause, NULL);
}

static void times_runs_and_not_their_preparation(void **state)
{
    (void)state;
    struct eb_bench_runner runner = {NULL, prepare_slowly, run_a_while};
    struct eb_bench_turn turn = {.call_count = 1, .reading_count = 4};
    double best = 1e12;
    /* A busy machine may make one turn slow, but not all of them. */
    for (unsigned i = 0; i < 20 && best > 25e6; i++) {
        double ns = eb_bench_workers_take_turn(&runner, 1, &turn);
        assert_true(ns >= 2e6);
        best = ns < best ? ns : best;
    }
    assert_true(best <= 25e6);
}

static void finds_medians_and_quartiles(void **state)
{
    (void)state;
    double values[] = {5, 1, 4, 2, 3};
    assert_true(eb_bench_workers_quantile(values, 5, 1, 2) == 3);
    assert_true(eb_bench_workers_quantile(values, 5, 1, 4) == 2);
    assert_true(eb_bench_workers_quantile(values, 5, 3, 4) == 4);
    double pair[] = {10, 20};
    assert_true(eb_bench_workers_quantile(pair, 2, 1, 2) == 15);
    assert_true(eb_bench_workers_quantile(pair, 2, 0, 2) == 10);
    assert_true(eb_bench_workers_quantile(pair, 2, 2, 2) == 20);
    assert_true(eb_bench_workers_quantile(pair, 1, 3, 4) == 10);
}

EB_TEST_GROUP(bench_workers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_readings_in_all_threads),
        cmocka_unit_test(runs_only_when_all_are_ready),
        cmocka_unit_test(times_runs_and_not_their_preparation),
        cmocka_unit_test(finds_medians_and_quartiles),
    };
    return cmocka_run_group_tests_name("bench_crew", tests, NULL, NULL);
}
