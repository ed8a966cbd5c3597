#include "client/cli/load_stats.h"

#include <math.h>

#define NS_PER_US 1e3
#define PER_POWER (UINT64_C(1) << EB_LOAD_HISTOGRAM_BITS)

/* ---- histograms ---- */

/* Returns the width of a time's bucket as a power of two. A bucket is one nanosecond wide below
 * 2 * PER_POWER; from there its width doubles with each power. */
static unsigned find_shift(uint64_t ns)
{
    unsigned top = 63 - (unsigned)__builtin_clzll(ns | 1);
    return top > EB_LOAD_HISTOGRAM_BITS ? top - EB_LOAD_HISTOGRAM_BITS : 0;
}

static uint64_t find_histogram_bucket(uint64_t ns)
{
    unsigned shift = find_shift(ns);
    uint64_t bucket = (uint64_t)shift * PER_POWER + (ns >> shift);
    return bucket < EB_LOAD_HISTOGRAM_BUCKETS ? bucket : EB_LOAD_HISTOGRAM_BUCKETS - 1;
}

/* Returns the largest time that belongs to the bucket. */
static double find_last_ns(uint64_t bucket)
{
    uint64_t shift = bucket < 2 * PER_POWER ? 0 : bucket / PER_POWER - 1;
    uint64_t first = (bucket - shift * PER_POWER) << shift;
    return (double)(first + (UINT64_C(1) << shift) - 1);
}

void eb_load_histogram_add(struct eb_load_histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->sum_ns += (double)ns;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
    histogram->buckets[find_histogram_bucket(ns)]++;
}

void eb_load_histogram_merge(
    struct eb_load_histogram *histogram, const struct eb_load_histogram *other)
{
    histogram->count += other->count;
    histogram->sum_ns += other->sum_ns;
    histogram->max_ns = other->max_ns > histogram->max_ns ? other->max_ns : histogram->max_ns;
    for (uint64_t i = 0; i < EB_LOAD_HISTOGRAM_BUCKETS; i++) {
        histogram->buckets[i] += other->buckets[i];
    }
}

double eb_load_histogram_quantile_us(const struct eb_load_histogram *histogram, double quantile)
{
    uint64_t wanted = (uint64_t)ceil(quantile * (double)histogram->count);
    uint64_t seen = 0;
    if (histogram->count == 0 || wanted >= histogram->count) {
        return eb_load_histogram_max_us(histogram);
    }
    wanted = wanted > 0 ? wanted : 1;
    uint64_t bucket = 0;
    while (bucket < EB_LOAD_HISTOGRAM_BUCKETS - 1) {
        seen += histogram->buckets[bucket];
        if (seen >= wanted) {
            break;
        }
        bucket++;
    }
    double last_ns = find_last_ns(bucket);
    double max_ns = (double)histogram->max_ns;
    return (last_ns < max_ns ? last_ns : max_ns) / NS_PER_US;
}

double eb_load_histogram_mean_us(const struct eb_load_histogram *histogram)
{
    return histogram->count > 0 ? histogram->sum_ns / (double)histogram->count / NS_PER_US : 0;
}

double eb_load_histogram_max_us(const struct eb_load_histogram *histogram)
{
    return (double)histogram->max_ns / NS_PER_US;
}

/* ---- counters ---- */

static unsigned find_stats_code(enum embag_status status)
{
    return (unsigned)status < EB_LOAD_STATUS_COUNT ? (unsigned)status : EMBAG_UNKNOWN;
}

static bool is_stats_good(
    const struct eb_load_window *window, const struct eb_load_outcome *outcome)
{
    return outcome->done_ns - outcome->due_ns <= window->deadline_ns && !outcome->is_wrong;
}

/* Counts a request without an answer. Its latency is the time that was waited for it, but at least
 * the timeout and the deadline. */
static void add_unanswered(
    struct eb_load_stats *stats, const struct eb_load_window *window, uint64_t waited_ns)
{
    bool is_less = waited_ns < window->unanswered_ns;
    eb_load_histogram_add(&stats->unanswered, is_less ? window->unanswered_ns : waited_ns);
}

