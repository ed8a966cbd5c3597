/* How long things took: a count for each range of times, four ranges to a power of two.
 * Thread: its owner's. Memory: part of its owner; empty when zeroed. */
#pragma once

#include <stdint.h>

/* The first range ends at this, the next at 5/4, 6/4, 7/4 and twice of it, and so on. */
#define EB_HISTOGRAM_FIRST_NS 1024
#define EB_HISTOGRAM_STEPS 4
/* The last range is of all that is longer than some 70 s. */
#define EB_HISTOGRAM_RANGES (26 * EB_HISTOGRAM_STEPS + 2)

struct eb_histogram {
    uint64_t counts[EB_HISTOGRAM_RANGES];
    uint64_t sum_ns;
};

/* The range that so long a time belongs to. Here, as is the next: each lookup does it four times.
 */
static inline unsigned eb_histogram_range(uint64_t ns)
{
    if (ns <= EB_HISTOGRAM_FIRST_NS) {
        return 0;
    }
    const uint64_t steps = (ns - 1) / (EB_HISTOGRAM_FIRST_NS / EB_HISTOGRAM_STEPS);
    const unsigned power = 61 - (unsigned)__builtin_clzll(steps); /* 4 to 7 steps of two to that */
    const unsigned range = (power - 1) * EB_HISTOGRAM_STEPS + 1 + (unsigned)(steps >> power);
    return range < EB_HISTOGRAM_RANGES ? range : EB_HISTOGRAM_RANGES - 1;
}

/* So many took about as long. */
static inline void eb_histogram_add_some(struct eb_histogram *histogram, uint64_t ns, uint64_t some)
{
    histogram->counts[eb_histogram_range(ns)] += some;
    histogram->sum_ns += ns * some;
}

static inline void eb_histogram_add(struct eb_histogram *histogram, uint64_t ns)
{
    eb_histogram_add_some(histogram, ns, 1);
}

void eb_histogram_merge(struct eb_histogram *into, const struct eb_histogram *other);
uint64_t eb_histogram_count(const struct eb_histogram *histogram);
/* How many took at most `ns`, which is the end of a range (eb_histogram_end_ns). */
uint64_t eb_histogram_count_below(const struct eb_histogram *histogram, uint64_t ns);
/* Where a range ends; UINT64_MAX: nowhere. */
uint64_t eb_histogram_end_ns(unsigned range);
