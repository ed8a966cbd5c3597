/* Measures how long the stages of requests took, once their answers have been sent: a histogram for
 * each stage.
 *
 * Answers that are written together have nearly the same times. The first of them are sampled one
 * by one and the rest in groups, because with many answers the cost per answer matters.
 * Thread: the loop's. Memory: part of the loop's state. */
#pragma once

#include "server/base/counters.h"

/* The first EB_SENT_TIMES_EACH_MAX answers of those written together have a sample each. From the
 * last of these samples on, each sample represents up to EB_SENT_TIMES_SHARE answers: its own and
 * those that follow. */
#define EB_SENT_TIMES_EACH_MAX 8
#define EB_SENT_TIMES_SHARE 8
/* Most samples that wait for the end of the write. If there are more, the clock is read early, and
 * the times of the samples so far end a little too soon. */
#define EB_SENT_TIMES_SAMPLES_MAX 1024

struct eb_answer_times {
    uint64_t queue_ns;
    uint64_t compute_ns;
    uint64_t ended_ns; /* when the answer was ready (uv_hrtime) */
};

/* Samples of one loop. Zeroed except for `counters`. */
struct eb_sent_times {
    struct eb_counters *counters; /* the loop's */
    size_t count;
    struct eb_sent_sample {
        struct eb_answer_times times;
        uint64_t answers;                 /* answers that it represents */
    } samples[EB_SENT_TIMES_SAMPLES_MAX]; /* since the clock was last read */
};

/* Returns how much later `to_ns` is than `from_ns`; 0 if it is not later. */
static inline uint64_t eb_passed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* Samples an answer that has been sent. Returns false if there is no room: the caller must settle,
 * then add again. */
bool eb_sent_times_add(struct eb_sent_times *sent, const struct eb_answer_times *times);
/* Counts the samples, whose bytes were written by `now_ns` (uv_hrtime), and removes them. */
void eb_sent_times_settle(struct eb_sent_times *sent, uint64_t now_ns);
