/* Decides whether and when a call that is not answered yet is hedged: sent to a second replica. The
 * first answer counts, and the other attempt is cancelled.
 *
 * A call is hedged after the 98th percentile of the latencies of such calls in the last ten
 * seconds. Latency depends on size, so calls are divided into classes by the bytes of request and
 * answer. Since hedges add load, there are bounds: a call is not hedged
 *   - without a token: calls earn them, at 5 % by default, and few are saved,
 *   - if it has batch priority: nobody waits for it,
 *   - if too little time is left: a hedge would be answered too late,
 *   - for a while after a server has refused a call for lack of resources (push-back),
 *   - while all replicas are slow: then the others are no better,
 *   - before enough latencies are known.
 * Whoever sends a hedge may have bounds of its own: a replica with room, and a resend budget.
 * Thread: one at a time; pure. Memory: part of its owner (24 KB); does not grow. */
#pragma once

#include "proto/link/latency_window.h"

#include <stdbool.h>

#define EB_HEDGE_NEVER UINT64_MAX
/* Defaults of the settings. Below 300 us, what a hedge costs is more than it gains. */
#define EB_HEDGE_PERCENT 5
#define EB_HEDGE_DELAY_MIN_NS 300000
/* Tokens that can be saved: enough for the calls in flight at a replica that stops. */
#define EB_HEDGE_TOKENS_MAX 64
/* Size classes: up to 1 KiB, 4 KiB, ..., 64 MiB, and above. */
#define EB_HEDGE_SMALLEST_BITS 10
#define EB_HEDGE_CLASSES 10
/* Fewer samples have hardly a 98th percentile: it would be the second largest one at best. */
#define EB_HEDGE_SAMPLES_MIN 100
/* The summary of a class is made again after this time. That takes a microsecond, so it costs
 * nothing, and a change of the latencies is followed soon enough. */
#define EB_HEDGE_SUMMARY_NS UINT64_C(100000000)
/* Time without hedges after a push-back: as long as the longest pause between attempts. */
#define EB_HEDGE_PUSHBACK_NS UINT64_C(1000000000)
/* All replicas are slow if the median is more than this many times that of the last minute. */
#define EB_HEDGE_SLOW_FACTOR 2

struct eb_hedge_class {
    struct eb_latency_window window;
    struct eb_latency_summary summary;
    uint64_t summary_ns; /* when the summary was made; 0: never */
};

struct eb_hedge {
    uint32_t percent; /* tokens that a hundred calls earn; 0: no call is hedged */
    uint64_t delay_min_ns;
    uint32_t saved;             /* hundredths of a token */
    uint64_t pushback_until_ns; /* no hedges before that */
    struct eb_hedge_class classes[EB_HEDGE_CLASSES];
};

/* A call that may be hedged. */
struct eb_hedge_call {
    uint64_t bytes; /* of the request and the answer, which may be estimated */
    uint64_t deadline_ns;
    bool is_batch;
};

void eb_hedge_init(struct eb_hedge *hedge, uint32_t percent, uint64_t delay_min_ns);

/* Counts a call that is sent for the first time, whether or not it may be hedged. Returns when to
 * hedge it if it is not answered until then, EB_HEDGE_NEVER if it should not be. */
uint64_t eb_hedge_begin(struct eb_hedge *hedge, const struct eb_hedge_call *call, uint64_t now_ns);
/* Takes a token for a hedge that is sent now. Returns false if there is none, or if the call should
 * not be hedged now. */
bool eb_hedge_take(struct eb_hedge *hedge, const struct eb_hedge_call *call, uint64_t now_ns);
/* Adds the latency of a call: the time from its first attempt to its answer, or to its deadline if
 * there was no answer. Calls that failed earlier do not count. */
void eb_hedge_note_latency(
    struct eb_hedge *hedge, uint64_t bytes, uint64_t latency_ns, uint64_t now_ns);
/* Notes that a server has answered RESOURCE_EXHAUSTED. */
void eb_hedge_note_pushback(struct eb_hedge *hedge, uint64_t now_ns);

/* Returns the longest delay of all classes that had enough calls in the last ten seconds; 0 if none
 * had (eb_suspicion_silence_ns). */
uint64_t eb_hedge_delay_max_ns(const struct eb_hedge *hedge, uint64_t now_ns);
