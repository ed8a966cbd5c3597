#include "proto/link/dispatch_group.h"

#include <assert.h>

void eb_dispatch_group_init(struct eb_dispatch_group *group, uint32_t resends_least,
    uint32_t hedge_percent, uint64_t hedge_delay_min_ns)
{
    eb_resend_budget_init(&group->resends, resends_least);
    eb_hedge_init(&group->hedging, hedge_percent, hedge_delay_min_ns);
    group->counters = (struct eb_dispatch_counters){0};
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        eb_attempt_list_init(&group->waiting[i]);
    }
    eb_list_init(&group->link);
}

uint32_t eb_dispatch_group_count_waiting(const struct eb_dispatch_group *group)
{
    uint32_t count = 0;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        count += group->waiting[i].count;
    }
    return count;
}

void eb_dispatch_group_deinit(struct eb_dispatch_group *group)
{
    assert(eb_dispatch_group_count_waiting(group) == 0);
    eb_list_remove(&group->link);
}

uint64_t eb_dispatch_counters_resent(const struct eb_dispatch_counters *counters)
{
    uint64_t sum = 0;
    for (int i = 0; i < EB_RESEND_REASONS; i++) {
        sum += counters->resent[i];
    }
    return sum;
}
