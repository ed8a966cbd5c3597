/* The state of a replica, one of several equal servers: how fast it answers, what it has to
 * do, and whether it should get calls. A group is the replicas that may get the same calls.
 *
 * An attempt is one call at one replica. A call that is resent or hedged has several.
 * A new replica, and one that is back after a lost connection or an ejection, begins with the
 * group's median latency and gets its full share of calls after EB_REPLICA_RAMP_NS.
 * Thread: one at a time; pure. Memory: the owner has the replicas, which must not move, the group's
 * array, and the attempts. Times are never 0. */
#pragma once

#include "proto/link/ejection.h"
#include "proto/link/peak_latency.h"
#include "proto/link/suspicion.h"
#include "proto/list.h"
#include "proto/status.h"

/* Most addresses that a client may be given. */
#define EB_REPLICAS_MAX 1024
/* Time in which the caches and the allocator of a process that has just started become warm. */
#define EB_REPLICA_RAMP_NS UINT64_C(10000000000)
/* Least share of a replica, in hundredths: without any call its latency would not be known. */
#define EB_REPLICA_SHARE_MIN 1
#define EB_REPLICA_SHARE_FULL 100

struct eb_replica_attempt {
    struct eb_list link; /* among the replica's attempts in flight */
    uint64_t sent_ns;
    uint64_t timeout_ns; /* from sent_ns to the call's deadline */
};

enum eb_attempt_end {
    EB_ATTEMPT_ANSWERED,
    EB_ATTEMPT_FAILED,   /* by the replica, or its deadline passed: its latency is the time-out */
    EB_ATTEMPT_REJECTED, /* the request is invalid: says nothing about the replica */
    EB_ATTEMPT_CANCELLED /* nobody waits for the answer any more: it would have taken longer */
};

struct eb_replica {
    struct eb_peak_latency latency;
    struct eb_list attempts; /* in flight, the oldest first */
    uint64_t oldest_ns;      /* sent_ns of the oldest attempt in flight; UINT64_MAX: none is */
    uint32_t in_flight;
    bool is_up;         /* a connection is open */
    uint64_t joined_ns; /* when the ramp began */
    struct eb_suspicion suspicion;
    struct eb_ejection ejection;
};

/* Set by the owner, which may change both between calls of functions. */
struct eb_replica_group {
    struct eb_replica **replicas;
    uint32_t count; /* at most EB_REPLICAS_MAX */
};

void eb_replica_init(struct eb_replica *replica);

/* Counts an attempt as in flight at the replica until eb_replica_end. */
void eb_replica_send(struct eb_replica *replica, struct eb_replica_attempt *attempt,
    uint64_t timeout_ns, uint64_t now_ns);
/* Ends an attempt in flight. Ejects the replica if most of its attempts fail and the group can do
 * without it. */
void eb_replica_end(const struct eb_replica_group *group, struct eb_replica *replica,
    struct eb_replica_attempt *attempt, enum eb_attempt_end end, uint64_t now_ns);
/* Returns how an attempt ended that has this status. */
enum eb_attempt_end eb_attempt_end_of(enum eb_status status);
/* Notes that a byte of the application has come from the replica. If attempts are in flight, the
 * time of silence runs again from now. */
static inline void eb_replica_note_heard(struct eb_replica *replica, uint64_t now_ns)
{
    eb_suspicion_note_heard(&replica->suspicion);
    if (replica->in_flight > 0) {
        eb_suspicion_note_sent(&replica->suspicion, now_ns);
    }
}

/* Does what silence makes due (eb_suspicion_check), and returns it. PROBE: send the replica an
 * empty lookup, which is not an attempt. SUSPECT: send its calls in flight elsewhere too. Must be
 * called every few milliseconds, or at eb_suspicion_due_ns. */
enum eb_suspicion_step eb_replica_check_silence(const struct eb_replica_group *group,
    struct eb_replica *replica, uint64_t silence_ns, uint64_t now_ns);

/* Notes that the replica's first connection is open. */
void eb_replica_join(
    const struct eb_replica_group *group, struct eb_replica *replica, uint64_t now_ns);
/* Notes that its last connection is closed. Attempts may still be ended after that. */
void eb_replica_leave(struct eb_replica *replica);
/* Lets a replica whose ejection is over get calls again. Does nothing in other cases. */
void eb_replica_readmit(
    const struct eb_replica_group *group, struct eb_replica *replica, uint64_t now_ns);

/* Returns the share of calls that the replica may have, in hundredths of that of an old one. */
static inline uint32_t eb_replica_share(const struct eb_replica *replica, uint64_t now_ns)
{
    uint64_t age_ns = now_ns > replica->joined_ns ? now_ns - replica->joined_ns : 0;
    if (age_ns >= EB_REPLICA_RAMP_NS) {
        return EB_REPLICA_SHARE_FULL;
    }
    uint64_t share = age_ns / (EB_REPLICA_RAMP_NS / EB_REPLICA_SHARE_FULL);
    return share > EB_REPLICA_SHARE_MIN ? (uint32_t)share : EB_REPLICA_SHARE_MIN;
}

/* Returns the number of replicas that are up and ejected or suspect. When one is excluded, it is at
 * most half of those that are up: the others must be able to take the calls. */
uint32_t eb_replica_group_excluded(const struct eb_replica_group *group);
