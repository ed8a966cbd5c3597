/* The counters of a run: latencies, answers, errors.
 * Thread: one at a time. Memory: only the struct, some 105 KiB. */
#pragma once

#include "client/embag.h"

#define EB_LOAD_HISTOGRAM_BITS 7    /* each power of two has 2^BITS buckets */
#define EB_LOAD_HISTOGRAM_POWERS 34 /* powers above the first 2^BITS ns, up to half an hour */
#define EB_LOAD_HISTOGRAM_BUCKETS ((EB_LOAD_HISTOGRAM_POWERS + 1) << EB_LOAD_HISTOGRAM_BITS)

/* A histogram of times with a relative error of at most 1 %. A bucket's width is 1/128 of the power
 * of two that it lies in, so that the same memory serves a microsecond and an hour. It always takes
 * some 32 KiB. Empty if zeroed. */
struct eb_load_histogram {
    uint64_t count;
    uint64_t max_ns; /* exact */
    double sum_ns;
    uint64_t buckets[EB_LOAD_HISTOGRAM_BUCKETS];
};

#define EB_LOAD_STATUS_COUNT 17 /* all status numbers of gRPC are below this */

/* The time in which requests and answers count, and the limits that classify them. */
struct eb_load_window {
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t deadline_ns;   /* longest latency of a good answer; UINT64_MAX: no limit */
    uint64_t unanswered_ns; /* least latency of a request without an answer */
    bool is_closed;         /* closed load: each answered request is followed by the next at once */
};

/* Counters of the requests that were due within the window, unless said otherwise. Zeroes mean that
 * nothing was counted. */
struct eb_load_stats {
    struct eb_load_histogram latency;    /* latency of answers, from when the request was due */
    struct eb_load_histogram unanswered; /* least latencies of requests without an answer */
    struct eb_load_histogram late;       /* delay from due to sent, of requests that were sent */
    uint64_t good_count;                 /* answers within the deadline */
    uint64_t by_status[EB_LOAD_STATUS_COUNT]; /* [0] counts answers */
    uint64_t unsent_count;                    /* due but never sent; not counted as errors */
    uint64_t wrong_count;                     /* answers that --verify found wrong, at any time */
    uint64_t answer_bytes;                    /* bytes of the values of all answers */
    uint64_t queue_us;                        /* sum of the times that the server reports */
    uint64_t compute_us;
    uint64_t window_answers;        /* answers that came within the window, even if due before it */
    uint64_t window_good;           /* window answers within the deadline */
    struct embag_error first_error; /* status EMBAG_OK: none */
};

/* The outcome of one request. */
struct eb_load_outcome {
    uint64_t due_ns;
    uint64_t sent_ns;
    uint64_t done_ns;
    const struct embag_error *error; /* status EMBAG_OK: answered */
    bool is_unsent;                  /* never sent; with DEADLINE_EXCEEDED it counts as unsent */
    uint64_t answer_bytes;
    uint32_t queue_us;
    uint32_t compute_us;
    bool is_wrong;
};

void eb_load_stats_add(struct eb_load_stats *stats, const struct eb_load_window *window,
    const struct eb_load_outcome *outcome);
/* Counts a request that was due and will not be sent. */
void eb_load_stats_add_unsent(struct eb_load_stats *stats, const struct eb_load_window *window,
    uint64_t due_ns, uint64_t now_ns);
/* Counts requests that were sent and have not ended. */
void eb_load_stats_add_lost(
    struct eb_load_stats *stats, const struct eb_load_window *window, uint64_t count);
/* Adds everything that `other` has counted. */
void eb_load_stats_merge(struct eb_load_stats *stats, const struct eb_load_stats *other);

/* Returns the number of errors of all codes, both of sent requests and of requests that the client
 * refused. */
uint64_t eb_load_stats_errors(const struct eb_load_stats *stats);
/* Returns a quantile of the latencies of all due requests: at least the fraction `quantile` of the
 * requests took no longer. Requests without an answer count too, so that a server does not seem
 * faster because it leaves many unanswered. */
double eb_load_stats_quantile_us(const struct eb_load_stats *stats, double quantile);
/* Returns the number of requests that were due. */
uint64_t eb_load_stats_requests(const struct eb_load_stats *stats);
/* Returns whether any request was answered: one that was due within the window, or one whose answer
 * came within it. */
bool eb_load_stats_has_answers(const struct eb_load_stats *stats);

/* ---- histograms ---- */

/* Counts a time. A time beyond the last bucket counts in that bucket; max_ns stays exact. */
void eb_load_histogram_add(struct eb_load_histogram *histogram, uint64_t ns);
/* Adds everything that `other` has counted. */
void eb_load_histogram_merge(
    struct eb_load_histogram *histogram, const struct eb_load_histogram *other);

/* Returns a quantile: the least time such that at least the fraction `quantile` (0 to 1) of all
 * times are not longer. The result may be too large by up to a bucket's width, but is never too
 * small. Returns 0 if the histogram is empty. */
double eb_load_histogram_quantile_us(const struct eb_load_histogram *histogram, double quantile);
/* Return 0 if the histogram is empty. */
double eb_load_histogram_mean_us(const struct eb_load_histogram *histogram);
double eb_load_histogram_max_us(const struct eb_load_histogram *histogram);
