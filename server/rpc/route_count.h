/* Gathers what a loop of a router counts of its legs, for the stats.
 * Thread: the loop's. Memory: the result is on the heap. */
#pragma once

#include "server/stats/route_stats.h"

struct eb_leg_link;

/* Returns the counts, to be freed by free(); NULL if out of memory. */
struct eb_route_counts *eb_route_count(const struct eb_leg_link *link);
