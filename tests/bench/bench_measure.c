#include "tests/bench/bench_measure.h"

#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_ours.h"
#include "tests/bench/bench_roofline.h"
#include "tests/bench/bench_theirs.h"

#include <assert.h>
#include <stdlib.h>

/* Limit on the rows of one reading, so that the scratch of their jobs stays in the caches. */
#define READING_ROWS_MAX (UINT64_C(1) << 20)

/* A case, and the runners that measure it. */
struct rig {
    const struct eb_bench_case *bench;
    const struct eb_bench_plan *plan;
    uint32_t call_count;
    uint64_t position; /* first batch of the next turn */
    struct eb_bench_ours *ours;
    struct eb_bench_theirs *theirs;
    struct eb_bench_runner *runners; /* ours, then theirs, then ours with the check pass */
};

/* Returns an estimate of the time of one batch, in microseconds, from one turn with one thread. */
static double estimate_batch_us(const struct eb_bench_case *bench)
{
    struct eb_bench_ours ours;
    eb_bench_ours_init(&ours, bench, 0, 1);
    struct eb_bench_runner runner = eb_bench_ours_runner(&ours);
    struct eb_bench_turn turn = {.call_count = 1, .reading_count = 4};
    double ns = eb_bench_workers_take_turn(&runner, 1, &turn);
    eb_bench_ours_deinit(&ours);
    return ns / 1e3;
}

/* Returns the number of batches for a reading of the planned length, but not so many that a turn
 * would use a batch twice. */
static uint32_t choose_call_count(
    const struct eb_bench_case *bench, const struct eb_bench_plan *plan)
{
    double wanted = plan->reading_us / estimate_batch_us(bench);
    uint64_t most = READING_ROWS_MAX / eb_bench_case_rows(bench);
    uint64_t period = eb_bench_case_period(bench) / plan->reading_count;
    if (bench->state != EB_BENCH_HOT && period < most) {
        most = period;
    }
    most = most < 1 ? 1 : most;
    return wanted < 1 ? 1 : wanted > (double)most ? (uint32_t)most : (uint32_t)wanted;
}

static void open_rig(struct rig *rig, const struct eb_fbgemm_kernel *peer)
{
    const struct eb_bench_case *bench = rig->bench;
    unsigned threads = bench->thread_count;
    rig->ours = eb_bench_memory_take(threads * sizeof *rig->ours);
    rig->theirs = eb_bench_memory_take(threads * sizeof *rig->theirs);
    rig->runners = eb_bench_memory_take(3 * threads * sizeof *rig->runners);
    for (unsigned i = 0; i < threads; i++) {
        eb_bench_ours_init(&rig->ours[i], bench, i, rig->call_count);
        rig->runners[i] = eb_bench_ours_runner(&rig->ours[i]);
        rig->runners[2 * threads + i] = eb_bench_ours_checking_runner(&rig->ours[i]);
        if (peer) {
            eb_bench_theirs_init(&rig->theirs[i], bench, peer, i, rig->call_count);
            rig->runners[threads + i] = eb_bench_theirs_runner(&rig->theirs[i]);
        }
    }
}

static void close_rig(struct rig *rig)
{
    for (unsigned i = 0; i < rig->bench->thread_count; i++) {
        eb_bench_ours_deinit(&rig->ours[i]);
        eb_bench_theirs_deinit(&rig->theirs[i]);
    }
    free(rig->ours);
    free(rig->theirs);
    free(rig->runners);
}

/* Returns the number of rows that all threads read in one reading. */
static double count_rows(const struct rig *rig)
{
    return (double)eb_bench_case_rows(rig->bench) * rig->call_count * rig->bench->thread_count;
}

static double take_turn(struct rig *rig, const struct eb_bench_runner *runners, uint64_t position)
{
    struct eb_bench_turn turn = {.position = position,
        .call_count = rig->call_count,
        .reading_count = rig->plan->reading_count};
    return eb_bench_workers_take_turn(runners, rig->bench->thread_count, &turn) / count_rows(rig);
}

/* The times per row of a pair of turns. */
struct pair {
    double ours_ns;
    double checking_ns; /* ours with the check pass */
    double theirs_ns;
};

/* Takes one turn of the peer's kernels and one each of ours without and with the check pass. Pairs
 * alternate in which side is first; with the check pass, ours is always next to the peer. All read
 * the same stock, but start parts of the stock apart, so that no turn finds rows in cache that
 * another has just read. */
static void take_pair(struct rig *rig, bool is_theirs_first, struct pair *pair)
{
    const struct eb_bench_runner *ours = rig->runners;
    const struct eb_bench_runner *theirs = rig->runners + rig->bench->thread_count;
    const struct eb_bench_runner *checking = rig->runners + 2 * rig->bench->thread_count;
    uint64_t period = eb_bench_case_period(rig->bench);
    uint64_t theirs_position = rig->position + period / 2;
    bool has_peer = theirs->run;
    uint64_t checking_position = rig->position + period / 4;
    if (has_peer && is_theirs_first) {
        pair->theirs_ns = take_turn(rig, theirs, theirs_position);
        pair->checking_ns = take_turn(rig, checking, checking_position);
    }
    pair->ours_ns = take_turn(rig, ours, rig->position);
    if (has_peer && !is_theirs_first) {
        pair->checking_ns = take_turn(rig, checking, checking_position);
        pair->theirs_ns = take_turn(rig, theirs, theirs_position);
    }
    rig->position += (uint64_t)rig->call_count * rig->plan->reading_count;
}

