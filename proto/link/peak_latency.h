/* A replica's latency as the choice sees it: it rises at once to a larger sample and falls slowly
 * towards smaller ones. Without samples it falls towards zero, so that a replica that was slow is
 * tried again.
 * Thread: one at a time; pure. Memory: part of its owner. Zero latency when zeroed. */
#pragma once

#include <stdint.h>

/* The distance to the samples is halved in 2^26 ns, which are 67 ms. A stall of 50 ms is forgotten
 * half a second after it, when the latency is back to some 300 us; a replica whose calls fail is
 * tried again after one second at most, because 2^14 halves of ten seconds are 600 us. */
#define EB_PEAK_LATENCY_HALF_BITS 26
/* Larger samples count as this: the time-out of calls that have none may be infinite. */
#define EB_PEAK_LATENCY_MAX_NS UINT64_C(10000000000)

struct eb_peak_latency {
    uint64_t value_ns; /* latency at the time of the last sample */
    uint64_t at_ns;    /* time of the last sample */
};

/* Returns what is left of an amount after some time. Within a half-life, 2^-f is computed as
 * 1 - f ln 2 + f^2 (ln 2 - 1/2), in units of 2^-20, which is wrong by less than 1 %. */
static inline uint64_t eb_peak_latency_decay(uint64_t amount_ns, uint64_t elapsed_ns)
{
    uint64_t halves = elapsed_ns >> EB_PEAK_LATENCY_HALF_BITS;
    if (halves > 63) {
        return 0;
    }
    uint64_t rest_ns = elapsed_ns & ((UINT64_C(1) << EB_PEAK_LATENCY_HALF_BITS) - 1);
    uint64_t f = rest_ns >> (EB_PEAK_LATENCY_HALF_BITS - 20);
    uint64_t lost = f * (726817 - (202529 * f >> 20)) >> 20;
    amount_ns >>= halves;
    return amount_ns - (amount_ns * lost >> 20);
}

static inline uint64_t eb_peak_latency_elapsed(
    const struct eb_peak_latency *latency, uint64_t now_ns)
{
    return now_ns > latency->at_ns ? now_ns - latency->at_ns : 0;
}

/* Returns the latency at now_ns if there was no further sample. */
static inline uint64_t eb_peak_latency_now(const struct eb_peak_latency *latency, uint64_t now_ns)
{
    return eb_peak_latency_decay(latency->value_ns, eb_peak_latency_elapsed(latency, now_ns));
}

/* Sets the latency, whatever the samples were. */
static inline void eb_peak_latency_set(
    struct eb_peak_latency *latency, uint64_t value_ns, uint64_t now_ns)
{
    latency->value_ns = value_ns < EB_PEAK_LATENCY_MAX_NS ? value_ns : EB_PEAK_LATENCY_MAX_NS;
    latency->at_ns = now_ns;
}

/* Adds the latency of a call that was answered. */
static inline void eb_peak_latency_add(
    struct eb_peak_latency *latency, uint64_t sample_ns, uint64_t now_ns)
{
    uint64_t above_ns = latency->value_ns > sample_ns ? latency->value_ns - sample_ns : 0;
    uint64_t elapsed_ns = eb_peak_latency_elapsed(latency, now_ns);
    eb_peak_latency_set(latency, sample_ns + eb_peak_latency_decay(above_ns, elapsed_ns), now_ns);
}

/* Adds the latency of a call that was not answered, which says only that an answer would have taken
 * longer. */
static inline void eb_peak_latency_raise(
    struct eb_peak_latency *latency, uint64_t least_ns, uint64_t now_ns)
{
    if (least_ns > eb_peak_latency_now(latency, now_ns)) {
        eb_peak_latency_set(latency, least_ns, now_ns);
    }
}
