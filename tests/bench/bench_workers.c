#include "tests/bench/bench_workers.h"

#include "client/cli/load_clock.h"
#include "tests/bench/bench_memory.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Number of spins at a barrier before the thread yields its processor. */
#define SPINS_MAX 10000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double eb_bench_workers_quantile(double *values, unsigned count, unsigned k, unsigned parts)
{
    assert(count > 0 && k <= parts);
    qsort(values, count, sizeof *values, compare);
    double at = (double)(count - 1) * k / parts;
    unsigned below = (unsigned)at;
    unsigned above = below + 1 < count ? below + 1 : below;
    return values[below] + (values[above] - values[below]) * (at - below);
}

/* One thread's part of a reading. */
struct reading {
    double start_us;
    double end_us;
    bool is_interrupted;
};

struct workers {
    const struct eb_bench_turn *turn;
    unsigned thread_count;
    atomic_uint arrived;
    atomic_uint round;
};

struct member {
    struct workers *workers;
    const struct eb_bench_runner *runner;
    pthread_t thread;
    struct reading *readings; /* [reading_count] */
};

/* Waits for all threads. It spins, because sleeping and waking would take longer than a reading. */
static void meet(struct workers *workers)
{
    unsigned round = atomic_load(&workers->round);
    if (atomic_fetch_add(&workers->arrived, 1) + 1 == workers->thread_count) {
        atomic_store(&workers->arrived, 0);
        atomic_store(&workers->round, round + 1);
        return;
    }
    for (unsigned spins = 0; atomic_load(&workers->round) == round; spins++) {
        if (spins > SPINS_MAX) {
            (void)sched_yield();
        }
    }
}

/* Returns the number of involuntary context switches of this thread. */
static long count_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void *work(void *context)
{
    const struct member *member = context;
    const struct eb_bench_runner *runner = member->runner;
    struct workers *workers = member->workers;
    for (unsigned i = 0; i < workers->turn->reading_count; i++) {
        runner->prepare(
            runner->self, workers->turn->position + (uint64_t)i * workers->turn->call_count);
        meet(workers);
        struct reading *reading = &member->readings[i];
        long switches = count_switches();
        reading->start_us = eb_load_clock_read_us();
        runner->run(runner->self);
        reading->end_us = eb_load_clock_read_us();
        reading->is_interrupted = count_switches() != switches;
        meet(workers);
    }
    return NULL;
}

/* Combines the readings of all threads into one. */
static struct reading join(const struct member *members, unsigned thread_count, unsigned n)
{
    struct reading joint = members[0].readings[n];
    for (unsigned i = 1; i < thread_count; i++) {
        const struct reading *part = &members[i].readings[n];
        joint.start_us = part->start_us < joint.start_us ? part->start_us : joint.start_us;
        joint.end_us = part->end_us > joint.end_us ? part->end_us : joint.end_us;
        joint.is_interrupted |= part->is_interrupted;
    }
    return joint;
}

static double find_median_us(
    const struct member *members, unsigned thread_count, unsigned reading_count)
{
    double *spans = eb_bench_memory_take(2 * reading_count * sizeof *spans);
    double *clean = spans + reading_count;
    unsigned clean_count = 0;
    for (unsigned i = 1; i < reading_count; i++) {
        struct reading joint = join(members, thread_count, i);
        spans[i - 1] = joint.end_us - joint.start_us;
        clean[clean_count] = spans[i - 1];
        clean_count += !joint.is_interrupted;
    }
    double median = clean_count > 0 ? eb_bench_workers_quantile(clean, clean_count, 1, 2)
                                    : eb_bench_workers_quantile(spans, reading_count - 1, 1, 2);
    free(spans);
    return median;
}

double eb_bench_workers_take_turn(
    const struct eb_bench_runner *runners, unsigned thread_count, const struct eb_bench_turn *turn)
{
    assert(thread_count > 0 && thread_count <= EB_BENCH_THREADS_MAX && turn->reading_count > 1);
    struct workers workers = {.turn = turn, .thread_count = thread_count};
    struct member *members = eb_bench_memory_take(thread_count * sizeof *members);
    struct reading *readings =
        eb_bench_memory_take((size_t)thread_count * turn->reading_count * sizeof *readings);
    for (unsigned i = 0; i < thread_count; i++) {
        members[i].workers = &workers;
        members[i].runner = &runners[i];
        members[i].readings = readings + (size_t)i * turn->reading_count;
    }
    for (unsigned i = 1; i < thread_count; i++) {
        if (pthread_create(&members[i].thread, NULL, work, &members[i]) != 0) {
            fprintf(stderr, "embag-bench: cannot start %u threads\n", thread_count);
            exit(1);
        }
    }
    (void)work(&members[0]);
    for (unsigned i = 1; i < thread_count; i++) {
        (void)pthread_join(members[i].thread, NULL);
    }
    double median_us = find_median_us(members, thread_count, turn->reading_count);
    free(readings);
    free(members);
    return 1e3 * median_us;
}
