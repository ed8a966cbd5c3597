/* Takes a replica out of the choice for a while when most of its calls fail. Each ejection takes
 * twice as long as the one before, unless the replica was good for some time in between.
 * Thread: one at a time; pure. Memory: part of its owner. A zeroed one is ready for use. */
#pragma once

#include "proto/link/recent_counts.h"

#include <stdbool.h>

/* Over half of at least this many recent calls must have failed: fewer say too little, and a client
 * that sends fewer loses little by trying. */
#define EB_EJECTION_CALLS 20
#define EB_EJECTION_FIRST_NS UINT64_C(1000000000)
/* A replica that is repaired is used again after a minute at most. */
#define EB_EJECTION_LONGEST_NS UINT64_C(60000000000)
/* Each such time in the choice undoes one doubling. It is longer than what a replica that goes on
 * failing needs to be ejected again, which is ten seconds. */
#define EB_EJECTION_GOOD_NS UINT64_C(60000000000)

struct eb_ejection {
    bool is_out;
    uint8_t doublings;              /* of EB_EJECTION_FIRST_NS, for the next ejection */
    uint64_t until_ns;              /* end of the last ejection; 0: there was none */
    struct eb_recent_counts recent; /* calls that ended in the choice, marked if they failed */
};

/* Counts a call that ended; those that end during an ejection do not count. Returns whether the
 * replica should be ejected. */
bool eb_ejection_count(struct eb_ejection *ejection, bool has_failed, uint64_t now_ns);
/* Ejects a replica that is not ejected. */
void eb_ejection_begin(struct eb_ejection *ejection, uint64_t now_ns);
/* Ends an ejection whose time is over. Returns whether it ended with this call. */
static inline bool eb_ejection_end(struct eb_ejection *ejection, uint64_t now_ns)
{
    bool ends = ejection->is_out && now_ns >= ejection->until_ns;
    ejection->is_out &= !ends;
    return ends;
}
