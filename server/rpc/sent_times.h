/* How long the stages of requests took whose answers have been sent: a histogram for each stage.
 *
 * Answers that are written together have much the same times, so the first of them are sampled one
 * by one and the rest in groups: where there are many, all that is done for one counts.
 * Thread: the loop's. Memory: part of the loop's state. */
#pragma once

#include "server/base/counters.h"

/* Of answers that are written together so many are sampled each; beyond them one of
 * EB_SENT_TIMES_SHARE, which stands for those up to the next. */
#define EB_SENT_TIMES_EACH_MAX 8
#define EB_SENT_TIMES_SHARE 8
/* Samples that wait for the end of the write. With more, the times of those before end a little too
 * soon. */
#define EB_SENT_TIMES_SAMPLES_MAX 1024

struct eb_answer_times {
    uint64_t queue_ns;
    uint64_t compute_ns;
    uint64_t ended_ns; /* when the answer was ready, by uv_hrtime */
};

/* Of one loop. Zeroed but for `counters`. */
struct eb_sent_times {
    struct eb_counters *counters; /* the loop's */
    size_t count;
    struct eb_sent_sample {
        struct eb_answer_times times;
        uint64_t answers;                 /* that it stands for */
    } samples[EB_SENT_TIMES_SAMPLES_MAX]; /* since the last look at the clock */
};

/* Returns how much later `to_ns` is than `from_ns`; 0 if it is not. */
static inline uint64_t eb_passed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* Samples an answer that has left. `now_ns` settles the samples before it if there is no room. */
void eb_sent_times_add(
    struct eb_sent_times *sent, const struct eb_answer_times *times, uint64_t now_ns);
/* Counts the samples: their bytes were written by `now_ns` (uv_hrtime). */
void eb_sent_times_settle(struct eb_sent_times *sent, uint64_t now_ns);
