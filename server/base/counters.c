#include "server/base/counters.h"

#include <assert.h>

#define X(name, number) static_assert((number) < EB_COUNTERS_STATUSES, "every status has a place");
EB_STATUS_LIST(X)
#undef X

const char *eb_stage_name(enum eb_stage stage)
{
    static const char *const names[EB_STAGE_COUNT] = {
#define X(name, text, what) text,
        EB_STAGE_LIST(X)
#undef X
    };
    return names[stage];
}

const char *eb_refusal_name(enum eb_refusal refusal)
{
    static const char *const names[EB_REFUSAL_COUNT] = {
#define X(name, text) text,
        EB_REFUSAL_LIST(X)
#undef X
    };
    return names[refusal];
}

void eb_counters_merge(struct eb_counters *into, const struct eb_counters *other)
{
    for (unsigned i = 0; i < EB_COUNTERS_METHODS_MAX; i++) {
        for (unsigned k = 0; k < EB_COUNTERS_STATUSES; k++) {
            into->requests[i][k] += other->requests[i][k];
        }
    }
    for (unsigned i = 0; i < EB_REFUSAL_COUNT; i++) {
        into->refusals[i] += other->refusals[i];
    }
#define X(member, text, help) into->member += other->member;
    EB_COUNTERS_COUNT_LIST(X)
#undef X
    for (unsigned i = 0; i < EB_STAGE_COUNT; i++) {
        eb_histogram_merge(&into->stages[i], &other->stages[i]);
    }
    eb_histogram_merge(&into->lag, &other->lag);
}
