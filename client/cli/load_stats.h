/* What was counted in a run: latencies, answers, errors.
 * Thread: one at a time. Memory: none beyond the struct, some 105 KiB. */
#pragma once

#include "client/embag.h"

#define EB_LOAD_HISTOGRAM_BITS 7    /* buckets of a power of two, as bits */
#define EB_LOAD_HISTOGRAM_POWERS 34 /* above the first 2^BITS nanoseconds: up to half an hour */
#define EB_LOAD_HISTOGRAM_BUCKETS ((EB_LOAD_HISTOGRAM_POWERS + 1) << EB_LOAD_HISTOGRAM_BITS)

/* Times with a relative error of at most 1 %: buckets are as wide as a 128th of the power of two
 * they lie in, so that the same memory serves a microsecond and an hour. Some 32 KiB, whatever it
 * counts. All zero is an empty one. */
struct eb_load_histogram {
    uint64_t count;
    uint64_t max_ns; /* exact */
    double sum_ns;
    uint64_t buckets[EB_LOAD_HISTOGRAM_BUCKETS];
};

#define EB_LOAD_STATUS_COUNT 17 /* gRPC's status numbers are below */

/* The time in which requests and answers count, and how they are judged. */
struct eb_load_window {
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t deadline_ns;   /* of a good answer, from when it was due; UINT64_MAX: none */
    uint64_t unanswered_ns; /* the least that a request without an answer counts with */
    bool is_closed;         /* load: an answered request is followed by the next at once */
};

/* All zero is an empty one. Of requests that were due within the window, unless said otherwise. */
struct eb_load_stats {
    struct eb_load_histogram latency;         /* of answers, from when they were due */
    struct eb_load_histogram unanswered;      /* how long those waited at least which had none */
    struct eb_load_histogram late;            /* how long after that those were sent which were */
    uint64_t good_count;                      /* answers within the deadline */
    uint64_t by_status[EB_LOAD_STATUS_COUNT]; /* [0] are answers */
    uint64_t unsent_count;                    /* due, but never sent: no errors */
    uint64_t wrong_count;                     /* answers that --verify found wrong, of any time */
    uint64_t answer_bytes;                    /* values of all answers */
    uint64_t queue_us;                        /* of all answers, as the server says */
    uint64_t compute_us;
    uint64_t window_answers;        /* that came within the window, whenever due */
    uint64_t window_good;           /* those within the deadline */
    struct embag_error first_error; /* status EMBAG_OK: none */
};

/* How one request ended. */
struct eb_load_outcome {
    uint64_t due_ns;
    uint64_t sent_ns;
    uint64_t done_ns;
    const struct embag_error *error; /* status EMBAG_OK: it was answered */
    bool is_unsent;                  /* it never left; with DEADLINE_EXCEEDED it counts as such */
    uint64_t answer_bytes;
    uint32_t queue_us;
    uint32_t compute_us;
    bool is_wrong;
};

void eb_load_stats_add(struct eb_load_stats *stats, const struct eb_load_window *window,
    const struct eb_load_outcome *outcome);
/* Counts a request that was due and will not be sent any more. */
void eb_load_stats_add_unsent(struct eb_load_stats *stats, const struct eb_load_window *window,
    uint64_t due_ns, uint64_t now_ns);
/* Counts requests that were sent and have not ended. */
void eb_load_stats_add_lost(
    struct eb_load_stats *stats, const struct eb_load_window *window, uint64_t count);
/* Adds all that `other` has counted. */
void eb_load_stats_merge(struct eb_load_stats *stats, const struct eb_load_stats *other);

/* Errors of all codes: of what was sent, and of what the client refused. */
uint64_t eb_load_stats_errors(const struct eb_load_stats *stats);
/* The latency that at least the part `quantile` of all requests that were due did not exceed: of
 * those without an answer too, for a server that answers few must not seem the faster for it. */
double eb_load_stats_quantile_us(const struct eb_load_stats *stats, double quantile);
/* All requests that were due. */
uint64_t eb_load_stats_requests(const struct eb_load_stats *stats);
/* Whether any request was answered: of those due within the window, or within the window. */
bool eb_load_stats_has_answers(const struct eb_load_stats *stats);

/* ---- histograms ---- */

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
