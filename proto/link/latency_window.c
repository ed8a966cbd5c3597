#include "proto/link/latency_window.h"

#include <stdbool.h>
#include <string.h>

#define STEPS (1u << EB_LATENCY_STEP_BITS)
#define LAST_RANGE (EB_LATENCY_RANGES - 1)

/* Returns the range of a latency: 0 below the smallest power of two, 1 + STEPS * (its power of two
 * above the smallest one) + (its step) above. */
static unsigned find_range(uint64_t ns)
{
    if (ns >> EB_LATENCY_SMALLEST_BITS == 0) {
        return 0;
    }
    if (ns >> EB_LATENCY_LARGEST_BITS > 0) {
        return LAST_RANGE;
    }
    unsigned bits = 63 - (unsigned)__builtin_clzll(ns);
    unsigned step = (unsigned)(ns >> (bits - EB_LATENCY_STEP_BITS)) - STEPS;
    return 1 + ((bits - EB_LATENCY_SMALLEST_BITS) << EB_LATENCY_STEP_BITS) + step;
}

static uint64_t range_start_ns(unsigned range)
{
    if (range == 0) {
        return 0;
    }
    unsigned bits = EB_LATENCY_SMALLEST_BITS + (range - 1) / STEPS;
    uint64_t steps = STEPS + (range - 1) % STEPS;
    return steps << (bits - EB_LATENCY_STEP_BITS);
}

/* Returns the latency that a share of the samples, in percent, does not exceed. */
static uint64_t find_quantile(const uint32_t *counts, uint64_t samples, unsigned percent)
{
    uint64_t rank = (samples * percent + 99) / 100;
    uint64_t before = 0;
    unsigned range = 0;
    while (range < LAST_RANGE && before + counts[range] < rank) {
        before += counts[range++];
    }
    uint64_t start_ns = range_start_ns(range);
    if (range == LAST_RANGE || counts[range] == 0) {
        return start_ns;
    }
    return start_ns + (range_start_ns(range + 1) - start_ns) * (rank - before) / counts[range];
}

/* Adds the counts of a slice and returns their sum. */
static uint64_t sum_counts(uint32_t *sums, const struct eb_latency_slice *slice)
{
    uint64_t samples = 0;
    for (unsigned i = 0; i < EB_LATENCY_RANGES; i++) {
        sums[i] += slice->counts[i];
        samples += slice->counts[i];
    }
    return samples;
}

static struct eb_latency_slice *current_slice(struct eb_latency_window *window)
{
    return &window->slices[window->slice % EB_LATENCY_SLICES];
}

/* Keeps the median of the current slice. */
static void note_median(struct eb_latency_window *window)
{
    const struct eb_latency_slice *slice = current_slice(window);
    uint32_t counts[EB_LATENCY_RANGES] = {0};
    uint64_t samples = sum_counts(counts, slice);
    unsigned entry = (unsigned)(window->slice % EB_LATENCY_MINUTE_SLICES);
    window->past[entry].median_ns = (uint32_t)find_quantile(counts, samples, 50);
    window->past[entry].weight = slice->added;
}

/* Ends the current slice and begins others until now_ns is in the current one. */
static void advance(struct eb_latency_window *window, uint64_t now_ns)
{
    uint64_t slice = now_ns / EB_LATENCY_SLICE_NS;
    if (slice <= window->slice) {
        return;
    }
    if (slice - window->slice > EB_LATENCY_MINUTE_SLICES) {
        memset(window, 0, sizeof *window);
        window->slice = slice;
        return;
    }
    note_median(window);
    while (window->slice < slice) {
        window->slice++;
        memset(current_slice(window), 0, sizeof window->slices[0]);
        window->past[window->slice % EB_LATENCY_MINUTE_SLICES].weight = 0;
    }
}

void eb_latency_window_add(struct eb_latency_window *window, uint64_t latency_ns, uint64_t now_ns)
{
    advance(window, now_ns);
    struct eb_latency_slice *slice = current_slice(window);
    uint16_t *count = &slice->counts[find_range(latency_ns)];
    if (*count == UINT16_MAX) {
        for (unsigned i = 0; i < EB_LATENCY_RANGES; i++) {
            slice->counts[i] /= 2;
        }
    }
    *count = (uint16_t)(*count + 1);
    slice->added++;
}

/* Returns the median of the medians, weighted: the smallest one such that at least half of the
 * samples are in slices with this median or a smaller one. */
static uint64_t minute_median(const struct eb_latency_window *window)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < EB_LATENCY_MINUTE_SLICES; i++) {
        total += window->past[i].weight;
    }
    uint64_t median_ns = UINT64_MAX;
    for (unsigned i = 0; i < EB_LATENCY_MINUTE_SLICES; i++) {
        uint64_t below = 0;
        for (unsigned j = 0; j < EB_LATENCY_MINUTE_SLICES; j++) {
            bool is_below = window->past[j].median_ns <= window->past[i].median_ns;
            below += is_below ? window->past[j].weight : 0;
        }
        if (window->past[i].weight > 0 && below * 2 >= total &&
            window->past[i].median_ns < median_ns) {
            median_ns = window->past[i].median_ns;
        }
    }
    return total > 0 ? median_ns : 0;
}

void eb_latency_window_summarise(
    struct eb_latency_window *window, uint64_t now_ns, struct eb_latency_summary *out)
{
    advance(window, now_ns);
    note_median(window);
    uint32_t counts[EB_LATENCY_RANGES] = {0};
    uint64_t samples = 0;
    *out = (struct eb_latency_summary){0};
    for (unsigned i = 0; i < EB_LATENCY_SLICES; i++) {
        samples += sum_counts(counts, &window->slices[i]);
        out->samples += window->slices[i].added;
    }
    if (samples > 0) {
        out->p50_ns = find_quantile(counts, samples, 50);
        out->p98_ns = find_quantile(counts, samples, 98);
    }
    out->minute_p50_ns = minute_median(window);
}
