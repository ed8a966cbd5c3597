#include "proto/link/resend_budget.h"

void eb_resend_budget_init(struct eb_resend_budget *budget, uint32_t least)
{
    *budget = (struct eb_resend_budget){.least = least};
}

void eb_resend_budget_earn(struct eb_resend_budget *budget, uint64_t now_ns)
{
    eb_recent_advance(&budget->recent, now_ns);
    eb_recent_add(&budget->recent, EB_RECENT_CALLS);
}

bool eb_resend_budget_has(struct eb_resend_budget *budget, uint64_t now_ns)
{
    eb_recent_advance(&budget->recent, now_ns);
    uint32_t earned = budget->recent.sums[EB_RECENT_CALLS] / EB_RESEND_CALLS;
    uint32_t allowed = earned > budget->least ? earned : budget->least;
    return budget->recent.sums[EB_RECENT_MARKED] < allowed;
}

bool eb_resend_budget_take(struct eb_resend_budget *budget, uint64_t now_ns)
{
    if (!eb_resend_budget_has(budget, now_ns)) {
        return false;
    }
    eb_recent_add(&budget->recent, EB_RECENT_MARKED);
    return true;
}
