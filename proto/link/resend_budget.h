/* Bounds how many attempts may be sent beside the first one of each call. Without a bound, servers
 * that refuse calls because they are overloaded get each call several times.
 * In any ten seconds, the budget allows one resend for ten calls, and a number of resends that does
 * not depend on the calls, for those who send few.
 * Thread: one at a time; pure. Memory: part of its owner. */
#pragma once

#include "proto/link/recent_counts.h"

#include <stdbool.h>

/* Calls that earn one resend: if all servers refuse everything, they get 1.1 times the calls. */
#define EB_RESEND_CALLS 10
/* Resends in ten seconds that a client and a router have in any case. A router's budget is larger
 * because the calls of many clients fail together when it loses a part server. */
#define EB_RESEND_LEAST_CLIENT 10
#define EB_RESEND_LEAST_ROUTER 32

struct eb_resend_budget {
    uint32_t least;                 /* resends that are allowed in ten seconds in any case */
    struct eb_recent_counts recent; /* first attempts, and resends as the marked ones */
};

void eb_resend_budget_init(struct eb_resend_budget *budget, uint32_t least);
/* Counts a call that is sent for the first time. */
void eb_resend_budget_earn(struct eb_resend_budget *budget, uint64_t now_ns);
/* Returns whether eb_resend_budget_take would succeed now. */
bool eb_resend_budget_has(struct eb_resend_budget *budget, uint64_t now_ns);
/* Counts a resend and returns true, or returns false if the budget is spent. */
bool eb_resend_budget_take(struct eb_resend_budget *budget, uint64_t now_ns);
