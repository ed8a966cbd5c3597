/* The slowest requests of a loop's last minutes, measured from the last byte of a request's message
 * until its answer was ready.
 * Thread: its loop's. Memory: part of its owner. */
#pragma once

#include "server/stats/access_log.h"
#include "server/stats/stats.h"

#define EB_SLOW_LIST_AGE_MS 300000 /* age at which a request is dropped from the list */
/* If the list is full, a request is added only if it took longer than the quickest one in the list
 * by more than 1 / EB_SLOW_LIST_STEP of that time. While a queue grows, each request takes longer
 * than all before it, and adding every one of them would cost too much. */
#define EB_SLOW_LIST_STEP 8
#define EB_SLOW_LIST_LOOK_MS 1000 /* time between checks for old requests */

/* An empty list is zeroed. */
struct eb_slow_list {
    uint64_t floor_ns; /* a request that took at most this long is not added */
    uint64_t aged_ms;  /* time of the last check for old requests */
    size_t count;
    struct eb_slow_request {
        uint64_t over_ms; /* when it was over, by the loop's clock */
        struct eb_stats_slow shown;
    } requests[EB_STATS_SLOW_REQUESTS];
};

/* Returns whether a request that took `total_ns` belongs in the list. */
static inline bool eb_slow_list_wants(const struct eb_slow_list *list, uint64_t total_ns)
{
    return total_ns > list->floor_ns;
}

/* Adds a request that eb_slow_list_wants. If the list is full, it replaces the quickest one. */
void eb_slow_list_add(
    struct eb_slow_list *list, const struct eb_access_record *record, uint64_t now_ms);
/* Drops requests that are too old. To be called from time to time, so that others can enter the
 * list. */
void eb_slow_list_age(struct eb_slow_list *list, uint64_t now_ms);
/* Copies the list to out[EB_STATS_SLOW_REQUESTS], in no order. Returns the number of requests. */
size_t eb_slow_list_copy(
    struct eb_slow_list *list, uint64_t now_ms, struct eb_stats_slow out[EB_STATS_SLOW_REQUESTS]);
