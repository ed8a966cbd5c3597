/* The latencies of the last ten seconds as a histogram, and the median of the last minute. Time is
 * cut into slices of 2.5 s. The oldest slice is dropped as a whole, so the histogram covers 7.5 to
 * 10 s.
 * There are 16 ranges for each power of two, and quantiles are interpolated within a range. So a
 * quantile is wrong by at most the width of a range, 6 %, and mostly by less than 1 %.
 * Thread: one at a time; pure. Memory: part of its owner (2.3 KB); does not grow. Empty when
 * zeroed. */
#pragma once

#include <stdint.h>

/* Latencies below 2^15 ns, 33 us, count as one range, those from 2^31 ns, 2.1 s, on as 2.1 s. */
#define EB_LATENCY_SMALLEST_BITS 15
#define EB_LATENCY_LARGEST_BITS 31
#define EB_LATENCY_STEP_BITS 4
#define EB_LATENCY_RANGES                                                                          \
    (((EB_LATENCY_LARGEST_BITS - EB_LATENCY_SMALLEST_BITS) << EB_LATENCY_STEP_BITS) + 2)

#define EB_LATENCY_SLICE_NS UINT64_C(2500000000)
#define EB_LATENCY_SLICES 4
#define EB_LATENCY_MINUTE_SLICES 24

struct eb_latency_slice {
    uint16_t counts[EB_LATENCY_RANGES]; /* all are halved when one would overflow */
    uint32_t added;                     /* samples, never halved */
};

struct eb_latency_window {
    uint64_t slice;                                    /* number of the current slice */
    struct eb_latency_slice slices[EB_LATENCY_SLICES]; /* by slice number, modulo the slices */
    struct {
        uint32_t median_ns;
        uint32_t weight;              /* samples */
    } past[EB_LATENCY_MINUTE_SLICES]; /* by slice number; the current slice may be behind */
};

/* 0 if there are no samples. */
struct eb_latency_summary {
    uint32_t samples; /* in ten seconds */
    uint64_t p50_ns;
    uint64_t p98_ns;
    uint64_t minute_p50_ns; /* median of the slices' medians, weighted by samples */
};

void eb_latency_window_add(struct eb_latency_window *window, uint64_t latency_ns, uint64_t now_ns);
/* Takes about a microsecond. */
void eb_latency_window_summarise(
    struct eb_latency_window *window, uint64_t now_ns, struct eb_latency_summary *out);
