/* Chooses the replica that gets a call: the better of two random ones. Better is the one with the
 * lower cost, (attempts in flight + 1) * max(latency, age of the oldest attempt in flight). Two
 * random ones spread calls almost as well as a look at all replicas would, and clients that do not
 * know of each other do not all choose the same replica.
 * Thread: one at a time; pure. Memory: none. */
#pragma once

#include "proto/link/replica.h"

/* The conditions of a choice. Only `random` and `now_ns` must be set. */
struct eb_choice_terms {
    uint32_t random; /* a new one for each choice; the same one gives the same replica */
    uint64_t now_ns;
    const struct eb_replica *const *tried; /* replicas that must not be chosen: those that had an
                                              attempt of the call */
    uint32_t tried_count;
    /* Returns whether the replica takes the call now: it has room for one more attempt. NULL: all
     * do. */
    bool (*takes)(const void *context, const struct eb_replica *replica);
    const void *context;
};

/* Returns a replica that is up, takes the call and was not tried. Ejected ones are chosen only if
 * all others are down, tried or suspect, and suspect ones only if there are no ejected ones either.
 * Returns NULL if there is none; the call may wait if a replica that is up has no room. A replica
 * whose ejection is over is readmitted. */
struct eb_replica *eb_replica_choose(
    const struct eb_replica_group *group, const struct eb_choice_terms *terms);
