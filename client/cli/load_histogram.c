#include "client/cli/load_histogram.h"

#include <math.h>

#define NS_PER_US 1e3
#define PER_POWER (UINT64_C(1) << EB_LOAD_HISTOGRAM_BITS)

/* Below two powers a bucket is one nanosecond wide, then its width doubles with each power. */
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

/* The largest time that the bucket counts. */
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
