#include "server/base/leg_counters.h"

const char *eb_leg_outcome_name(enum eb_leg_outcome outcome)
{
    static const char *const names[EB_LEG_OUTCOMES] = {
#define X(name, text) text,
        EB_LEG_OUTCOME_LIST(X)
#undef X
    };
    return names[outcome];
}

const char *eb_leg_resend_name(enum eb_leg_resend reason)
{
    static const char *const names[EB_LEG_RESENDS] = {
#define X(name, text) text,
        EB_LEG_RESEND_LIST(X)
#undef X
    };
    return names[reason];
}

void eb_leg_counters_merge(struct eb_leg_counters *into, const struct eb_leg_counters *other)
{
    for (unsigned i = 0; i < EB_LEG_OUTCOMES; i++) {
        into->outcomes[i] += other->outcomes[i];
    }
    for (unsigned i = 0; i < EB_LEG_RESENDS; i++) {
        into->resends[i] += other->resends[i];
    }
    into->hedges_won += other->hedges_won;
    into->refusals += other->refusals;
    into->hedges_lost += other->hedges_lost;
    into->sent_bytes += other->sent_bytes;
    eb_histogram_merge(&into->answers, &other->answers);
}
