#include "tests/bench/bench_crew.h"

#include "client/cli/clock.h"
#include "tests/bench/bench_memory.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Looks at a barrier before the processor is given to whom it waits for. */
#define SPINS_MAX 10000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double eb_bench_crew_quantile(double *values, unsigned count, unsigned k, unsigned parts)
{
    assert(count > 0 && k <= parts);
    qsort(values, count, sizeof *values, compare);
    double at = (double)(count - 1) * k / parts;
    unsigned below = (unsigned)at;
    unsigned above = below + 1 < count ? below + 1 : below;
    return values[below] + (values[above] - values[below]) * (at - below);
}

struct crew {
    const struct eb_bench_turn *turn;
    unsigned thread_count;
    atomic_uint arrived;
    atomic_uint round;
};

struct member {
    struct crew *crew;
    const struct eb_bench_runner *runner;
    pthread_t thread;
    double *start_us; /* [reading_count] */
    double *end_us;
};

/* Sleeping and waking would take longer than what is measured. */
static void meet(struct crew *crew)
{
    unsigned round = atomic_load(&crew->round);
    if (atomic_fetch_add(&crew->arrived, 1) + 1 == crew->thread_count) {
        atomic_store(&crew->arrived, 0);
        atomic_store(&crew->round, round + 1);
        return;
    }
    for (unsigned spins = 0; atomic_load(&crew->round) == round; spins++) {
        if (spins > SPINS_MAX) {
            (void)sched_yield();
        }
    }
}

static void *work(void *context)
{
    const struct member *member = context;
    const struct eb_bench_runner *runner = member->runner;
    struct crew *crew = member->crew;
    for (unsigned i = 0; i < crew->turn->reading_count; i++) {
        runner->prepare(runner->self, crew->turn->position + (uint64_t)i * crew->turn->call_count);
        meet(crew);
        member->start_us[i] = eb_clock_read_us();
        runner->run(runner->self);
        member->end_us[i] = eb_clock_read_us();
        meet(crew);
    }
    return NULL;
}

static double find_span(const struct member *members, unsigned thread_count, unsigned reading)
{
    double start = members[0].start_us[reading];
    double end = members[0].end_us[reading];
    for (unsigned i = 1; i < thread_count; i++) {
        start = members[i].start_us[reading] < start ? members[i].start_us[reading] : start;
        end = members[i].end_us[reading] > end ? members[i].end_us[reading] : end;
    }
    return end - start;
}

double eb_bench_crew_take_turn(
    const struct eb_bench_runner *runners, unsigned thread_count, const struct eb_bench_turn *turn)
{
    assert(thread_count > 0 && thread_count <= EB_BENCH_THREADS_MAX && turn->reading_count > 1);
    struct crew crew = {.turn = turn, .thread_count = thread_count};
    struct member *members = eb_bench_memory_take(thread_count * sizeof *members);
    double *times = eb_bench_memory_take(2 * thread_count * turn->reading_count * sizeof *times);
    for (unsigned i = 0; i < thread_count; i++) {
        members[i].crew = &crew;
        members[i].runner = &runners[i];
        members[i].start_us = times + (size_t)2 * i * turn->reading_count;
        members[i].end_us = members[i].start_us + turn->reading_count;
    }
    for (unsigned i = 1; i < thread_count; i++) {
        if (pthread_create(&members[i].thread, NULL, work, &members[i]) != 0) {
            (void)fprintf(stderr, "embag-bench: cannot start %u threads\n", thread_count);
            exit(1);
        }
    }
    (void)work(&members[0]);
    for (unsigned i = 1; i < thread_count; i++) {
        (void)pthread_join(members[i].thread, NULL);
    }
    double *spans = eb_bench_memory_take(turn->reading_count * sizeof *spans);
    for (unsigned i = 1; i < turn->reading_count; i++) {
        spans[i - 1] = find_span(members, thread_count, i);
    }
    double median_us = eb_bench_crew_quantile(spans, turn->reading_count - 1, 1, 2);
    free(spans);
    free(times);
    free(members);
    return 1e3 * median_us;
}
