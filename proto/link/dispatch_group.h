/* Calls that equal servers answer: all calls of a client, or those of a router to one part. They
 * share the bounds of resends and of hedges. They also wait together: a call for which no server
 * has room holds back the later ones of its group and priority that may go to the same servers. In
 * each turn every source has one call, so one that has many does not hold back the others.
 * Thread: the loop's. Memory: part of its owner (25 KB); must not move. */
#pragma once

#include "proto/link/attempt.h"
#include "proto/link/hedge.h"
#include "proto/link/resend_budget.h"

/* Why a call is sent again. */
enum eb_resend_reason {
    EB_RESEND_LOST,    /* the connection of its attempt was lost */
    EB_RESEND_REFUSED, /* the server has refused it */
    EB_RESEND_MISSING, /* the server does not have the version */
    EB_RESEND_SILENT,  /* nothing comes from the server */
    EB_RESEND_STREAM,  /* the stream of its attempt has ended with an error */
    EB_RESEND_REASONS
};

/* Counters of a group's calls. */
struct eb_dispatch_counters {
    uint64_t lookups;                   /* sent at least once */
    uint64_t resent[EB_RESEND_REASONS]; /* attempts after the first ones, without hedges */
    uint64_t hedges;
    uint64_t hedges_won;  /* hedges that were answered first */
    uint64_t hedges_lost; /* those that were not, of calls that are over */
    uint64_t sent_bytes;  /* bytes of the messages of all attempts */
};

struct eb_dispatch_group {
    struct eb_resend_budget resends;
    struct eb_hedge hedging;
    struct eb_dispatch_counters counters;
    struct eb_attempt_list waiting[EB_PRIORITY_COUNT]; /* in the order of their turns */
    uint64_t turn;                                     /* of the call that was sent last */
    struct eb_list link; /* of the dispatcher's groups; in no list while no call waits */
};

/* Prepares a group. resends_least is that of eb_resend_budget_init; the others are those of
 * eb_hedge_init. */
void eb_dispatch_group_init(struct eb_dispatch_group *group, uint32_t resends_least,
    uint32_t hedge_percent, uint64_t hedge_delay_min_ns);
/* Forgets a group without calls. Must not be called from a callback of the dispatcher. */
void eb_dispatch_group_deinit(struct eb_dispatch_group *group);
/* Counts the calls of all priorities that wait. */
uint32_t eb_dispatch_group_count_waiting(const struct eb_dispatch_group *group);
/* Returns how many attempts were made again, for whatever reason. */
uint64_t eb_dispatch_counters_resent(const struct eb_dispatch_counters *counters);