static void add_due(struct eb_load_stats *stats, const struct eb_load_window *window,
    const struct eb_load_outcome *outcome)
{
    if (outcome->error->status != EMBAG_OK) {
        add_unanswered(stats, window, outcome->done_ns - outcome->due_ns);
    }
    if (outcome->is_unsent && outcome->error->status == EMBAG_DEADLINE_EXCEEDED) {
        stats->unsent_count++;
        return;
    }
    stats->by_status[find_stats_code(outcome->error->status)]++;
    if (!outcome->is_unsent) {
        eb_load_histogram_add(&stats->late, outcome->sent_ns - outcome->due_ns);
    }
    if (outcome->error->status != EMBAG_OK) {
        if (stats->first_error.status == EMBAG_OK) {
            stats->first_error = *outcome->error;
        }
        return;
    }
    eb_load_histogram_add(&stats->latency, outcome->done_ns - outcome->due_ns);
    stats->answer_bytes += outcome->answer_bytes;
    stats->queue_us += outcome->queue_us;
    stats->compute_us += outcome->compute_us;
    stats->good_count += is_stats_good(window, outcome);
}

void eb_load_stats_add(struct eb_load_stats *stats, const struct eb_load_window *window,
    const struct eb_load_outcome *outcome)
{
    uint64_t end_ns = window->end_ns;
    if (outcome->due_ns >= window->begin_ns && outcome->due_ns < end_ns) {
        add_due(stats, window, outcome);
    }
    if (outcome->error->status == EMBAG_OK && outcome->done_ns >= window->begin_ns &&
        outcome->done_ns < end_ns) {
        stats->window_answers++;
        stats->window_good += is_stats_good(window, outcome);
    }
    stats->wrong_count += outcome->is_wrong;
}

void eb_load_stats_add_unsent(struct eb_load_stats *stats, const struct eb_load_window *window,
    uint64_t due_ns, uint64_t now_ns)
{
    struct embag_error error = {.status = EMBAG_DEADLINE_EXCEEDED};
    struct eb_load_outcome outcome = {
        .due_ns = due_ns,
        .done_ns = now_ns > due_ns ? now_ns : due_ns,
        .error = &error,
        .is_unsent = true,
    };
    eb_load_stats_add(stats, window, &outcome);
}

void eb_load_stats_add_lost(
    struct eb_load_stats *stats, const struct eb_load_window *window, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        add_unanswered(stats, window, 0);
    }
}

void eb_load_stats_merge(struct eb_load_stats *stats, const struct eb_load_stats *other)
{
    eb_load_histogram_merge(&stats->latency, &other->latency);
    eb_load_histogram_merge(&stats->unanswered, &other->unanswered);
    eb_load_histogram_merge(&stats->late, &other->late);
    for (unsigned i = 0; i < EB_LOAD_STATUS_COUNT; i++) {
        stats->by_status[i] += other->by_status[i];
    }
    stats->good_count += other->good_count;
    stats->unsent_count += other->unsent_count;
    stats->wrong_count += other->wrong_count;
    stats->answer_bytes += other->answer_bytes;
    stats->queue_us += other->queue_us;
    stats->compute_us += other->compute_us;
    stats->window_answers += other->window_answers;
    stats->window_good += other->window_good;
    if (stats->first_error.status == EMBAG_OK) {
        stats->first_error = other->first_error;
    }
}

uint64_t eb_load_stats_errors(const struct eb_load_stats *stats)
{
    uint64_t sum = 0;
    for (unsigned i = 1; i < EB_LOAD_STATUS_COUNT; i++) {
        sum += stats->by_status[i];
    }
    return sum;
}

double eb_load_stats_quantile_us(const struct eb_load_stats *stats, double quantile)
{
    struct eb_load_histogram all = stats->latency;
    eb_load_histogram_merge(&all, &stats->unanswered);
    return eb_load_histogram_quantile_us(&all, quantile);
}

uint64_t eb_load_stats_requests(const struct eb_load_stats *stats)
{
    return stats->by_status[0] + eb_load_stats_errors(stats) + stats->unsent_count;
}

bool eb_load_stats_has_answers(const struct eb_load_stats *stats)
{
    return stats->by_status[0] > 0 || stats->window_answers > 0;
}
