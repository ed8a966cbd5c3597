/* A histogram of times with a relative error of at most 1 %: buckets are as wide as a 128th of the
 * power of two they lie in, so that the same memory serves a microsecond and an hour.
 * Thread: one at a time. Memory: none; a histogram is some 32 KiB, whatever it counts. */
#pragma once

#include <stdint.h>

#define EB_LOAD_HISTOGRAM_BITS 7    /* buckets of a power of two, as bits */
#define EB_LOAD_HISTOGRAM_POWERS 34 /* above the first 2^BITS nanoseconds: up to half an hour */
#define EB_LOAD_HISTOGRAM_BUCKETS ((EB_LOAD_HISTOGRAM_POWERS + 1) << EB_LOAD_HISTOGRAM_BITS)

/* All zero is an empty one. */
struct eb_load_histogram {
    uint64_t count;
    uint64_t max_ns; /* exact */
    double sum_ns;
    uint64_t buckets[EB_LOAD_HISTOGRAM_BUCKETS];
};

/* What is longer than the last bucket counts there; the largest time stays exact. */
void eb_load_histogram_add(struct eb_load_histogram *histogram, uint64_t ns);
/* Adds all that `other` has counted. */
void eb_load_histogram_merge(
    struct eb_load_histogram *histogram, const struct eb_load_histogram *other);

/* The least time that at least the part `quantile` (0 to 1) of all times do not exceed, or up to a
 * bucket's width more, never less; 0 of an empty one. */
double eb_load_histogram_quantile_us(const struct eb_load_histogram *histogram, double quantile);
/* 0 of an empty one. */
double eb_load_histogram_mean_us(const struct eb_load_histogram *histogram);
double eb_load_histogram_max_us(const struct eb_load_histogram *histogram);
