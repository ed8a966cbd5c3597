#include "proto/link/ejection.h"

#include <assert.h>

/* 2^6 times the first ejection is longer than the longest. */
#define DOUBLINGS_MAX 6

bool eb_ejection_count(struct eb_ejection *ejection, bool has_failed, uint64_t now_ns)
{
    if (ejection->is_out) {
        return false;
    }
    struct eb_recent_counts *recent = &ejection->recent;
    eb_recent_advance(recent, now_ns);
    eb_recent_add(recent, EB_RECENT_CALLS);
    if (has_failed) {
        eb_recent_add(recent, EB_RECENT_MARKED);
    }
    uint32_t calls = recent->sums[EB_RECENT_CALLS];
    return calls >= EB_EJECTION_CALLS && recent->sums[EB_RECENT_MARKED] > calls / 2;
}

void eb_ejection_begin(struct eb_ejection *ejection, uint64_t now_ns)
{
    assert(!ejection->is_out);
    uint64_t good_ns = now_ns > ejection->until_ns ? now_ns - ejection->until_ns : 0;
    uint64_t undone = good_ns / EB_EJECTION_GOOD_NS;
    unsigned doublings = undone < ejection->doublings ? ejection->doublings - (unsigned)undone : 0;
    uint64_t time_ns = EB_EJECTION_FIRST_NS << doublings;
    time_ns = time_ns < EB_EJECTION_LONGEST_NS ? time_ns : EB_EJECTION_LONGEST_NS;
    *ejection = (struct eb_ejection){
        .is_out = true,
        .doublings = (uint8_t)(doublings < DOUBLINGS_MAX ? doublings + 1 : DOUBLINGS_MAX),
        .until_ns = now_ns + time_ns,
    };
}
