#include "proto/link/retry.h"

#define NS_PER_MS UINT64_C(1000000)
#define PAUSE_FIRST_NS (10 * NS_PER_MS)
#define PAUSE_MAX_NS (1000 * NS_PER_MS)

uint64_t eb_retry_pause_ns(uint32_t attempts, uint32_t random)
{
    uint64_t pause_ns = PAUSE_FIRST_NS;
    for (uint32_t i = 1; i < attempts && pause_ns < PAUSE_MAX_NS; i++) {
        pause_ns *= 2;
    }
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    return pause_ns - pause_ns / 2 * (random >> 16) / 65536;
}

static bool is_refused(const struct eb_retry_case *failure)
{
    return failure->status == EB_STATUS_RESOURCE_EXHAUSTED && failure->retry_after_ms > 0;
}

static bool lacks_version(const struct eb_retry_case *failure)
{
    return failure->status == EB_STATUS_NOT_FOUND && failure->names_version;
}

/* Returns whether a replica says that it would answer too late. */
static bool would_be_late(const struct eb_retry_case *failure)
{
    return failure->status == EB_STATUS_DEADLINE_EXCEEDED && failure->retry_after_ms > 0;
}

/* Returns whether the server is at fault, and not the request, its size or its deadline. */
static bool is_server_faulty(enum eb_status status)
{
    switch (status) {
    case EB_STATUS_OK:
    case EB_STATUS_INVALID_ARGUMENT:
    case EB_STATUS_OUT_OF_RANGE:
    case EB_STATUS_NOT_FOUND:
    case EB_STATUS_RESOURCE_EXHAUSTED:
    case EB_STATUS_DEADLINE_EXCEEDED: return false;
    case EB_STATUS_CANCELLED:
    case EB_STATUS_UNKNOWN:
    case EB_STATUS_ALREADY_EXISTS:
    case EB_STATUS_PERMISSION_DENIED:
    case EB_STATUS_FAILED_PRECONDITION:
    case EB_STATUS_ABORTED:
    case EB_STATUS_UNIMPLEMENTED:
    case EB_STATUS_INTERNAL:
    case EB_STATUS_UNAVAILABLE:
    case EB_STATUS_DATA_LOSS:
    case EB_STATUS_UNAUTHENTICATED: break;
    }
    return true;
}

bool eb_retry_may_move(const struct eb_retry_case *failure)
{
    bool may_pass = failure->status == EB_STATUS_UNAVAILABLE || is_refused(failure) ||
                    would_be_late(failure) || lacks_version(failure) ||
                    (failure->has_replicas && is_server_faulty(failure->status));
    return may_pass && failure->attempts <= failure->retries_max &&
           failure->now_ns < failure->deadline_ns;
}

uint64_t eb_retry_at_ns(const struct eb_retry_case *failure, uint32_t random)
{
    if ((failure->status != EB_STATUS_UNAVAILABLE && !is_refused(failure)) ||
        failure->attempts > failure->retries_max) {
        return EB_RETRY_NEVER;
    }
    /* The pause is at least the time that the server named. A random part is added, so that calls
     * that were refused together are not sent again together. */
    uint64_t asked_ns = failure->retry_after_ms * NS_PER_MS;
    uint64_t pause_ns = asked_ns > 0 ? asked_ns + asked_ns / 4 * (random >> 16) / 65536
                                     : eb_retry_pause_ns(failure->attempts, random);
    uint64_t at_ns = failure->now_ns + pause_ns;
    return at_ns < failure->deadline_ns ? at_ns : EB_RETRY_NEVER;
}
