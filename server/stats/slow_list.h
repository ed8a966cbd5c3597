/* The requests of a loop's last minutes that took longest, from their messages' last bytes until
 * their answers were ready.
 * Thread: its loop's. Memory: part of its owner. */
#pragma once

#include "server/stats/access_log.h"
#include "server/stats/stats.h"

#define EB_SLOW_LIST_AGE_MS 300000 /* then a request is forgotten */
/* Where there are as many as may be, one that is not longer than the quickest by this part of it is
 * not taken: while a queue grows each request takes longer than all before it, and is not to pay
 * for being noted. */
#define EB_SLOW_LIST_STEP 8
#define EB_SLOW_LIST_LOOK_MS 1000 /* between looks for old ones */

/* Zeroed is empty. */
struct eb_slow_list {
    uint64_t floor_ns; /* what takes no longer is not one of them */
    uint64_t aged_ms;  /* when old ones were looked for */
    size_t count;
    struct eb_slow_request {
        uint64_t over_ms; /* on the clock of the loop */
        struct eb_stats_slow shown;
    } requests[EB_STATS_SLOW_REQUESTS];
};

/* Whether a request that took so long is one of them. */
static inline bool eb_slow_list_wants(const struct eb_slow_list *list, uint64_t total_ns)
{
    return total_ns > list->floor_ns;
}

/* One that is wanted takes the place of the quickest where there is no other. */
void eb_slow_list_add(
    struct eb_slow_list *list, const struct eb_access_record *record, uint64_t now_ms);
/* Forgets what is too old: to be called now and then, so that others are wanted. */
void eb_slow_list_age(struct eb_slow_list *list, uint64_t now_ms);
/* Copies them to out[EB_STATS_SLOW_REQUESTS], in no order. Returns how many. */
size_t eb_slow_list_copy(
    struct eb_slow_list *list, uint64_t now_ms, struct eb_stats_slow out[EB_STATS_SLOW_REQUESTS]);
