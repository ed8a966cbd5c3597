/* Schedules of prefetching as people write them: `off`, or FAR:NEAR:LEVEL, such as
 *
 *   128:64:l2   a row's first line 128 rows ahead, all of it 64 ahead, both into the second cache
 *   64w:4:l1    all of a row 64 rows ahead into the second cache, and 4 ahead into the first
 *   0:16:l1     all of it 16 rows ahead, into the first cache
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/bag_prefetch.h"

/* Most rows ahead: as many lines fill a first-level cache several times. */
#define EB_BAG_SCHEDULE_ROWS_MAX 4096
/* Room for a schedule's text, NUL included. */
#define EB_BAG_SCHEDULE_TEXT_BYTES 24

/* NULL: *out is set. Otherwise *out is unchanged, and the text says what is wrong. */
const char *eb_bag_schedule_parse(const char *text, struct eb_bag_schedule *out);
/* What parses to the same schedule. */
void eb_bag_schedule_format(
    const struct eb_bag_schedule *schedule, char out[EB_BAG_SCHEDULE_TEXT_BYTES]);
/* Whether no row is called. */
bool eb_bag_schedule_is_off(const struct eb_bag_schedule *schedule);

/* The same schedule for rows of all classes; where it calls none, no step is taken either. */
void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out);