/* Returns the time per row of a turn's check passes, over all threads together. Sets *keyed_ns to
 * that of its check passes by key. Resets the times of all threads. */
static double take_check_ns(struct rig *rig, double *keyed_ns)
{
    double us = 0;
    double keyed_us = 0;
    uint64_t rows = 0;
    for (unsigned i = 0; i < rig->bench->thread_count; i++) {
        us += rig->ours[i].check_us;
        keyed_us += rig->ours[i].keyed_us;
        rig->ours[i].keyed_us = 0;
        rows += rig->ours[i].checked_rows;
        rig->ours[i].check_us = 0;
        rig->ours[i].checked_rows = 0;
    }
    *keyed_ns = 1e3 * keyed_us / (double)rows / rig->bench->thread_count;
    return 1e3 * us / (double)rows / rig->bench->thread_count;
}

/* Measurements, with one value for each pair. */
struct series {
    double *ours;
    double *check;
    double *keyed;
    double *keyed_ratio;
    double *theirs;
    double *ratio;
    double *ratio_checked;
};

static struct eb_bench_figures summarize(const struct series *series, unsigned count)
{
    struct eb_bench_figures figures = {
        .ns_per_row = eb_bench_workers_quantile(series->ours, count, 1, 2),
        .check_ns_per_row = eb_bench_workers_quantile(series->check, count, 1, 2),
    };
    if (series->keyed[0] > 0) {
        figures.keyed_check_ns_per_row = eb_bench_workers_quantile(series->keyed, count, 1, 2);
        figures.keyed_ratio = eb_bench_workers_quantile(series->keyed_ratio, count, 1, 2);
    }
    if (series->theirs[0] > 0) {
        figures.peer_ns_per_row = eb_bench_workers_quantile(series->theirs, count, 1, 2);
        figures.ratio = eb_bench_workers_quantile(series->ratio, count, 1, 2);
        figures.ratio_low = eb_bench_workers_quantile(series->ratio, count, 1, 4);
        figures.ratio_high = eb_bench_workers_quantile(series->ratio, count, 3, 4);
        figures.ratio_checked = eb_bench_workers_quantile(series->ratio_checked, count, 1, 2);
    }
    return figures;
}

static void take_pairs(struct rig *rig, const struct series *series)
{
    double ignored;
    struct pair pair = {0};
    take_pair(rig, false, &pair);
    (void)take_check_ns(rig, &ignored);
    for (unsigned i = 0; i < rig->plan->pair_count; i++) {
        take_pair(rig, i % 2 > 0, &pair);
        series->ours[i] = pair.ours_ns;
        series->theirs[i] = pair.theirs_ns;
        series->check[i] = take_check_ns(rig, &series->keyed[i]);
        series->keyed_ratio[i] =
            (series->ours[i] + series->check[i]) / (series->ours[i] + series->keyed[i]);
        series->ratio[i] = series->theirs[i] / series->ours[i];
        if (pair.checking_ns > 0) {
            series->ratio_checked[i] = pair.theirs_ns / pair.checking_ns;
        }
    }
}

struct eb_bench_figures eb_bench_measure_case(const struct eb_bench_case *bench,
    const struct eb_bench_plan *plan, const struct eb_fbgemm_kernel *peer)
{
    struct rig rig = {.bench = bench, .plan = plan, .call_count = choose_call_count(bench, plan)};
    unsigned count = plan->pair_count;
    double *values = eb_bench_memory_take(7 * (size_t)count * sizeof *values);
    struct series series = {.ours = values,
        .check = values + count,
        .theirs = values + 2 * (size_t)count,
        .ratio = values + 3 * (size_t)count,
        .ratio_checked = values + 4 * (size_t)count,
        .keyed = values + 5 * (size_t)count,
        .keyed_ratio = values + 6 * (size_t)count};
    open_rig(&rig, peer);
    take_pairs(&rig, &series);
    close_rig(&rig);
    struct eb_bench_figures figures = summarize(&series, count);
    figures.call_count = rig.call_count;
    free(values);
    return figures;
}

double eb_bench_measure_roofline(
    const struct eb_bench_case *bench, const struct eb_bench_plan *plan, const char **way)
{
    struct rig rig = {.bench = bench, .plan = plan, .call_count = choose_call_count(bench, plan)};
    unsigned threads = bench->thread_count;
    struct eb_bench_roofline *lines = eb_bench_memory_take(threads * sizeof *lines);
    struct eb_bench_runner *runners = eb_bench_memory_take(threads * sizeof *runners);
    double *values = eb_bench_memory_take(plan->pair_count * sizeof *values);
    double best = 0;
    for (unsigned i = 0; i < threads; i++) {
        eb_bench_roofline_init(&lines[i], bench, i, rig.call_count);
        runners[i] = eb_bench_roofline_runner(&lines[i]);
    }
    for (unsigned n = 0; n < eb_bench_roofline_way_count(); n++) {
        for (unsigned i = 0; i < threads; i++) {
            lines[i].way = n;
        }
        for (unsigned i = 0; i < plan->pair_count; i++) {
            values[i] = take_turn(&rig, runners, rig.position);
            rig.position += (uint64_t)rig.call_count * plan->reading_count;
        }
        double ns = eb_bench_workers_quantile(values, plan->pair_count, 1, 2);
        *way = best > 0 && best <= ns ? *way : eb_bench_roofline_way_name(n);
        best = best > 0 && best <= ns ? best : ns;
    }
    for (unsigned i = 0; i < threads; i++) {
        eb_bench_roofline_deinit(&lines[i]);
    }
    free(lines);
    free(runners);
    free(values);
    return best;
}
