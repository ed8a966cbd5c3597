/* The counters of one loop since it began: plain numbers that no other thread accesses. To read
 * them, ask the loop for a copy through its mailbox (stats.h).
 * Thread: the loop's, or that of the owner of a copy. Memory: part of its owner; does not grow. */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- histogram ---- */

/* Counts durations by range. There are four ranges for each power of two.
 * Thread: its owner's. Memory: part of its owner; empty when zeroed. */

/* The first range ends at this duration, the next four at 5/4, 6/4, 7/4 and twice of it, and so on
 * for each further power of two. */
#define EB_HISTOGRAM_FIRST_NS 1024
#define EB_HISTOGRAM_STEPS 4
/* The last range holds all durations above some 70 s. */
#define EB_HISTOGRAM_RANGES (26 * EB_HISTOGRAM_STEPS + 2)

struct eb_histogram {
    uint64_t counts[EB_HISTOGRAM_RANGES];
    uint64_t sum_ns;
};

/* Returns the range of a duration. Inline, like the next functions: each lookup calls it four
 * times. */
static inline unsigned eb_histogram_range(uint64_t ns)
{
    if (ns <= EB_HISTOGRAM_FIRST_NS) {
        return 0;
    }
    uint64_t steps = (ns - 1) / (EB_HISTOGRAM_FIRST_NS / EB_HISTOGRAM_STEPS);
    unsigned power = 61 - (unsigned)__builtin_clzll(steps); /* so that steps >> power is 4 to 7 */
    unsigned range = (power - 1) * EB_HISTOGRAM_STEPS + 1 + (unsigned)(steps >> power);
    return range < EB_HISTOGRAM_RANGES ? range : EB_HISTOGRAM_RANGES - 1;
}

/* Counts `some` events that each took `ns`. */
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
/* Returns how many events took at most `ns`, which must be the end of a range
 * (eb_histogram_end_ns). */
uint64_t eb_histogram_count_below(const struct eb_histogram *histogram, uint64_t ns);
/* Returns the end of a range, or UINT64_MAX if it has none. */
uint64_t eb_histogram_end_ns(unsigned range);

/* ---- counters ---- */

#define EB_COUNTERS_STATUSES 17 /* as many as EB_STATUS_LIST has */
/* Methods of all services, and one entry for calls of unknown methods. */
#define EB_COUNTERS_METHODS_MAX 48

/* X(NAME, "name in metrics", "what it is"): the stages of a lookup that was answered. */
#define EB_STAGE_LIST(X)                                                                           \
    X(QUEUE, "queue", "from the last byte of the request to the start of computing")               \
    X(COMPUTE, "compute", "computing")                                                             \
    X(SEND, "send",                                                                                \
        "from the end of computing until the kernel has accepted the last byte of the answer")     \
    X(TOTAL, "total", "the sum of these")

#define X(name, text, what) EB_STAGE_##name,
enum eb_stage { EB_STAGE_LIST(X) EB_STAGE_COUNT };
#undef X

/* X(NAME, "name in metrics"): the reasons why a valid request was not served. */
#define EB_REFUSAL_LIST(X)                                                                         \
    X(QUEUE_FULL, "queue_full")         /* queue_bytes_max */                                      \
    X(LATE, "late")                     /* it could not have met its deadline */                   \
    X(BATCH, "batch")                   /* its connection has too many waiting batch requests */   \
    X(IN_FLIGHT, "in_flight")           /* in_flight_max */                                        \
    X(MEMORY, "memory")                 /* receive_memory_bytes, or answer_memory_bytes */         \
    X(EXPIRED, "expired")               /* its deadline passed before it was computed */           \
    X(EXPIRED_UNSENT, "expired_unsent") /* its deadline passed before its answer was sent */       \
    X(CONNECTIONS, "connections")       /* connections_max: a connection was closed at once */     \
    X(HANDSHAKES, "handshakes")         /* handshakes_per_s_max: a connection was closed at once */

#define X(name, text) EB_REFUSAL_##name,
enum eb_refusal { EB_REFUSAL_LIST(X) EB_REFUSAL_COUNT };
#undef X

/* X(member, "name in metrics", "help"): counters that only grow. */
#define EB_COUNTERS_COUNT_LIST(X)                                                                  \
    X(connections, "connections_accepted", "Connections accepted.")                                \
    X(handshake_timeouts, "tls_handshakes_timed_out",                                              \
        "Connections closed because their TLS handshake was not complete within "                  \
        "header_timeout_ms.")                                                                      \
    X(calls, "calls_started", "Calls started; a stream is one call.")                              \
    X(received_bytes, "received_bytes", "Bytes read from clients' sockets.")                       \
    X(sent_bytes, "sent_bytes", "Bytes written to clients' sockets.")                              \
    X(undecodable, "requests_undecodable",                                                         \
        "Requests that could not be decoded and ended as INTERNAL (client error).")                \
    X(queries, "queries", "Queries and group features computed.")                                  \
    X(bags, "bags", "Bags pooled, plus rows looked up without pooling.")                           \
    X(indices, "rows_touched", "Indices looked up, including those that named no row.")            \
    X(row_bytes, "row_bytes_touched", "Bytes of table rows read, for indices and for empty bags.") \
    X(value_bytes, "value_bytes", "Bytes of pooled values computed.")                              \
    X(inline_lookups, "lookups_inline", "Lookups computed on the event loop that received them.")  \
    X(receive_shortages, "receive_memory_shortages",                                               \
        "Times that receive_memory_bytes was exhausted; one request may cause none or several.")   \
    X(answer_shortages, "answer_memory_shortages",                                                 \
        "Times that answer_memory_bytes was exhausted; one request may cause none or several.")

struct eb_counters {
    uint64_t requests[EB_COUNTERS_METHODS_MAX][EB_COUNTERS_STATUSES]; /* ended, by method */
    uint64_t refusals[EB_REFUSAL_COUNT];
#define X(member, text, help) uint64_t member;
    EB_COUNTERS_COUNT_LIST(X)
#undef X
    struct eb_histogram stages[EB_STAGE_COUNT];
    /* How long TLS handshakes took, from the peer's first bytes; of completed ones. */
    struct eb_histogram handshakes;
    uint64_t handshake_ns; /* CPU time of TLS handshakes */
    /* How long the loop was busy between two polls for events. New events wait meanwhile. */
    struct eb_histogram lag;
};

/* Returns the name in metrics: "queue" and so on. */
const char *eb_stage_name(enum eb_stage stage);
const char *eb_refusal_name(enum eb_refusal refusal);
void eb_counters_merge(struct eb_counters *into, const struct eb_counters *other);
