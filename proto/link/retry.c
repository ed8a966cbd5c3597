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

bool eb_retry_may_move(const struct eb_retry_case *failure)
{
    bool may_pass =
        failure->status == EB_STATUS_UNAVAILABLE || is_refused(failure) || lacks_version(failure);
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
