#include "proto/link/replica.h"

#include <assert.h>
#include <stdlib.h>

#define NONE_IN_FLIGHT UINT64_MAX

void eb_replica_init(struct eb_replica *replica)
{
    *replica = (struct eb_replica){.oldest_ns = NONE_IN_FLIGHT};
    eb_list_init(&replica->attempts);
}

static bool is_excluded(const struct eb_replica *replica)
{
    return replica->ejection.is_out || replica->suspicion.is_suspect;
}

uint32_t eb_replica_group_excluded(const struct eb_replica_group *group)
{
    uint32_t excluded = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        excluded += group->replicas[i]->is_up && is_excluded(group->replicas[i]);
    }
    return excluded;
}

/* Returns whether the group can do without one more replica. */
static bool may_exclude(const struct eb_replica_group *group, const struct eb_replica *replica)
{
    if (is_excluded(replica)) {
        return true;
    }
    uint32_t up = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        up += group->replicas[i]->is_up;
    }
    return eb_replica_group_excluded(group) + 1 <= up / 2;
}

/* ---- attempts ---- */

void eb_replica_send(struct eb_replica *replica, struct eb_replica_attempt *attempt,
    uint64_t timeout_ns, uint64_t now_ns)
{
    attempt->sent_ns = now_ns;
    attempt->timeout_ns = timeout_ns;
    if (replica->in_flight++ == 0) {
        replica->oldest_ns = now_ns;
    }
    eb_list_push(&replica->attempts, &attempt->link);
    eb_suspicion_note_sent(&replica->suspicion, now_ns);
}

static void remove_attempt(struct eb_replica *replica, struct eb_replica_attempt *attempt)
{
    assert(replica->in_flight > 0);
    eb_list_remove(&attempt->link);
    replica->in_flight--;
    replica->oldest_ns = NONE_IN_FLIGHT;
    if (replica->in_flight > 0) {
        replica->oldest_ns =
            EB_CONTAINER_OF(replica->attempts.next, struct eb_replica_attempt, link)->sent_ns;
    }
}

void eb_replica_end(const struct eb_replica_group *group, struct eb_replica *replica,
    struct eb_replica_attempt *attempt, enum eb_attempt_end end, uint64_t now_ns)
{
    remove_attempt(replica, attempt);
    if (end == EB_ATTEMPT_ANSWERED && replica->in_flight == 0) {
        /* Nothing is awaited from the replica any more. */
        eb_suspicion_note_heard(&replica->suspicion);
    }
    uint64_t elapsed_ns = now_ns > attempt->sent_ns ? now_ns - attempt->sent_ns : 0;
    switch (end) {
    case EB_ATTEMPT_ANSWERED: eb_peak_latency_add(&replica->latency, elapsed_ns, now_ns); break;
    case EB_ATTEMPT_FAILED:
        /* Otherwise errors, which are fast, would attract calls. */
        eb_peak_latency_raise(&replica->latency, attempt->timeout_ns, now_ns);
        break;
    case EB_ATTEMPT_REJECTED: return;
    case EB_ATTEMPT_CANCELLED: eb_peak_latency_raise(&replica->latency, elapsed_ns, now_ns); return;
    }
    if (eb_ejection_count(&replica->ejection, end == EB_ATTEMPT_FAILED, now_ns) &&
        may_exclude(group, replica)) {
        eb_ejection_begin(&replica->ejection, now_ns);
    }
}

enum eb_attempt_end eb_attempt_end_of(enum eb_status status)
{
    switch (status) {
    case EB_STATUS_OK: return EB_ATTEMPT_ANSWERED;
    case EB_STATUS_INVALID_ARGUMENT:
    case EB_STATUS_OUT_OF_RANGE: return EB_ATTEMPT_REJECTED;
    /* Other servers may well have the model, or accept the caller. */
    case EB_STATUS_NOT_FOUND:
    case EB_STATUS_ALREADY_EXISTS:
    case EB_STATUS_PERMISSION_DENIED:
    case EB_STATUS_FAILED_PRECONDITION:
    case EB_STATUS_UNIMPLEMENTED:
    case EB_STATUS_UNAUTHENTICATED:
    case EB_STATUS_UNKNOWN:
    case EB_STATUS_CANCELLED: /* by the server: this side does not ask how it ended */
    case EB_STATUS_DEADLINE_EXCEEDED:
    case EB_STATUS_RESOURCE_EXHAUSTED:
    case EB_STATUS_ABORTED:
    case EB_STATUS_INTERNAL:
    case EB_STATUS_UNAVAILABLE:
    case EB_STATUS_DATA_LOSS: break;
    }
    return EB_ATTEMPT_FAILED;
}

enum eb_suspicion_step eb_replica_check_silence(const struct eb_replica_group *group,
    struct eb_replica *replica, uint64_t silence_ns, uint64_t now_ns)
{
    if (now_ns < eb_suspicion_due_ns(&replica->suspicion, silence_ns)) {
        return EB_SUSPICION_WAIT;
    }
    bool may_suspect = may_exclude(group, replica);
    return eb_suspicion_check(&replica->suspicion, silence_ns, may_suspect, now_ns);
}

/* ---- connections, and the ramp ---- */

static int compare_latencies(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the median latency of the other replicas that are up and have been measured, the lower
 * one of two; 0 if there is none. */
static uint64_t median_latency(
    const struct eb_replica_group *group, const struct eb_replica *except, uint64_t now_ns)
{
    assert(group->count <= EB_REPLICAS_MAX);
    uint64_t latencies_ns[EB_REPLICAS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct eb_replica *replica = group->replicas[i];
        if (replica != except && replica->is_up && replica->latency.value_ns > 0) {
            latencies_ns[count++] = eb_peak_latency_now(&replica->latency, now_ns);
        }
    }
    qsort(latencies_ns, count, sizeof latencies_ns[0], compare_latencies);
    return count > 0 ? latencies_ns[(count - 1) / 2] : 0;
}

static void begin_ramp(
    const struct eb_replica_group *group, struct eb_replica *replica, uint64_t now_ns)
{
    eb_peak_latency_set(&replica->latency, median_latency(group, replica, now_ns), now_ns);
    replica->joined_ns = now_ns;
}

void eb_replica_join(
    const struct eb_replica_group *group, struct eb_replica *replica, uint64_t now_ns)
{
    begin_ramp(group, replica, now_ns);
    replica->is_up = true;
    eb_suspicion_note_connected(&replica->suspicion, now_ns);
}

void eb_replica_leave(struct eb_replica *replica)
{
    replica->is_up = false;
    eb_suspicion_note_lost(&replica->suspicion);
}

void eb_replica_readmit(
    const struct eb_replica_group *group, struct eb_replica *replica, uint64_t now_ns)
{
    if (eb_ejection_end(&replica->ejection, now_ns)) {
        begin_ramp(group, replica, now_ns);
    }
}
