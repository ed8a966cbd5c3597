#include "server/base/counters.h"

#include <assert.h>

/* ---- histogram ---- */

/* log2 of EB_HISTOGRAM_FIRST_NS and of EB_HISTOGRAM_STEPS. */
#define FIRST_BITS 10
#define STEP_BITS 2

static_assert(EB_HISTOGRAM_FIRST_NS == 1 << FIRST_BITS, "ranges are found by their bits");
static_assert(EB_HISTOGRAM_STEPS == 1 << STEP_BITS, "ranges are found by their bits");

void eb_histogram_merge(struct eb_histogram *into, const struct eb_histogram *other)
{
    for (unsigned i = 0; i < EB_HISTOGRAM_RANGES; i++) {
        into->counts[i] += other->counts[i];
    }
    into->sum_ns += other->sum_ns;
}

uint64_t eb_histogram_count(const struct eb_histogram *histogram)
{
    return eb_histogram_count_below(histogram, UINT64_MAX);
}

uint64_t eb_histogram_count_below(const struct eb_histogram *histogram, uint64_t ns)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < EB_HISTOGRAM_RANGES && eb_histogram_end_ns(i) <= ns; i++) {
        count += histogram->counts[i];
    }
    return count;
}

uint64_t eb_histogram_end_ns(unsigned range)
{
    assert(range < EB_HISTOGRAM_RANGES);
    if (range == 0) {
        return EB_HISTOGRAM_FIRST_NS;
    }
    if (range == EB_HISTOGRAM_RANGES - 1) {
        return UINT64_MAX;
    }
    unsigned power = (range - 1) / EB_HISTOGRAM_STEPS;
    uint64_t steps = EB_HISTOGRAM_STEPS + 1 + (range - 1) % EB_HISTOGRAM_STEPS;
    return steps << (power + FIRST_BITS - STEP_BITS);
}

/* ---- counters ---- */

#define X(name, number) static_assert((number) < EB_COUNTERS_STATUSES, "every status has a place");
EB_STATUS_LIST(X)
#undef X

const char *eb_stage_name(enum eb_stage stage)
{
    static const char *const names[EB_STAGE_COUNT] = {
#define X(name, text, what) text,
        EB_STAGE_LIST(X)
#undef X
    };
    return names[stage];
}

const char *eb_refusal_name(enum eb_refusal refusal)
{
    static const char *const names[EB_REFUSAL_COUNT] = {
#define X(name, text) text,
        EB_REFUSAL_LIST(X)
#undef X
    };
    return names[refusal];
}

void eb_counters_merge(struct eb_counters *into, const struct eb_counters *other)
{
    for (unsigned i = 0; i < EB_COUNTERS_METHODS_MAX; i++) {
        for (unsigned k = 0; k < EB_COUNTERS_STATUSES; k++) {
            into->requests[i][k] += other->requests[i][k];
        }
    }
    for (unsigned i = 0; i < EB_REFUSAL_COUNT; i++) {
        into->refusals[i] += other->refusals[i];
    }
#define X(member, text, help) into->member += other->member;
    EB_COUNTERS_COUNT_LIST(X)
#undef X
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        eb_histogram_merge(&into->stages[i], &other->stages[i]);
    }
    eb_histogram_merge(&into->handshakes, &other->handshakes);
    into->handshake_ns += other->handshake_ns;
    eb_histogram_merge(&into->lag, &other->lag);
}
