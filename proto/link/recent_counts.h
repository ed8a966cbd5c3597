/* Counts calls, and the marked ones among them (the failed ones, or the resent ones), over the last
 * ten seconds. Time is cut into slices of one second. The oldest slice is dropped as a whole, so
 * the counts cover nine to ten seconds.
 * Thread: one at a time; pure. Memory: part of its owner; does not grow. Empty when zeroed. */
#pragma once

#include <stdint.h>
#include <string.h>

#define EB_RECENT_SLICE_NS UINT64_C(1000000000)
#define EB_RECENT_SLICES 10

enum eb_recent_kind { EB_RECENT_CALLS, EB_RECENT_MARKED, EB_RECENT_KINDS };

struct eb_recent_counts {
    uint64_t slice;                                     /* number of the current slice */
    uint32_t sums[EB_RECENT_KINDS];                     /* of all slices */
    uint32_t counts[EB_RECENT_SLICES][EB_RECENT_KINDS]; /* by slice number, modulo the slices */
};

/* Drops what is too old. Does nothing if now_ns is in the current slice or before it. */
static inline void eb_recent_advance(struct eb_recent_counts *recent, uint64_t now_ns)
{
    uint64_t slice = now_ns / EB_RECENT_SLICE_NS;
    if (slice >= recent->slice + EB_RECENT_SLICES) {
        memset(recent, 0, sizeof *recent);
        recent->slice = slice;
    }
    while (recent->slice < slice) {
        uint32_t *counts = recent->counts[++recent->slice % EB_RECENT_SLICES];
        for (unsigned kind = 0; kind < EB_RECENT_KINDS; kind++) {
            recent->sums[kind] -= counts[kind];
            counts[kind] = 0;
        }
    }
}

/* Counts one call, or marks one. Call eb_recent_advance first. */
static inline void eb_recent_add(struct eb_recent_counts *recent, enum eb_recent_kind kind)
{
    recent->counts[recent->slice % EB_RECENT_SLICES][kind]++;
    recent->sums[kind]++;
}
